"""Epochs over tar archives against the same samples as files: warm from a full cache, cold through a link.

A sample is an image and a label of one byte; as a file it is the image alone. Both give bytes objects.
"""

from __future__ import annotations

import io
import os
import random
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

from figures import REPEATS, Figure, median_ratio, say
from limited import Bench, open_bench
from local import QUIVER, Place, open_place

GOAL = ">= 0.95"
SIZE = 110_000  # bytes of an image
ARCHIVES = 8
BATCH = 64
WORKERS = (0, 1, 2)
WARM, COLD = 4_000, 400  # samples


def images(count: int) -> Iterator[tuple[str, bytes]]:
    source = random.Random(1)
    for i in range(count):
        yield f"{i:06}.jpg", source.randbytes(SIZE)


def archives(samples: list[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    for n in range(ARCHIVES):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for name, image in samples[n * len(samples) // ARCHIVES : (n + 1) * len(samples) // ARCHIVES]:
                for member, body in ((name, image), (name.replace(".jpg", ".cls"), b"7")):
                    info = tarfile.TarInfo(member)
                    info.size = len(body)
                    tar.addfile(info, io.BytesIO(body))
        yield f"{n:03}.tar", out.getvalue()


def as_list(batch: list) -> list:
    return batch


def best_rate(data) -> float:
    """Samples a second at the best number of workers."""
    import quiver_cache.torch as qt

    rates = []
    for workers in WORKERS:
        loader = qt.DataLoader(
            data, BATCH, True, num_workers=workers, persistent_workers=workers > 0, collate_fn=as_list
        )
        for _ in range(2):  # first the workers start
            started = time.monotonic()
            seen = sum(len(batch) for batch in loader)
            seconds = time.monotonic() - started
        rates.append(seen / seconds)
        del loader
    say(f"  {type(data).__name__}: {[round(r) for r in rates]} samples/s at workers {WORKERS}")
    return max(rates)


def write_all(folder: Path, files: list[tuple[str, bytes]] | Iterator[tuple[str, bytes]]) -> Path:
    folder.mkdir()
    for name, body in files:
        (folder / name).write_bytes(body)
    return folder


def warm(place: Place) -> Iterator[tuple[float, float]]:
    import quiver_cache.torch as qt

    samples = list(images(WARM))
    files = place.digest_and_warm(write_all(place.folder / "files", samples))
    tars = place.digest_and_warm(write_all(place.folder / "tars", archives(samples)), "webdataset")
    del samples
    for _ in range(REPEATS):
        yield best_rate(qt.WebDataset(str(tars))), best_rate(qt.Dataset(str(files), bytes))


def cold(bench: Bench, tars: str) -> Iterator[tuple[float, float]]:
    """Samples a second in the first epoch of an empty cache that has room for all."""

    def rate(**which: str) -> float:
        with bench.daemon(1.5, "20%") as environment:
            (epoch,) = bench.epochs(environment, 1, 0, **which)
        return COLD / epoch["seconds"]

    for _ in range(REPEATS):
        yield rate(url=tars, kind="WebDataset"), rate()


def figures() -> Iterator[Figure]:
    with open_place() as place:
        os.environ.update(place.environment)
        yield Figure("tar.warm", *median_ratio(warm(place)), "samples/s", GOAL)
    samples = list(images(COLD))
    with open_bench(objects=samples) as bench:
        bench.world.bucket.put_all((f"tars/{key}", body) for key, body in archives(samples))
        url = f"{bench.world.bucket.url}/tars"
        with bench.daemon(0.01) as environment:
            digest = [QUIVER, "digest", url, "--layout", "webdataset", "--json"]
            subprocess.run(digest, env=environment, check=True, stdout=subprocess.DEVNULL)
        yield Figure("tar.cold", *median_ratio(cold(bench, url)), "samples/s", GOAL)
