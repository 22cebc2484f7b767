"""A local folder of random items, and a cache of its own, for the benchmarks that need no link."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "release"
QUIVER = BUILD / "quiver"


@dataclass
class Place:
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "QUIVER_CACHE_DIR": str(self.folder / "cache"),
            "QUIVER_MANIFEST_DIR": str(self.folder / "manifests"),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "QUIVER_DISK_LIMIT": "8GB",
        }

    def make_items(self, count: int, size: int) -> Path:
        """`count` files of `size` random bytes in one folder."""
        items = self.folder / f"items-{size}"
        items.mkdir()
        source = random.Random(size)
        for i in range(count):
            (items / f"{i:06}.bin").write_bytes(source.randbytes(size))
        return items

    def quiver(self, *arguments: str) -> str:
        command = [str(QUIVER), *arguments]
        done = subprocess.run(command, env=self.environment, check=True, text=True, stdout=subprocess.PIPE)
        return done.stdout

    def digest_and_warm(self, items: Path, layout: str = "files") -> Path:
        """The manifest of a folder, all of it in the cache."""
        report = json.loads(self.quiver("digest", str(items), "--layout", layout, "--json"))
        self.quiver("warm", report["manifest"], "--json")
        return Path(report["manifest"])

    def status(self) -> dict:
        return json.loads(self.quiver("status", "--json"))


@contextlib.contextmanager
def open_place() -> Iterator[Place]:
    folder = Path(tempfile.mkdtemp(prefix="bench.", dir=ROOT / "build"))
    place = Place(folder)
    try:
        yield place
    finally:
        subprocess.run([str(QUIVER), "stop"], env=place.environment, capture_output=True, check=False)
        shutil.rmtree(folder, ignore_errors=True)
