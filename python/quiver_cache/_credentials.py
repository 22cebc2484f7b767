"""Credentials by AWS's standard chain (botocore), renewed before they expire.

Each process that reads a bucket finds and renews its own: every rank, every worker of torch's own
loader. Workers of Quiver's loader read nothing. What the environment's variables or the arguments
hold cannot change; for these botocore is not even imported.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from typing import Any

from . import _core
from ._log import logger
from .errors import InvalidError

_LOOK_EVERY = 60.0  # seconds: botocore renews 10 to 15 minutes before the end
_PAUSE = 1.0  # seconds, after a renewal for which somebody waited and that brought nothing

_Keys = tuple[str, str, str]


def _find() -> Any:
    """The chain, from its beginning: files, processes and tokens are read anew."""
    import botocore.session

    return botocore.session.Session().get_credentials()


def _keys(found: Any) -> _Keys:
    """What is to be used now; renews it where its end is near."""
    if found is None:
        return "", "", ""
    frozen = found.get_frozen_credentials()
    return frozen.access_key, frozen.secret_key, frozen.token or ""


class _Keeper:
    """Of one process. Its thread waits outside Python, and so does whoever waits for it."""

    def __init__(self) -> None:
        try:
            self._found = _find()
            self._now = _keys(self._found)
        except Exception as problem:  # of a provider, which may be anything
            raise InvalidError(f"there are no credentials for s3://: {problem}") from problem
        self._clients: weakref.WeakSet[_core.Dataset] = weakref.WeakSet()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self.credentials = _core.Credentials(*self._now)
        if self._now[2] or hasattr(self._found, "refresh_needed"):  # they may expire
            self.credentials.renewed_by_somebody(True)
            self._thread = threading.Thread(target=self._run, name="quiver-credentials", daemon=True)
            self._thread.start()

    def tell(self, client: _core.Dataset) -> None:
        self._clients.add(client)

    def end(self) -> None:
        self._over.set()
        self.credentials.renewed_by_somebody(False)
        if self._thread is not None:
            self._thread.join(_PAUSE)

    def _run(self) -> None:
        while not self._over.is_set():
            asked = self.credentials.wanted(_LOOK_EVERY)
            if not self._over.is_set() and not self._renew(asked) and asked:
                self._over.wait(_PAUSE)

    def _renew(self, asked: bool) -> bool:
        """True when there are others. Whoever asked hears of it in any case."""
        before = self._now
        try:
            if asked:
                self._found = _find()
            self._now = _keys(self._found) if self._found is not None else before
        except Exception as problem:
            logger.warning("the credentials cannot be renewed: %s", problem)
        changed = self._now != before
        if asked or changed:
            self.credentials.renew(*self._now)
        if changed:
            for client in list(self._clients):
                client.credentials_renewed()
        return changed


_lock = threading.Lock()
_keeper: _Keeper | None = None


def needed(url: str) -> bool:
    """Whether the chain has to be asked for a source without credentials of its own."""
    return url.lower().startswith("s3://") and not os.environ.get("AWS_ACCESS_KEY_ID")


def keeper() -> _Keeper:
    global _keeper
    with _lock:
        if _keeper is None:
            _keeper = _Keeper()
        return _keeper


def _begin_anew() -> None:
    """In a fork's child, which has no thread of its parent's."""
    global _lock, _keeper
    _lock, _keeper = threading.Lock(), None


def _end() -> None:
    if _keeper is not None:
        _keeper.end()


os.register_at_fork(after_in_child=_begin_anew)
atexit.register(_end)
