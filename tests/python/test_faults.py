"""Killing: the job, a worker, the daemon. No wrong byte, no lost or repeated sample, no hang."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import quiver_cache.torch as qt
from conftest import daemons_of, wait_until
from helpers import as_list, digest, digests, flat

Upload = Callable[[str, dict[str, bytes]], str]
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def blobs(count: int, size: int = 20_000) -> dict[str, bytes]:
    noise = random.Random(count)
    return {f"{i:04d}.bin": noise.randbytes(noise.randrange(size)) for i in range(count)}


def start_job(url: str, out: Path, *arguments: str) -> subprocess.Popen[bytes]:
    program = Path(__file__).with_name("job.py")
    path = os.pathsep.join([*sys.path, str(program.parent)])
    return subprocess.Popen(
        [sys.executable, str(program), url, str(out), *arguments],
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )


def delivered(out: Path) -> dict[int, Counter[str]]:
    """What the loop was given, by epoch. A line that only the state has counts."""
    lines = out.with_suffix(".log").read_text().splitlines() if out.with_suffix(".log").exists() else []
    state = out.with_suffix(".state")
    if state.exists() and (last := json.loads(state.read_text())["line"]) not in lines[-1:]:
        lines.append(last)
    epochs: dict[int, Counter[str]] = {}
    for line in lines:
        entry = json.loads(line)
        epochs.setdefault(entry["epoch"], Counter()).update(entry["batch"])
    return epochs


def repair(out: Path) -> None:
    """After a kill: the log gets the line that only the state has."""
    state, log = out.with_suffix(".state"), out.with_suffix(".log")
    last = json.loads(state.read_text())["line"]
    if not log.exists() or log.read_text().splitlines()[-1:] != [last]:
        with log.open("a") as file:
            file.write(last + "\n")


@pytest.mark.parametrize("workers", ["0", "2"])
def test_job_killed_and_resumed(place: Path, upload: Upload, tmp_path: Path, workers: str) -> None:
    files = blobs(80)
    url, out = upload("blobs80", files), tmp_path / "run"
    arguments = ("--epochs", "2", "--workers", workers)
    for after in (3, 9):
        job = start_job(url, out, *arguments, "--step-s", "0.05")
        log = out.with_suffix(".log")

        def steps(log: Path = log) -> int:
            return len(log.read_text().splitlines()) if log.exists() else 0

        goal = steps() + after
        wait_until(lambda goal=goal: steps() >= goal, 60)  # type: ignore[misc]
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        repair(out)
    assert start_job(url, out, *arguments).wait(timeout=60) == 0
    assert delivered(out) == {epoch: digests(files, ".bin") for epoch in range(2)}


@pytest.mark.parametrize("workers", [0, 2])
def test_daemon_killed_every_second(place: Path, upload: Upload, workers: int) -> None:
    files = blobs(120)
    loader = qt.DataLoader(
        qt.Dataset(upload("blobs120", files), digest),
        4,
        True,
        num_workers=workers,
        collate_fn=as_list,
    )
    over = threading.Event()
    killed = []

    def kill() -> None:
        while not over.wait(1):
            for pid in daemons_of(place / "cache"):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    killer = threading.Thread(target=kill)
    killer.start()
    longest = 0.0
    try:
        for _ in range(2):
            got: Counter[str] = Counter()
            before = time.monotonic()
            for batch in loader:
                longest = max(longest, time.monotonic() - before)
                got.update(batch)
                time.sleep(0.1)
                before = time.monotonic()
            assert got == digests(files, ".bin")
    finally:
        over.set()
        killer.join()
    assert len(killed) >= 3
    assert longest < 10


def test_worker_killed(place: Path, upload: Upload) -> None:
    files = blobs(60)
    data = qt.Dataset(upload("blobs60", files), digest)
    loader = qt.DataLoader(data, 4, True, num_workers=2, collate_fn=as_list)
    got: list[str] = []
    batches = iter(loader)
    for _ in range(3):
        got += next(batches)
    os.kill(batches._workers[0].pid, signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(RuntimeError, match="worker"):
        for batch in batches:
            got += batch
    assert time.monotonic() - began < 10
    resumed = qt.DataLoader(data, 4, True, collate_fn=as_list)
    resumed.load_state_dict(loader.state_dict())
    assert Counter(got + flat(resumed)) == digests(files, ".bin")


def test_two_jobs_at_once(place: Path, upload: Upload, tmp_path: Path) -> None:
    files = blobs(100)
    url = upload("blobs100", files)
    qt.Dataset(url)
    outs = [tmp_path / "one", tmp_path / "two"]
    jobs = [start_job(url, out, "--epochs", "2", "--workers", "1") for out in outs]
    assert [job.wait(timeout=90) for job in jobs] == [0, 0]
    for out in outs:
        assert delivered(out) == {epoch: digests(files, ".bin") for epoch in range(2)}
    assert len(daemons_of(place / "cache")) <= 1


def test_a_break_does_not_wait_for_the_link(place: Path, upload: Upload) -> None:
    data = qt.Dataset(upload("blobs40", blobs(40, 60_000)), digest, rate_limit="100kB/s", disk_limit="1MB")
    loader = qt.DataLoader(data, 4, True, num_workers=2, collate_fn=as_list)
    for _ in loader:
        began = time.monotonic()
        break
    assert time.monotonic() - began < 3


def test_a_job_that_ends_leaves_no_process(place: Path, upload: Upload, tmp_path: Path) -> None:
    url = upload("blobs20", blobs(20))
    job = start_job(url, tmp_path / "run", "--workers", "2")
    assert job.wait(timeout=60) == 0

    def group() -> list[str]:
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                if int(fields[2]) == job.pid:
                    found.append(entry.name)
        return found

    wait_until(lambda: not group(), 5)
