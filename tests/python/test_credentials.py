"""Credentials: who holds them, and that a job outlives them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import quiver_cache.torch as qt
from conftest import daemons_of
from helpers import as_list, digest, digests, flat
from lab.s3 import Bucket

Upload = Callable[[str, dict[str, bytes]], str]


def blobs(prefix: str, count: int) -> dict[str, bytes]:
    return {f"{i:04d}.bin": f"{prefix}{i}".encode() * 500 for i in range(count)}


def test_a_daemon_inherits_no_credentials(
    place: Path, server: Bucket, upload: Upload, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads as the session that brought some, whoever started it."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", "")
    monkeypatch.setenv("SOME_TOKEN", server.secret_key)
    monkeypatch.setenv("HTTP_PROXY", f"http://me:{server.secret_key}@127.0.0.1:9")
    files = blobs("inherited", 30)
    data = qt.Dataset(upload("inherited", files), digest)
    loader = qt.DataLoader(data, 5, True, collate_fn=as_list)
    assert Counter(flat(loader)) == digests(files, ".bin")
    assert not loader.report()["degraded"]
    (pid,) = daemons_of(place / "cache")
    held = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    names = {variable.split(b"=")[0].decode() for variable in held if variable}
    assert {"PATH", "HOME", "QUIVER_DISK_LIMIT"} <= names
    assert not [name for name in names if name.startswith("AWS_")]
    assert server.secret_key.encode() not in b"\0".join(held)
