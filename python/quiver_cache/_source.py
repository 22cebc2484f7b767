"""A dataset's source: its manifest and how to reach its bytes, as plain data that can be pickled."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing import context, reduction
from typing import Any

from . import _core, _credentials
from ._log import human_bytes, logger
from ._programs import find_program
from .errors import InvalidError

_CREDENTIALS = ("access_key", "secret_key", "session_token")

# Handles that came with a fork. Their threads and connections are the parent's: never destroyed.
_forked_away: list[object] = []


def as_text(value: object) -> str:
    """A setting's value as settings are written."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


@dataclass
class Source:
    """Opens the manifest, and per process the client, when they are first used."""

    url: str
    layout: str
    settings: dict[str, str]
    credentials: dict[str, str]
    name: str = ""
    manifest_path: str = ""
    _manifest: _core.Manifest | None = field(default=None, repr=False)
    _client: tuple[int, _core.Dataset] | None = field(default=None, repr=False)

    @classmethod
    def make(cls, url: str, layout: str, name: str | None, settings: Mapping[str, object]) -> Source:
        credentials = {k: str(settings[k]) for k in _CREDENTIALS if settings.get(k)}
        given = {k: as_text(v) for k, v in settings.items() if v is not None and k not in _CREDENTIALS}
        name = name or os.path.basename(sys.argv[0]) or "python"
        source = cls(os.fspath(url), layout, given, credentials, name)
        source.load_settings()  # a wrong one is an error here, not in a worker
        return source

    def load_settings(self) -> _core.Settings:
        return _core.Settings.load(self.settings)

    def load_credentials(self, url: str) -> _core.Credentials:
        if not self.credentials and _credentials.needed(url):
            return _credentials.keeper().credentials
        return _core.Credentials(**self.credentials)

    @property
    def manifest(self) -> _core.Manifest:
        if self._manifest is None:
            self._manifest = _core.Manifest.open(self.manifest_path)
        return self._manifest

    @property
    def _names_no_origin(self) -> bool:
        """The URL is that of a manifest, or of archives, which lie in one."""
        return self.url.endswith((".qvm", ".tar"))

    def client(self) -> _core.Dataset:
        """This process's client. One that came with a fork is left alone."""
        if self._client is not None and self._client[0] != os.getpid():
            _forked_away.append(self._client)
            self._client = None
        if self._client is None:
            settings = self.load_settings()
            daemon = find_program("quiverd") if settings.enabled else ""
            url = self.manifest.origin_url if self._names_no_origin else self.url
            client = _core.Dataset.open(
                manifest_path=self.manifest_path,
                url=url,
                settings=settings,
                credentials=self.load_credentials(url),
                daemon_program=daemon,
                name=self.name,
            )
            self._client = (os.getpid(), client)
            if not self.credentials and _credentials.needed(url):
                _credentials.keeper().tell(client)
        return self._client[1]

    def __getstate__(self) -> dict[str, Any]:
        state = {k: v for k, v in self.__dict__.items() if k not in ("_manifest", "_client")}
        manifest = self._manifest
        if manifest is not None and manifest.descriptor >= 0 and _is_spawning():
            state["_descriptor"] = reduction.DupFd(manifest.descriptor)  # one copy in memory for all
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        descriptor = state.pop("_descriptor", None)
        self.__dict__.update(state, _manifest=None, _client=None)
        if descriptor is not None:
            fd = descriptor.detach()
            try:
                self._manifest = _core.Manifest.from_descriptor(fd)
            finally:
                os.close(fd)

    def resolve(self, allow_empty: bool = False) -> None:
        """Finds the manifest, or makes it; then opens it."""
        if self.url.endswith(".qvm"):
            self.manifest_path = os.path.abspath(self.url)
        else:
            settings, credentials = self.load_settings(), self.load_credentials(self.url)
            path = _core.manifest_path_for(self.url, self.layout, settings, credentials)
            self.manifest_path = self._digest_once(path, settings, credentials, allow_empty)
        self._manifest = _core.Manifest.open(self.manifest_path)

    def _digest_once(
        self,
        path: str,
        settings: _core.Settings,
        credentials: _core.Credentials,
        allow_empty: bool,
    ) -> str:
        """Of several processes that start together one digests; the others wait for it.

        Returns where the manifest is: at `path`, or beside it while it is provisional.
        """
        provisional = _core.lazy_manifest_path(path)
        if os.path.exists(path):
            with contextlib.suppress(OSError):
                os.remove(provisional)
            return path
        lazy = settings.digest_lazily
        with _locked(path + ".lock"):
            if os.path.exists(path):
                return path
            if lazy and os.path.exists(provisional):
                return provisional
            with Progress(self.url) as progress:
                report = _core.digest(
                    self.url,
                    layout=self.layout,
                    path=path,
                    settings=settings,
                    credentials=credentials,
                    daemon_program=find_program("quiverd") if settings.enabled else "",
                    allow_empty=allow_empty,
                    lazy=lazy,
                    progress=progress.show,
                )
            return report.manifest_path


def _is_spawning() -> bool:
    return context.get_spawning_popen() is not None


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        raise InvalidError(
            f"the manifest cannot be kept in {os.path.dirname(path)}: {problem.strerror}; "
            "name a folder that can be written with manifest_dir="
        ) from problem
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        with contextlib.suppress(OSError):
            os.remove(path)
        os.close(fd)


class Progress:
    """A bar on a terminal; elsewhere a plain line once a second."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._bar = sys.stderr.isatty()
        self._next = time.monotonic() + 1
        self._shown = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar and self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def show(self, news: _core.DigestProgress) -> None:
        now = time.monotonic()
        if self._bar:
            sys.stderr.write("\r\x1b[K" + self._line(news, bar=True))
            sys.stderr.flush()
            self._shown = True
        elif now >= self._next:
            self._next = now + 1
            logger.info("%s", self._line(news, bar=False))

    def _line(self, news: _core.DigestProgress, bar: bool) -> str:
        if news.listing:
            return f"listing {self._what}: {news.objects_listed:,} objects"
        share = news.bytes_done / news.bytes_total if news.bytes_total else 1.0
        drawn = "[" + ("#" * int(24 * share)).ljust(24) + "] " if bar else ""
        unit = "archives" if news.archives else "items"
        return (
            f"digesting {self._what}: {drawn}{share:.0%}, {news.items_done:,} of "
            f"{news.items_total:,} {unit}, {human_bytes(news.bytes_done)}"
        )
