"""What jobs say of themselves: how fast they could be, and what `quiver top` makes of it."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import quiver_cache.torch as qt
from conftest import undisturbed, wait_until
from quiver_cache._programs import find_program

ITEMS, BATCH = 1200, 20


def slow_number(buffer: Any) -> int:
    time.sleep(0.0005)
    return int(bytes(buffer))


def slower_number(buffer: Any) -> int:
    time.sleep(0.0015)
    return int(bytes(buffer))


def quiver(*arguments: str) -> str:
    command = [find_program("quiver"), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


@pytest.fixture
def folder(place: Path) -> str:
    """A dataset with its manifest, of which nothing is cached. No daemon runs."""
    root = place / "padded"
    root.mkdir()
    for i in range(ITEMS):
        (root / f"{i:05d}.txt").write_bytes(str(i).encode().ljust(4096))
    quiver("digest", "--layout", "files", str(root))
    quiver("evict", "--all")
    quiver("stop")
    return str(root)


def status() -> Any:
    return json.loads(quiver("status", "--json"))


def jobs() -> list[dict[str, Any]]:
    return [job for dataset in status()["datasets"] for job in dataset["jobs"]]


def run_epoch(loader: Any, compute: float) -> float:
    """Samples a second."""
    began = None
    for _ in loader:
        began = began or time.perf_counter()
        time.sleep(compute)
    return (ITEMS - BATCH) / (time.perf_counter() - began)


# A job whose steps wait for the link knows how fast it would be without: as fast as it is when all
# is cached.
@pytest.mark.parametrize(
    ("workers", "compute", "decode"),
    [(0, 0.02, slow_number), (1, 0.02, slow_number), (4, 0.02, slow_number), (1, 0.005, slower_number)],
    ids=["0", "1", "4", "1-decode"],
)
def test_the_pace_does_not_depend_on_the_link(
    folder: str, monkeypatch: pytest.MonkeyPatch, workers: int, compute: float, decode: Any
) -> None:
    monkeypatch.setenv("QUIVER_RATE_LIMIT", "1200kB/s")

    def trial() -> None:
        quiver("evict", "--all")
        loader = qt.DataLoader(qt.Dataset(folder, decode), BATCH, True, num_workers=workers, seed=1)
        bound_by_the_link = run_epoch(loader, compute)
        assert loader.report()["waited_link_s"] > 0.5
        time.sleep(1.2)
        told = jobs()[-1]["pace"]
        assert told["steps"] >= 12
        wait_until(lambda: status()["datasets"][0]["items_here"] == ITEMS)
        real = run_epoch(loader, compute)
        assert real > 1.5 * bound_by_the_link
        assert told["items_per_s"] == pytest.approx(real, rel=0.1)
        time.sleep(1.2)
        assert jobs()[-1]["pace"]["items_per_s"] == pytest.approx(real, rel=0.1)

    undisturbed(trial)


def test_without_compute_the_pace_is_large(folder: str) -> None:
    loader = qt.DataLoader(qt.Dataset(folder), BATCH, True, num_workers=0, seed=1)
    for _ in range(2):
        run_epoch(loader, 0)
    time.sleep(1.2)
    assert 10_000 < jobs()[0]["pace"]["items_per_s"] < 1e9


def test_counters_are_of_what_was_delivered(folder: str) -> None:
    loader = qt.DataLoader(qt.Dataset(folder), BATCH, True, num_workers=1, seed=1)
    for _ in range(2):
        run_epoch(loader, 0)
    wait_until(lambda: jobs()[0]["served"]["items"] == 2 * ITEMS)
    job = jobs()[0]
    served = job["served"]
    assert served["bytes"] == 2 * ITEMS * 4096
    assert served["steps"] == 2 * ITEMS // BATCH
    kinds = [served[kind] for kind in ("pinned", "shared", "own", "direct")]
    assert sum(kinds) == 2 * ITEMS
    assert served["pinned"] == ITEMS, "in the second epoch all was there"
    assert served["shared"] == 0
    assert (job["taken"], job["to_take"]) == (ITEMS, ITEMS)


def test_a_second_job_shares_what_the_first_one_fetches(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUIVER_RATE_LIMIT", "2MB/s")
    loaders = [qt.DataLoader(qt.Dataset(folder), BATCH, True, seed=n, num_workers=0) for n in (1, 2)]
    for _ in zip(*loaders, strict=True):
        time.sleep(0.005)
    wait_until(lambda: all(job["served"]["items"] == ITEMS for job in jobs()))
    served = [job["served"] for job in jobs()]
    assert sum(s["shared"] for s in served) > 0.8 * ITEMS, "each item is one's own and the other's share"
    assert sum(s["own"] for s in served) < 1.2 * ITEMS
    dataset = status()["datasets"][0]
    assert dataset["origin_bytes"] - sum(dataset["read_again"].values()) == ITEMS * 4096


@pytest.fixture
def running(folder: str) -> Iterator[Any]:
    """A job in the midst of an epoch."""
    loader = qt.DataLoader(qt.Dataset(folder), BATCH, True, num_workers=0, seed=1)
    batches = iter(loader)
    for _ in range(30):
        next(batches)
        time.sleep(0.01)
    wait_until(lambda: jobs()[0]["pace"]["steps"] > 0)
    yield batches


def test_top_once_is_a_plain_table(running: Any) -> None:
    shown = quiver("top")  # no terminal
    assert "\x1b" not in shown
    lines = shown.splitlines()
    assert re.match(r".* \(pid \d+\): .* on disk, .* of memory, .*/s from origins$", lines[0])
    heading = next(line for line in lines if line.startswith("JOB"))
    assert heading.split() == [
        "JOB", "DATASET", "EPOCH", "DONE", "SAMPLES/S", "COULD", "PINNED", "SHARED", "OWN", "DIRECT", "WAITS",
    ]  # fmt: skip
    row = lines[lines.index(heading) + 1]
    assert " * " in row, "it leads"
    assert re.search(r" (5\d) %", row), "half of the epoch is taken"
    assert shown.splitlines()[-1] != ""
    assert quiver("top", "--once") != ""


def test_top_as_json_is_one_object_a_second(running: Any) -> None:
    once = json.loads(quiver("top", "--json", "--once"))
    assert once["jobs"][0]["to_take"] == ITEMS
    assert once["jobs"][0]["why"]
    command = [find_program("quiver"), "top", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as top:
        assert top.stdout is not None
        began = time.monotonic()
        seen = [json.loads(top.stdout.readline()) for _ in range(3)]
        assert 1.5 < time.monotonic() - began < 6
        top.terminate()
    assert top.returncode == 0
    assert {object_["jobs"][0]["dataset"] for object_ in seen} == {once["datasets"][0]["id"]}


@pytest.fixture
def half(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of half of the dataset."""
    monkeypatch.setenv("QUIVER_DISK_LIMIT", str(ITEMS * 4096 // 2))


def test_top_says_what_one_more_strict_job_costs(half: None, running: Any, folder: str) -> None:
    strict = qt.DataLoader(qt.Dataset(folder), BATCH, True, mode="strict", num_workers=0, seed=2)
    one = next(iter(strict))
    assert len(one) == BATCH

    def said() -> bool:
        next(running)
        rows = json.loads(quiver("top", "--json", "--once"))["jobs"]
        costs = r"up to [\d.]+ MB an epoch are read for it alone"
        return any(re.search(costs, " ".join(row["why"])) for row in rows)

    wait_until(said)


def read_for(fd: int, seconds: float) -> bytes:
    read, until = b"", time.monotonic() + seconds
    while time.monotonic() < until:
        if select.select([fd], [], [], 0.1)[0]:
            try:
                read += os.read(fd, 65536)
            except OSError:  # the other end has closed
                break
    return read


def test_top_on_a_terminal_is_live_and_leaves_it_as_it_was(running: Any) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen([find_program("quiver"), "top"], stdin=theirs, stdout=theirs, stderr=theirs) as top:
        os.close(theirs)
        shown = read_for(ours, 2.5)
        top.send_signal(2)
        shown += read_for(ours, 2)
    os.close(ours)
    assert top.returncode == 0
    text = shown.decode()
    assert text.startswith("\x1b[?1049h\x1b[?25l")
    assert text.rstrip().endswith("\x1b[?25h\x1b[?1049l")
    assert text.count("\x1b[H") >= 2
    frames = re.sub(r"\x1b\[[?0-9]*[a-zA-Z]", "", text.replace("\x1b[H", "\n"))
    lines = frames.splitlines()
    assert any(line.startswith("JOB") for line in lines)
    assert max(map(len, lines)) <= 80


def test_a_jobs_name_is_no_command_to_the_terminal(folder: str) -> None:
    program = (
        "import sys, time, quiver_cache.torch as qt\n"
        f"loader = qt.DataLoader(qt.Dataset({folder!r}), {BATCH}, True, seed=1)\n"
        "batches = iter(loader); next(batches)\n"
        "print('ready', flush=True); time.sleep(60)\n"
    )
    evil = "\x1b]0;x\x07\x9b2J\u009b2J\x7fjob"
    script = Path(folder).parent / evil
    script.write_text(program)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE) as job:
        assert job.stdout is not None
        job.stdout.readline()
        shown = quiver("top")
        job.kill()
    assert re.search(r"job", shown)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\x80-\x9f]", shown)


def test_without_a_daemon_top_says_so(place: Path) -> None:
    done = subprocess.run([find_program("quiver"), "top"], capture_output=True, text=True, check=False)
    assert done.returncode == 13
    assert "no daemon is running" in done.stderr
