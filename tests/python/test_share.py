"""Jobs that share each read of the origin: `bench share` at a quarter of its size, for its bytes and
its samples alone."""

from __future__ import annotations

import json
import random
import subprocess
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import quiver_cache.torch as qt
from helpers import as_list, digest, flat
from quiver_cache._programs import find_program

Upload = Callable[[str, dict[str, bytes]], str]

ITEMS, SIZE, EPOCHS = 2000, 4_000, 3


def blobs() -> dict[str, bytes]:
    noise = random.Random(ITEMS)
    return {f"{i:04d}.bin": noise.randbytes(SIZE) for i in range(ITEMS)}


@pytest.fixture
def shared(place: Path, upload: Upload, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a dataset of which the cache holds a fifth, over a link that it takes 2 s to pass."""
    monkeypatch.setenv("QUIVER_DISK_LIMIT", str(ITEMS * SIZE // 5))
    monkeypatch.setenv("QUIVER_WINDOW", "10%")
    monkeypatch.setenv("QUIVER_RATE_LIMIT", "4MB/s")
    return upload("share", blobs())


def dataset() -> dict[str, Any]:
    program = [find_program("quiver"), "status", "--json"]
    done = subprocess.run(program, check=True, stdout=subprocess.PIPE)
    said: dict[str, Any] = json.loads(done.stdout)["datasets"][0]
    return said


# Of what one job reads alone. Until it leads for good, which takes seconds, a strict one reads for itself.
@pytest.mark.parametrize(("first", "most"), [("substitute", 1.25), ("strict", 1.75)])
def test_three_jobs_share_each_read(shared: str, first: str, most: float) -> None:
    modes = (first, "substitute", "substitute")
    data = qt.Dataset(shared, digest)
    loaders = [qt.DataLoader(data, 2, True, seed=i, mode=m, collate_fn=as_list) for i, m in enumerate(modes)]

    def run(loader: Any) -> list[Counter[str]]:
        return [Counter(flat(loader)) for _ in range(EPOCHS)]

    with ThreadPoolExecutor(len(loaders)) as pool:
        epochs = flat(pool.map(run, loaders))
    once = Counter(digest(body) for body in blobs().values())
    assert epochs == [once] * (EPOCHS * len(modes))
    now = dataset()
    missing = now["bytes"] - now["pinned_bytes"]
    least = now["bytes"] + (EPOCHS - 1) * missing
    assert 0 < missing < now["bytes"]
    assert least <= now["origin_bytes"] <= most * least
