"""Jobs over one dataset that share each read of the origin, through one limited link.

Hits are what the jobs together did not read from the origin. Times are against the limit
max(compute, (1-p)D/b) of a job that has the link for itself.
"""

from __future__ import annotations

import contextlib
import functools
import statistics
from collections.abc import Iterator, Sequence

from crowd import Crowd, Job, Setup
from figures import Figure, say
from lab.reference import LinkRate
from limited import Bench, even_objects, open_bench, pinned_share

RATE = 10_000_000  # bytes/s on the wire
# Where waits of single steps are looked at: steps of so many samples that what the machine does
# besides is a small part of one, a window of as many steps as the default's five seconds of a real
# link have, and the same fifth pinned.
STEP, STEP_CACHE, STEP_WINDOW = 32, 0.3, "10%"
STEADY = 3  # epochs after the one that fills the cache


@functools.cache
def link_rate(bench: Bench) -> LinkRate:
    return bench.rate()


@contextlib.contextmanager
def crowd(bench: Bench, share: float, window: str = "3%") -> Iterator[tuple[Crowd, dict[str, str]]]:
    with bench.daemon(share, window) as environment, Crowd(bench, environment) as jobs:
        yield jobs, environment


class Limits:
    """What a job alone can reach, for a pinned part of the data and a compute time per item."""

    def __init__(self, bench: Bench, environment: dict[str, str]) -> None:
        rate = link_rate(bench)
        self._wire = rate.wire_per_payload
        self.pinned = pinned_share(environment)
        self.missing_bytes = (1 - self.pinned.of_bytes) * bench.total
        self.missing_items = (1 - self.pinned.of_items) * len(bench.keys)
        self.link_s = self.missing_bytes / rate.payload_per_second

    def payload(self, wire: float) -> float:
        return wire / self._wire


def link_seconds(bench: Bench, share: float) -> float:
    """About what an epoch's misses take: computes are scaled by it."""
    return (1 - share) * bench.total / link_rate(bench).payload_per_second


def per_epoch(job: Job, first: int, last: int) -> tuple[float, float, float]:
    """(seconds, bytes on the wire, reads of the origin) for each of its epochs first … last - 1."""
    a, b, n = job.ends[first - 1], job.ends[last - 1], last - first
    return (b.at - a.at) / n, (b.wire - a.wire) / n, (b.reads - a.reads) / n


def together(bench: Bench) -> Iterator[Figure]:
    """E1: three jobs at full speed, with and without a cache."""
    nobody = {**bench.environment(0, "0"), "QUIVER": "off"}
    with Crowd(bench, nobody) as jobs:
        bare = jobs.run([Setup(seed=i, epochs=1) for i in range(3)])
    reference = statistics.median(job.ends[0].at - job.began for job in bare)
    for share in (0.10, 0.25, 0.50):
        case = f"{share * 100:.0f}"
        with crowd(bench, share) as (jobs, environment):
            all_jobs = jobs.run([Setup(seed=i, epochs=1 + STEADY) for i in range(3)])
            limits = Limits(bench, environment)
        ours = statistics.median(per_epoch(job, 1, 1 + STEADY)[0] for job in all_jobs)
        ideal = 3 / (1 - limits.pinned.of_bytes)
        yield Figure(
            f"share.speedup.{case}", reference / ours / ideal, reference / ours, ideal, "x", ">= 0.95"
        )
        left = share - limits.pinned.of_bytes
        yield Figure(f"share.window.{case}", left, limits.pinned.of_bytes, share, "of data", "<= 0.04")


def crowds(bench: Bench) -> Iterator[Figure]:
    """One to eight jobs at a fifth of the data; four that compute for 1.25 of the link's time."""
    slow = link_seconds(bench, 0.18) / 0.8 / len(bench.keys)
    for count, compute in ((1, 0.0), (2, 0.0), (3, 0.0), (4, 0.0), (8, 0.0), (4, slow)):
        case = f"{count}{'.compute' if compute else ''}"
        with crowd(bench, 0.2) as (jobs, environment):
            setups = [Setup(seed=i, epochs=2 + STEADY, compute=compute) for i in range(count)]
            all_jobs = jobs.run(setups)
            limits = Limits(bench, environment)
        first = min(all_jobs, key=lambda job: job.ends[-1].at)
        _, wire, reads = per_epoch(first, 1, 2 + STEADY)
        hits = 1 - reads / count / len(bench.keys)
        most = 1 - (1 - limits.pinned.of_items) / count
        yield Figure(f"share.hits.{case}", hits / most, hits, most, "of samples", ">= 0.98")
        read = limits.payload(wire)
        bound = 1.06 if compute else 1.03
        yield Figure(
            f"share.bytes.{case}", read / limits.missing_bytes, read, limits.missing_bytes, "B", f"<= {bound}"
        )


def bubble(bench: Bench) -> Iterator[Figure]:
    """Waits of the steps at both ends of an epoch: one job that only the link holds back."""
    with crowd(bench, STEP_CACHE, STEP_WINDOW) as (jobs, _):
        ends = jobs.run([Setup(seed=1, epochs=2 + STEADY, batch=STEP)])[0].ends[2:]
    worst = max(end.longest_turn for end in ends)
    step = statistics.median(end.step for end in ends)
    yield Figure("share.bubble", worst / step, worst, step, "s", "<= 2")


def speeds(bench: Bench) -> Iterator[Figure]:
    """Speeds 1 : 2 : 4, a window of 5 %, a link of 1.25 times the fastest job's misses."""
    fast = 1.25 * link_seconds(bench, 0.15) / len(bench.keys)
    with crowd(bench, 0.2, "5%") as (jobs, environment):
        setups = [
            Setup(seed=i, epochs=n, compute=fast * k) for i, (k, n) in enumerate(((1, 9), (2, 5), (4, 3)))
        ]
        all_jobs = jobs.run(setups)
        limits = Limits(bench, environment)
    _, wire, _ = per_epoch(all_jobs[0], 1, 8)
    read = limits.payload(wire)
    yield Figure(
        "share.speeds.bytes", read / limits.missing_bytes, read, limits.missing_bytes, "B", "<= 1.12"
    )
    for name, job, last in zip(("fast", "middle", "slow"), all_jobs, (8, 4, 2), strict=True):
        seconds, _, _ = per_epoch(job, 1, last)
        limit = max(limits.link_s, statistics.median(end.computed for end in job.ends[1:last]))
        yield Figure(f"share.speeds.{name}", seconds / limit, seconds, limit, "s", "<= 1.05")


def joiners(bench: Bench) -> Iterator[Figure]:
    """A second job that begins at a phase of the first one's epoch."""
    whole = link_seconds(bench, 0.18)
    for kind, compute in (("compute", 1.25 * whole / len(bench.keys)), ("link", 0.0)):
        for phase in (0.3, 0.7):
            name = f"share.joiner_{kind}.{phase}"
            alone = 1.25 * whole if compute else whole
            with crowd(bench, 0.2) as (jobs, environment):
                setups = [
                    Setup(seed=1, epochs=6, compute=compute),
                    Setup(seed=2, epochs=3, compute=compute, after_epochs=2, delay=phase * alone),
                ]
                first, joiner = jobs.run(setups)
                limits = Limits(bench, environment)
            _, wire, _ = per_epoch(first, 2, 6)
            if compute:
                ratio = limits.payload(wire) / limits.missing_bytes
                yield Figure(name, ratio, limits.payload(wire), limits.missing_bytes, "B", "<= 1.3")
                continue
            spans = [(joiner.start, joiner.ends[0]), (joiner.ends[0], joiner.ends[1])]
            for number, (bound, (a, b)) in enumerate(zip((1.3, 1.05), spans, strict=True), 1):
                read = limits.payload(b.wire - a.wire) / max(1.0, (b.at - a.at) / limits.link_s)
                ratio = read / limits.missing_bytes
                yield Figure(f"{name}.{number}", ratio, read, limits.missing_bytes, "B", f"<= {bound}")


def company(bench: Bench) -> Iterator[Figure]:
    """One of three jobs is strict, stands still for 20 s, or is killed while it leads."""
    compute = 1.25 * link_seconds(bench, 0.2) / len(bench.keys)
    setups: dict[str, Sequence[Setup]] = {
        "strict": [Setup(seed=0, epochs=6, compute=compute, batch=STEP, mode="strict")],
        "suspended": [Setup(seed=0, epochs=6, compute=compute, batch=STEP, suspend=20)],
        "killed": [Setup(seed=0, epochs=6, compute=compute * 0.9, batch=STEP, kill=True)],
    }
    for kind, special in setups.items():
        with crowd(bench, STEP_CACHE, STEP_WINDOW) as (jobs, environment):
            others = [Setup(seed=i, epochs=6, compute=compute, batch=STEP) for i in (1, 2)]
            all_jobs = jobs.run([*special, *others])
            limits = Limits(bench, environment)
        _, wire, _ = per_epoch(all_jobs[1], 1, 6)
        if kind == "strict":
            read = limits.payload(wire)
            yield Figure(
                "share.strict.bytes", read / limits.missing_bytes, read, limits.missing_bytes, "B", "<= 1.1"
            )
        ends = [end for job in all_jobs[1:] for end in job.ends[2:]]  # it happens in the third epoch
        steps = [end.step for end in ends]
        worst = max(w for end in ends for w in end.longest_waits)
        mean = statistics.mean(steps)
        yield Figure(f"share.{kind}.longest_wait", worst / mean, worst, mean, "s", "<= 2")


def figures() -> Iterator[Figure]:
    for objects, parts in ((None, (together, crowds, speeds, joiners)), (even_objects(), (bubble, company))):
        with open_bench(RATE, objects) as bench:
            for part in parts:
                say(f"  {part.__doc__}")
                yield from part(bench)
