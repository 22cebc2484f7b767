"""qt.DataLoader over a warm cache against torch's DataLoader over page-cached files: raw bytes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from figures import REPEATS, Figure, median_ratio, say
from local import Place, open_place

BATCH = 64
WORKERS = (0, 1, 2)
# size of an item, number of them, goal
CASES = ((4_000, 40_000, 4), (20_000, 15_000, 2), (110_000, 8_000, 2))


class Files:
    """What a user writes: a map-style dataset that opens and reads one file a sample."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> bytes:
        with open(self.paths[index], "rb") as file:
            return file.read()


def as_list(batch: list) -> list:
    return batch


def epoch_seconds(loader) -> float:
    """One epoch; every sample is held as long as its batch, and its length looked at."""
    started, total = time.monotonic(), 0
    for batch in loader:
        total += sum(map(len, batch))
    assert total > 0
    return time.monotonic() - started


def case(place: Place, size: int, count: int) -> Iterator[tuple[float, float]]:
    """(ours, torch's) in items/s: each at its best number of workers, in turns."""
    import quiver_cache.torch as qt
    import torch.utils.data

    items = place.make_items(count, size)
    files = Files([str(p) for p in sorted(items.iterdir())])
    manifest = place.digest_and_warm(items)
    data = qt.Dataset(str(manifest))
    shared = {"batch_size": BATCH, "shuffle": True, "collate_fn": as_list}

    def best(kind, dataset) -> float:
        rates = []
        for workers in WORKERS:
            loader = kind(dataset, num_workers=workers, persistent_workers=workers > 0, **shared)
            epoch_seconds(loader)  # workers start, pages come in
            rates.append(count / epoch_seconds(loader))
            del loader
        say(f"  {size} B, {kind.__module__}: {[round(r) for r in rates]} items/s at workers {WORKERS}")
        return max(rates)

    for _ in range(REPEATS):
        yield best(qt.DataLoader, data), best(torch.utils.data.DataLoader, files)


def figures() -> Iterator[Figure]:
    for size, count, goal in CASES:
        with open_place() as place:
            os.environ.update(place.environment)
            ratio, ours, reference = median_ratio(case(place, size, count))
            name = f"loader.rate.{size // 1000}k"
            yield Figure(name, ratio, ours, reference, "items/s", f">= {goal}")
