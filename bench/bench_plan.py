"""What `quiver plan` says against what runs take: the steady epochs of jobs over a limited link.

Plan is told the sizes, the link's rate as eight connections measure it, and the jobs' speeds.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import bench_mixed
from crowd import Crowd, Setup
from figures import Figure, say
from lab import reference
from limited import WINDOW, Bench, open_bench
from local import QUIVER

RATE = 5_000_000  # bytes/s on the wire
STEADY = 3  # epochs after the one that fills the cache
MIXED_S = 25.0


@dataclass(frozen=True)
class Reader:
    """A job, as plan is told of it. Without a speed it computes as fast as it is fed."""

    dataset: str
    speed: float | None = None


@dataclass(frozen=True)
class Sizes:
    bytes: int
    items: int


def planned(
    folder: Path, link: float, cache: int, window: str, data: dict[str, Sizes], readers: list[Reader]
) -> list[float]:
    """Seconds of an epoch of each reader."""
    lines = [f'cache = "{cache}"', f'link = "{link:.0f}/s"', f'window = "{window}"']
    for name, size in data.items():
        lines += ["[[dataset]]", f'name = "{name}"', f'bytes = "{size.bytes}"', f"items = {size.items}"]
    for reader in readers:
        lines += ["[[job]]", f'dataset = "{reader.dataset}"']
        if reader.speed is not None:
            lines.append(f'speed = "{reader.speed:.0f}/s"')
    file = folder / "plan.toml"
    file.write_text("\n".join(lines))
    command = [QUIVER, "plan", "--json", str(file)]
    done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE)
    return [job["epoch_s"] for job in json.loads(done.stdout)["plans"][0]["jobs"]]


def figure(case: str, plan: float, measured: float) -> Figure:
    return Figure(f"plan.{case}", abs(plan - measured) / measured, plan, measured, "s", "<= 0.1")


def of_bench(bench: Bench, share: float, window: str, readers: list[Reader]) -> list[float]:
    rate = bench.rate().payload_per_second
    sizes = {"data": Sizes(bench.total, len(bench.keys))}
    return planned(bench.world.folder, rate, int(bench.total * share), window, sizes, readers)


def alone(bench: Bench) -> Iterator[Figure]:
    """One job with a cache of a quarter: bound by the link, and by its own compute."""
    for case, slower in (("link", None), ("compute", 1.3)):
        compute = 0.0
        speed = None
        if slower is not None:
            link_s = 0.75 * bench.total / bench.rate().payload_per_second
            compute = slower * link_s / len(bench.keys)
            speed = bench.total / (slower * link_s)
        (plan,) = of_bench(bench, 0.25, WINDOW, [Reader("data", speed)])
        with bench.daemon(0.25) as environment:
            epochs = bench.epochs(environment, 1 + STEADY, compute)[1:]
        yield figure(case, plan, statistics.median(epoch["seconds"] for epoch in epochs))


def three(bench: Bench) -> Iterator[Figure]:
    """Three jobs that start together over one dataset, with a cache of a fifth."""
    window = "3%"
    plans = of_bench(bench, 0.20, window, [Reader("data")] * 3)
    with bench.daemon(0.20, window) as environment, Crowd(bench, environment) as crowd:
        jobs = crowd.run([Setup(seed=i, epochs=1 + STEADY) for i in range(3)])
    measured = [(job.ends[-1].at - job.ends[0].at) / STEADY for job in jobs]
    pairs = zip(plans, measured, strict=True)
    yield figure("three", *max(pairs, key=lambda pair: abs(pair[0] / pair[1] - 1)))


def mixed(bench: Bench) -> Iterator[Figure]:
    """Two datasets of `bench mixed` behind one link, at speeds that the cache cannot feed in full."""
    world, all_data = bench.world, bench_mixed.ALL[:2]
    source = random.Random(1)
    world.bucket.put_all((k, source.randbytes(bench_mixed.ITEM)) for data in all_data for k in data.keys)
    world.link.limit(20 * RATE)
    ids = bench_mixed.digest(world, all_data)
    world.link.limit(RATE)
    rate = reference.measure(world.link, world.bucket, all_data[0].keys).payload_per_second
    cache = int(bench_mixed.CACHES["170"])
    sizes = {data.name: Sizes(len(data.keys) * bench_mixed.ITEM, len(data.keys)) for data in all_data}
    readers = [Reader(data.name, data.speed) for data in all_data]
    plans = planned(world.folder, rate, cache, bench_mixed.WINDOW, sizes, readers)
    with bench_mixed.mixed(world, ids, cache) as run:
        for data in all_data:
            run.start(data)
        run.settle()
        since = time.monotonic()
        time.sleep(MIXED_S)
        until = time.monotonic()
        rates = {name: job.rate(since, until) for name, job in run.jobs.items()}
    for data, plan in zip(all_data, plans, strict=True):
        yield figure(f"mixed_{data.name}", plan, sizes[data.name].bytes / rates[data.name])


def figures() -> Iterator[Figure]:
    with open_bench(RATE) as bench:
        for part in (alone, three, mixed):
            say(f"  {part.__doc__}")
            yield from part(bench)
