"""What can go wrong, as exceptions: one class per thing that a caller can do about it.

The same codes are the exit statuses of the programs (docs/errors.md). Each message is a sentence
that names the thing, the reason and the cure.
"""

from __future__ import annotations


class QuiverError(Exception):
    """Any failure that Quiver reports. `code` is its name in logs, metrics and documents."""

    code: str = "io"


class InvalidError(QuiverError, ValueError):
    """The request, a setting or a file's content is wrong: change it."""

    code = "invalid"


class NotFoundError(QuiverError, FileNotFoundError):
    """The named thing does not exist."""

    code = "not_found"


class DeniedError(QuiverError, PermissionError):
    """The origin, the daemon or the system refused permission."""

    code = "denied"


class ExpiredError(QuiverError, PermissionError):
    """Credentials have expired: refresh them."""

    code = "expired"


class ThrottledError(QuiverError):
    """The origin asks for less, and went on doing so while it was retried."""

    code = "throttled"


class UnreachableError(QuiverError, ConnectionError):
    """No connection, or it broke again and again."""

    code = "unreachable"


class DeadlineError(QuiverError, TimeoutError):
    """A deadline passed."""

    code = "timeout"


class ChangedError(QuiverError):
    """The object at the origin is not the one in the manifest: digest again."""

    code = "changed"


class ShortReadError(QuiverError):
    """Fewer bytes came than were announced."""

    code = "short"


class CorruptError(QuiverError):
    """Bytes do not match their hash or checksum, or a file is damaged."""

    code = "corrupt"


class NoSpaceError(QuiverError, OSError):
    """A limit of disk, budget or memory is reached."""

    code = "no_space"


class DaemonUnavailableError(QuiverError):
    """The daemon is gone or stopping."""

    code = "unavailable"


class VersionError(QuiverError):
    """The daemon or a file speaks another version."""

    code = "version"


class CancelledError(QuiverError):
    """A stop was asked for, or the owner is gone."""

    code = "cancelled"


class StorageIOError(QuiverError, OSError):
    """The system reported another error."""

    code = "io"


class BadSampleError(QuiverError, ValueError):
    """A sample was read but decoding or transforming it failed."""

    code = "bad_sample"
