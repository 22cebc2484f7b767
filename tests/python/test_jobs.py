"""Loaders as the daemon sees them: which of them are one job, and when a job is over."""

from __future__ import annotations

import gc
import json
import multiprocessing
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import quiver_cache.torch as qt
import torch.utils.data
from conftest import wait_until
from helpers import flat, run_rank
from quiver_cache._programs import find_program
from quiver_cache.errors import InvalidError
from quiver_cache.torch._ranks import Seat

ONE_OF_TWO: dict[str, Any] = {"seed": 1, "rank": 0, "world_size": 2}


def jobs() -> list[dict[str, Any]]:
    """What the daemon says of all jobs: a line per rank."""
    program = [find_program("quiver"), "status", "--json"]
    said = json.loads(subprocess.run(program, check=True, stdout=subprocess.PIPE).stdout)
    return [job for dataset in said["datasets"] for job in dataset["jobs"]]


def test_loaders_one_after_another_all_get_boards(make_numbers: Callable[[int], qt.Dataset]) -> None:
    data = make_numbers(4)
    for explicit in (False, True):
        for _ in range(70):  # a daemon serves 64 jobs over a dataset
            keywords = ONE_OF_TWO if explicit else {}
            loader = qt.DataLoader(data, 2, True, **keywords)
            list(loader)
        assert len(jobs()) == 1
        del loader
        gc.collect()
        wait_until(lambda: jobs() == [])


def test_loaders_with_workers_leave_too(make_numbers: Callable[[int], qt.Dataset]) -> None:
    data = make_numbers(20)
    loader = qt.DataLoader(data, 2, True, num_workers=2, persistent_workers=True)
    batches = iter(loader)
    next(batches)
    assert len(jobs()) == 1
    del loader, batches
    gc.collect()
    wait_until(lambda: jobs() == [])


@pytest.mark.parametrize("workers", [0, 2])
def test_two_loaders_alike_are_two_jobs(make_numbers: Callable[[int], qt.Dataset], workers: int) -> None:
    data = make_numbers(40)
    loaders = [qt.DataLoader(data, 4, True, num_workers=workers, **ONE_OF_TWO) for _ in range(2)]
    for _ in range(2):
        pairs = list(zip(*loaders, strict=True))
        assert len(pairs) == 5
        for side in (0, 1):
            got = flat(pair[side].tolist() for pair in pairs)
            assert len(set(got)) == len(got) == 20
    assert [(job["rank"], job["world"]) for job in jobs()] == [(0, 2)] * 2
    wait_until(lambda: sorted(job["leader"] for job in jobs()) == [False, True])


def test_who_stands_still_leads_nobody(make_numbers: Callable[[int], qt.Dataset]) -> None:
    data = make_numbers(800)
    done, slow = (qt.DataLoader(data, 2, True, seed=seed) for seed in (1, 2))
    assert len(list(done)) == 400
    batches = iter(slow)
    next(batches)

    def leaders() -> list[bool]:
        return [job["leader"] for job in sorted(jobs(), key=lambda job: job["job"])]

    assert leaders() == [True, False]
    wait_until(lambda: next(batches) is not None and leaders() == [False, True])


def test_training_and_validation(make_numbers: Callable[[int], qt.Dataset]) -> None:
    data = make_numbers(60)
    parts = torch.utils.data.random_split(data, [40, 20], generator=torch.Generator().manual_seed(1))
    train, validation = (
        [qt.DataLoader(part, 5, shuffle, rank=r, world_size=2, seed=1) for r in range(2)]
        for part, shuffle in zip(parts, (True, False), strict=True)
    )
    for _ in range(2):
        seen = []
        for ranks in zip(*train, strict=True):
            seen += flat(batch.tolist() for batch in ranks)
        assert sorted(seen) == sorted(parts[0].indices)
        assert sorted(flat(b.tolist() for r in validation for b in r)) == sorted(parts[1].indices)
    assert len(jobs()) == 4


def test_ranks_of_two_processes_are_one_job(make_numbers: Callable[[int], qt.Dataset]) -> None:
    data = make_numbers(20)
    spawn = multiprocessing.get_context("spawn")
    begun, go_on = spawn.Queue(), spawn.Event()
    others = [spawn.Process(target=run_rank, args=(r, data.source.url, begun, go_on)) for r in range(2)]
    for process in others:
        process.start()
    assert sorted(begun.get(timeout=60) for _ in others) == [0, 1]
    wait_until(lambda: [(job["rank"], job["leader"]) for job in jobs()] == [(0, True), (1, True)])
    refused = qt.DataLoader(data, 2, True, **ONE_OF_TWO)
    with pytest.raises(InvalidError, match="rank 0 of this job is there already, in another process"):
        next(iter(refused))
    go_on.set()
    for process in others:
        process.join()
        assert process.exitcode == 0
    assert len(list(refused)) == 5


def test_seats_are_numbered_alike_on_all_ranks() -> None:
    first, second, other_rank = Seat("a", 0), Seat("a", 0), Seat("a", 1)
    assert [first.number, second.number, other_rank.number] == [0, 1, 0]
    assert first.job == other_rank.job != second.job
    assert Seat("b", 0).job != first.job
    del first
    again = Seat("a", 0)
    assert (again.number, again.job) == (0, other_rank.job)
