"""Four datasets behind one link, read at four speeds: what each job gets of its own speed.

The datasets, speeds and the link are those of the model, scaled: sizes and caches by SIZE, rates by
RATE. The reference is the best division of the cache less the windows, found by trying all.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from figures import Figure, say
from lab import reference
from lab.world import World, open_world
from local import QUIVER

SIZE, RATE = 1 / 16, 1 / 3
ITEM, BATCH = 12_000, 4
WINDOW = "2%"
LINK = int(20e6 * RATE)  # bytes/s on the wire
CACHES = {"170": 170e6 * SIZE, "425": 425e6 * SIZE, "850": 850e6 * SIZE}
DECIDE_S, MOST_SETTLE_S, MEASURE_S = 10.0, 80.0, 20.0


@dataclass(frozen=True)
class Data:
    name: str
    bytes: int
    speed: float  # bytes/s that its job reads when it never waits

    @property
    def keys(self) -> list[str]:
        return [f"{self.name}/{i:06}" for i in range(self.bytes // ITEM)]


ALL = tuple(
    Data(name, int(megabytes * 1e6 * SIZE), speed * 1e6 * RATE)
    for name, megabytes, speed in (("a", 400, 40), ("b", 800, 20), ("c", 300, 5), ("d", 200, 1))
)

# Reads raw bytes at `speed`, for ever; prints the bytes so far and the time after each step. What the
# loop itself costs, up to 0.4 ms, is part of a step's time. SIGUSR1 halves the speed.
JOB = """
import signal, sys, time
import quiver_cache.torch as qt
url, speed, batch, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
def halve(*_):
    global speed
    speed /= 2
signal.signal(signal.SIGUSR1, halve)
data = qt.Dataset(url, layout="files")
loader = qt.DataLoader(data, batch_size=batch, shuffle=True, seed=seed, collate_fn=list)
total, due = 0, 0.0
while True:
    for samples in loader:
        size = sum(len(sample) for sample in samples)
        step = size / speed
        due = max(due, time.monotonic() - 0.0004) + step
        time.sleep(max(0.0, due - time.monotonic()))
        total += size
        print(time.monotonic(), total, flush=True)
"""


@dataclass
class Job:
    data: Data
    process: subprocess.Popen[str]
    steps: list[tuple[float, int]] = field(default_factory=list)

    def follow(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            at, total = line.split()
            self.steps.append((float(at), int(total)))

    def rate(self, since: float, until: float) -> float:
        """Bytes/s between two times, by the steps nearest to them."""
        steps = [step for step in self.steps if since <= step[0] <= until]
        if len(steps) < 2:
            return 0.0
        return (steps[-1][1] - steps[0][1]) / (steps[-1][0] - steps[0][0])

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@dataclass
class Mixed:
    """Jobs over a daemon of its own."""

    world: World
    environment: dict[str, str]
    ids: dict[str, str]  # the public id of each dataset, by its name
    jobs: dict[str, Job] = field(default_factory=dict)

    def start(self, data: Data) -> None:
        url = f"{self.world.bucket.url}/{data.name}"
        command = [sys.executable, "-c", JOB, url, str(data.speed), str(BATCH), str(ord(data.name))]
        process = subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        job = self.jobs[data.name] = Job(data, process)
        threading.Thread(target=job.follow, daemon=True).start()

    def datasets(self) -> dict[str, dict]:
        done = subprocess.run(
            [QUIVER, "status", "--json"], env=self.environment, text=True, capture_output=True, check=False
        )
        found = {d["id"]: d for d in json.loads(done.stdout).get("datasets", [])}
        return {name: found[i] for name, i in self.ids.items() if i in found}

    def wait_until(self, what: Callable[[dict[str, dict]], bool], most: float) -> float:
        """Seconds until the status says so."""
        started = time.monotonic()
        while not what(self.datasets()):
            if time.monotonic() - started > most:
                return most
            time.sleep(0.1)
        return time.monotonic() - started

    def settle(self) -> None:
        """Until rates are known, the division is decided, and what is to stay has come."""
        time.sleep(DECIDE_S)
        self.wait_until(lambda now: all(filled(dataset) for dataset in now.values()), MOST_SETTLE_S)
        time.sleep(2)

    def speed(self, seconds: float) -> float:
        """The mean, over the jobs, of their speed as a part of their own, in the next seconds."""
        since = time.monotonic()
        time.sleep(seconds)
        until = time.monotonic()
        parts = {n: job.rate(since, until) / job.data.speed for n, job in self.jobs.items()}
        say("    " + ", ".join(f"{name} {part:.3f}" for name, part in parts.items()))
        return sum(parts.values()) / len(parts)


def filled(dataset: dict) -> bool:
    return bool(dataset["pinned_bytes_here"] >= 0.98 * dataset["pinned_bytes"])


class Model:
    """rate = min(own, b/(1 - c/d)), the link shared max-min; written apart from the daemon's."""

    def __init__(self, payload_per_second: float) -> None:
        self.link = payload_per_second

    def level(self, asked: list[float]) -> float:
        if sum(asked) <= self.link:
            return float("inf")
        left, last = self.link, len(asked)
        for one in sorted(asked):
            if one * last > left:
                return left / last
            left -= one
            last -= 1
        return float("inf")

    def speed(self, pinned: tuple[float, ...]) -> float:
        missing = [max(0.0, 1 - c / data.bytes) for c, data in zip(pinned, ALL, strict=True)]
        level = self.level([m * data.speed for m, data in zip(missing, ALL, strict=True)])
        parts = (
            1.0 if m == 0 else min(1.0, level / m / data.speed) for m, data in zip(missing, ALL, strict=True)
        )
        return sum(parts) / len(ALL)

    def best(self, pinned: float, steps: int = 60) -> float:
        """Of all divisions of so many bytes, in so many steps."""
        step = pinned / steps
        most = [min(steps, -(-data.bytes // step)) for data in ALL]
        ways = (range(int(m) + 1) for m in most[1:])
        best = 0.0
        for rest in itertools.product(*ways):
            if sum(rest) > steps:
                continue
            parts = (steps - sum(rest), *rest)
            divided = tuple(min(k * step, data.bytes) for k, data in zip(parts, ALL, strict=True))
            best = max(best, self.speed(divided))
        return best


@contextlib.contextmanager
def mixed(world: World, ids: dict[str, str], cache: float, shares: str = "") -> Iterator[Mixed]:
    environment = world.environment("cache", QUIVER_DISK_LIMIT=str(int(cache)), QUIVER_WINDOW=WINDOW)
    if shares:
        environment["QUIVER_SHARES"] = shares
    run = Mixed(world, environment, ids)
    try:
        yield run
    finally:
        for job in run.jobs.values():
            job.stop()
        subprocess.run([QUIVER, "stop"], env=environment, capture_output=True, check=False)
        subprocess.run(["rm", "-rf", environment["QUIVER_CACHE_DIR"]], check=True)


def digest(world: World, datasets: Iterable[Data] = ALL) -> dict[str, str]:
    """The manifest of each dataset, and its public id."""
    ids = {}
    for data in datasets:
        url = f"{world.bucket.url}/{data.name}"
        with mixed(world, {}, 64e6) as run:
            command = [QUIVER, "digest", url, "--layout", "files", "--json"]
            done = subprocess.run(command, env=run.environment, check=True, text=True, stdout=subprocess.PIPE)
            ids[data.name] = json.loads(done.stdout)["id"]
    return ids


def fixed_shares(ids: dict[str, str], cache: float, parts: dict[str, float]) -> str:
    """Hard limits that leave the daemon no choice, whose sum is the cache."""
    whole = sum(parts.values())
    return ", ".join(f"{ids[n][:16]} limit={int(cache * part / whole)}" for n, part in parts.items())


def divisions(world: World, ids: dict[str, str], model: Model) -> Iterator[Figure]:
    """Speeds at three sizes of the cache; at the middle one also with simpler rules."""
    for case, cache in CACHES.items():
        with mixed(world, ids, cache) as run:
            for data in ALL:
                run.start(data)
            run.settle()
            ours = run.speed(MEASURE_S)
            windows = sum(dataset["window"] for dataset in run.datasets().values())
        best = model.best(cache - windows)
        yield Figure(f"mixed.speed.{case}", ours / best, ours, best, "of own speed", ">= 0.97")
        if case != "425":
            continue
        rules = {"equal": {d.name: 1.0 for d in ALL}, "proportional": {d.name: d.bytes for d in ALL}}
        for rule, parts in rules.items():
            with mixed(world, ids, cache, fixed_shares(ids, cache, parts)) as run:
                for data in ALL:
                    run.start(data)
                run.settle()
                theirs = run.speed(MEASURE_S)
            yield Figure(f"mixed.over_{rule}.{case}", ours / theirs, ours, theirs, "of own speed", ">= 1")


def changes(world: World, ids: dict[str, str], model: Model) -> Iterator[Figure]:
    """The fastest job stops and starts again; another one's speed halves."""
    a, b = ALL[0], ALL[1]
    with mixed(world, ids, CACHES["425"]) as run:
        for data in ALL:
            run.start(data)
        run.settle()
        before = run.datasets()["b"]["share"]
        run.jobs.pop("a").stop()
        decided = run.wait_until(lambda now: now["b"]["share"] > 2 * before, 30)
        yield Figure("mixed.a_stops.decision", decided / 10, decided, 10, "s", "<= 1")
        # The others ask for all that their compute takes; what they leave is b's.
        now = run.datasets()["b"]
        moving = now["pinned_bytes"] - now["pinned_bytes_here"]
        link = min(b.speed, model.link - sum(d.speed for d in ALL[2:]))
        took = run.wait_until(lambda now: filled(now["b"]), 120)
        least = moving / link
        yield Figure("mixed.a_stops.contents", took / least, took, least, "s", "<= 1.2")

        run.start(a)
        started = time.monotonic()
        while not run.jobs["a"].steps and time.monotonic() - started < 30:
            time.sleep(0.05)
        decided = run.wait_until(lambda now: now["a"]["share"] >= 0.8 * a.bytes, 60)
        yield Figure("mixed.a_starts.decision", decided / 10, decided, 10, "s", "<= 1")
        now = run.datasets()["a"]
        moving = now["pinned_bytes"] - now["pinned_bytes_here"]
        level = model.level([a.speed, b.speed, ALL[2].speed, ALL[3].speed])
        took = run.wait_until(lambda now: filled(now["a"]), 120)
        least = moving / level
        yield Figure("mixed.a_starts.contents", took / least, took, least, "s", "<= 1.2")

        # With b at half its speed the best division is the same: it is the rate that is to be seen.
        run.jobs["b"].process.send_signal(signal.SIGUSR1)
        half = 1.15 * b.speed / 2 / ITEM
        seen = run.wait_until(lambda now: 0 < now["b"]["jobs"][0]["pace"]["items_per_s"] < half, 60)
        yield Figure("mixed.b_halves.decision", seen / 10, seen, 10, "s", "<= 1")


def figures() -> Iterator[Figure]:
    if os.geteuid() != 0:
        sys.exit("bench: run as root: the wire's bytes are counted in a network namespace")
    with open_world("bench") as world:
        source = random.Random(1)
        world.bucket.put_all((key, source.randbytes(ITEM)) for data in ALL for key in data.keys)
        ids = digest(world)
        world.link.limit(LINK)
        keys = ALL[1].keys
        model = Model(reference.measure(world.link, world.bucket, keys).payload_per_second)
        for part in (divisions, changes):
            say(f"  {part.__doc__}")
            yield from part(world, ids, model)
