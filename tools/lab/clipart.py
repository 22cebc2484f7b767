"""The demo's dataset: the small PNGs of Debian's package openclipart-png, by class folder."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path("/usr/share/openclipart/png")
MOST_PIXELS = 250_000


def _pixels(png: Path) -> int:
    with png.open("rb") as file:
        head = file.read(24)
    if head[:8] != b"\x89PNG\r\n\x1a\n":
        return 0
    width, height = struct.unpack(">II", head[16:24])
    return int(width * height)


def files(limit: int | None = None) -> list[Path]:
    """PNGs of at most a quarter of a megapixel, sorted; every k-th of them for a `limit`."""
    if not FOLDER.is_dir():
        raise FileNotFoundError(f"{FOLDER} is missing: apt-get install openclipart-png")
    found = sorted(p for p in FOLDER.rglob("*.png") if 0 < _pixels(p) <= MOST_PIXELS)
    return found[:: max(1, len(found) // limit)] if limit else found


def objects(limit: int | None = None, *, distinct: bool = False) -> Iterator[tuple[str, bytes]]:
    """(key, bytes) as they are uploaded; about one in seven is a copy of another, unless `distinct`."""
    seen: set[bytes] = set()
    for path in files(limit):
        data = path.read_bytes()
        if distinct and data in seen:
            continue
        seen.add(data)
        yield path.relative_to(FOLDER).as_posix(), data
