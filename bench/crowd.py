"""Several training processes over one cache, and what happened when."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from limited import Bench
from local import QUIVER

BATCH = 16  # samples a step

# Says "ready" when it has its loader, begins at a line on its standard input, and then prints one
# JSON object an epoch.
JOB = """
import heapq, json, sys, time
import quiver_cache.torch as qt
url, epochs, compute, batch, seed, mode = sys.argv[1:]
compute, last = float(compute), int(epochs) - 1
data = qt.Dataset(url, layout="files")
loader = qt.DataLoader(data, batch_size=int(batch), shuffle=True, seed=int(seed), mode=mode, collate_fn=list)
print("{}", flush=True)
sys.stdin.readline()
for epoch in range(int(epochs)):
    steps, waits, computed = 0, [], 0.0
    asked = began = time.monotonic()
    for samples in loader:
        came = time.monotonic()
        waits.append(came - asked)
        steps += 1
        if compute:
            time.sleep(compute * len(samples))
            computed += time.monotonic() - came
        asked = time.monotonic()
    print(json.dumps({"samples": loader.report()["samples"], "computed": computed,
                      "step": (asked - began) / steps, "longest_waits": heapq.nlargest(3, waits),
                      "longest_turn": max(waits[:8] + waits[-8:])}), flush=True)
"""


@dataclass(frozen=True)
class Setup:
    seed: int
    epochs: int
    compute: float = 0.0  # seconds an item
    batch: int = BATCH
    mode: str = "substitute"
    after_epochs: int = 0  # begins when the first job has done so many, and
    delay: float = 0.0  # so many seconds later
    suspend: float = 0.0  # stands still for so many seconds in its third epoch
    kill: bool = False  # ends in its third epoch


@dataclass(frozen=True)
class Mark:
    """A moment: the end of an epoch, or the start."""

    at: float
    wire: int  # bytes on the wire until then
    reads: int  # of the origin
    computed: float = 0.0  # seconds of the epoch
    step: float = 0.0  # seconds of a step on average
    longest_waits: tuple[float, ...] = ()
    longest_turn: float = 0.0  # wait of one of its first or last eight steps


@dataclass
class Job:
    setup: Setup
    process: subprocess.Popen[str]
    start: Mark
    ends: list[Mark] = field(default_factory=list)

    @property
    def began(self) -> float:
        return self.start.at


class Crowd:
    def __init__(self, bench: Bench, environment: dict[str, str]) -> None:
        self._bench = bench
        self._environment = environment
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def run(self, setups: list[Setup]) -> list[Job]:
        """Runs them all to their end. Each delivers each sample once in every epoch, or it raises."""
        processes = [self._open(setup) for setup in setups]
        nothing = Mark(0, 0, 0)
        jobs = [Job(s, p, nothing) for s, p in zip(setups, processes, strict=True)]
        for job in jobs:
            self._next(job)  # it is ready
        threads = [threading.Thread(target=self._follow, args=(job, jobs[0])) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for job in jobs:
            if not job.setup.kill and len(job.ends) != job.setup.epochs:
                raise RuntimeError(f"a job ended after {len(job.ends)} of {job.setup.epochs} epochs")
        return jobs

    def _open(self, setup: Setup) -> subprocess.Popen[str]:
        url = f"{self._bench.world.bucket.url}/data"
        arguments = (url, setup.epochs, setup.compute, setup.batch, setup.seed, setup.mode)
        process = subprocess.Popen(
            [sys.executable, "-c", JOB, *map(str, arguments)],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._processes.append(process)
        return process

    @staticmethod
    def _next(job: Job) -> dict[str, Any] | None:
        assert job.process.stdout is not None
        line = job.process.stdout.readline()
        return json.loads(line) if line else None

    def _follow(self, job: Job, first: Job) -> None:
        while len(first.ends) < job.setup.after_epochs:
            time.sleep(0.01)
        time.sleep(job.setup.delay)
        job.start = self._mark({})
        assert job.process.stdin is not None
        job.process.stdin.write("go\n")
        job.process.stdin.flush()
        while (line := self._next(job)) is not None:
            samples = line.pop("samples")
            if samples != len(self._bench.keys):
                raise RuntimeError(f"{samples} samples in an epoch of {len(self._bench.keys)}")
            job.ends.append(self._mark(line))
            if len(job.ends) == 2 and (job.setup.suspend or job.setup.kill):
                time.sleep(1)
                os.kill(job.process.pid, signal.SIGKILL if job.setup.kill else signal.SIGSTOP)
                time.sleep(job.setup.suspend)
                job.process.send_signal(signal.SIGCONT)
        job.process.wait()

    def _mark(self, line: dict[str, Any]) -> Mark:
        counter = Path(f"/sys/class/net/{self._bench.world.link.device}/statistics/rx_bytes")
        at, wire = time.monotonic(), int(counter.read_text())
        reads = 0
        if self._environment.get("QUIVER") != "off":
            done = subprocess.run(
                [QUIVER, "status", "--json"],
                env=self._environment,
                text=True,
                stdout=subprocess.PIPE,
                check=False,
            )
            datasets = json.loads(done.stdout).get("datasets")  # none before the first read
            reads = datasets[0].get("origin_reads", 0) if datasets else 0
        longest = tuple(line.get("longest_waits", ()))
        times = [line.get(name, 0.0) for name in ("computed", "step")]
        return Mark(at, wire, reads, *times, longest, line.get("longest_turn", 0.0))
