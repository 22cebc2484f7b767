"""A real S3 server behind a link of limited rate, with one bucket; all of it gone afterwards."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .link import Link, open_link
from .s3 import Bucket

ROOT = Path(__file__).resolve().parent.parent.parent
SEAWEED = ROOT / "tools" / "seaweed"


@dataclass
class World:
    folder: Path  # everything that is written lies below it
    link: Link
    bucket: Bucket

    def environment(self, cache: str, **more: str) -> dict[str, str]:
        """For a process that uses Quiver: the bucket, and a cache directory of this world."""
        return {
            **os.environ,
            **self.bucket.environment(),
            "QUIVER_CACHE_DIR": str(self.folder / cache),
            "QUIVER_MANIFEST_DIR": str(self.folder / "manifests"),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            **more,
        }


@contextlib.contextmanager
def open_world(bucket: str, *, index: int = 0) -> Iterator[World]:
    (ROOT / "build").mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="world.", dir=ROOT / "build"))
    try:
        with open_link(index) as link, _server(folder / "s3", link) as settings:
            store = Bucket(
                link.endpoint(int(settings["QUIVER_TEST_S3"].rpartition(":")[2])),
                bucket,
                settings["QUIVER_TEST_S3_KEY"],
                settings["QUIVER_TEST_S3_SECRET"],
            )
            store.create()
            yield World(folder, link, store)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _server(folder: Path, link: Link) -> Iterator[dict[str, str]]:
    folder.mkdir(parents=True)
    environment = {
        **os.environ,
        "QUIVER_VENV": str(ROOT / ".venv"),
        "SEAWEED_HOST": link.server_host,
    }
    start = [sys.executable, str(SEAWEED), "start", str(folder), "0"]
    try:
        started = subprocess.run(
            link.wrap(start), env=environment, check=True, text=True, stdout=subprocess.PIPE
        )
        lines = [line.removeprefix("export ") for line in started.stdout.splitlines()]
        yield dict(line.split("=", 1) for line in lines if "=" in line)
    finally:
        subprocess.run([sys.executable, str(SEAWEED), "stop", str(folder)], check=False)
