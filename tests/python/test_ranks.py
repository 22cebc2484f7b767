"""Several ranks: who is who, what they agree on, and that together they see everything once."""

from __future__ import annotations

import itertools
import multiprocessing
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import quiver_cache.torch as qt
import torch.distributed as dist
from helpers import flat, numbers
from quiver_cache.errors import InvalidError
from quiver_cache.torch import _ranks
from quiver_cache.torch._ranks import Place, find_place

SLURM = {"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}
TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4"}


def test_where_the_rank_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    _ranks._told.clear()
    assert find_place(None, None, {}) == Place(0, 1)
    assert find_place(None, None, TORCHRUN) == Place(3, 4)
    assert find_place(None, None, SLURM) == Place(0, 4)
    assert find_place(None, None, {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}) == (
        1,
        2,
    )
    assert find_place(None, None, {"RANK": "1"}) == Place(0, 1)
    assert not capsys.readouterr().err
    assert find_place(None, None, {**SLURM, **TORCHRUN}) == Place(3, 4)
    for _ in range(3):
        assert find_place(1, 2, TORCHRUN) == Place(1, 2)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "SLURM_PROCID says rank 0 of 4, which is ignored" in lines[0]
    assert "this is rank 1 of 2 by the arguments; RANK says rank 3 of 4" in lines[1]
    with pytest.raises(InvalidError, match="both or neither"):
        find_place(1, None, {})
    with pytest.raises(InvalidError, match="count from 0"):
        find_place(2, 2, {})


def test_ranks_need_a_common_seed(make_numbers: Callable[[int], qt.Dataset]) -> None:
    loader = qt.DataLoader(make_numbers(10), 2, True, rank=0, world_size=2)
    with pytest.raises(InvalidError, match="pass seed="):
        next(iter(loader))


def shares(data: qt.Dataset, world: int, size: int, **keywords: Any) -> list[list[list[int]]]:
    """The batches of each rank, one after the other in this process."""
    out = []
    for rank in range(world):
        loader = qt.DataLoader(
            data, size, seed=5, rank=rank, world_size=world, **{"shuffle": True, **keywords}
        )
        batches = [b.tolist() for b in loader]
        assert len(loader) == len(batches)
        out.append(batches)
    return out


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("mode", ["substitute", "strict"])
def test_policies(make_numbers: Callable[[int], qt.Dataset], drop: bool, mode: str) -> None:
    for n, world, size in [(5, 2, 2), (1, 4, 1), (20, 3, 16), (21, 3, 4), (2, 5, 8)]:
        for uneven in ("pad", "drop", "keep"):
            parts = shares(make_numbers(n), world, size, uneven=uneven, mode=mode, drop_last=drop)
            counts = Counter(flat(flat(parts)))
            steps = {len(batches) for batches in parts}
            if uneven != "keep":
                assert len(steps) == 1, (n, world, size, uneven)
            if not drop and uneven != "drop":
                assert set(counts) == set(range(n))
            if uneven == "keep" and not drop:
                assert max(counts.values()) == 1
            if uneven == "pad" and not drop:
                assert sum(counts.values()) == -(-n // world) * world
            if uneven == "drop":
                assert all(c == 1 for c in counts.values())


def test_unshuffled_ranks_cover(make_numbers: Callable[[int], qt.Dataset]) -> None:
    parts = shares(make_numbers(20), 3, 4, shuffle=False, uneven="keep")
    assert sorted(flat(flat(parts))) == list(range(20))


def test_world_is_looked_up_at_iter(
    make_numbers: Callable[[int], qt.Dataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = qt.DataLoader(make_numbers(40), 4, True, seed=1)
    assert len(loader) == 10
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert len(loader) == len(list(loader)) == 5
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert len(loader) == len(list(loader)) == 3
    assert loader.state_dict()["epoch"] == 2


def test_persistent_workers_follow_a_change_of_world(
    make_numbers: Callable[[int], qt.Dataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = qt.DataLoader(make_numbers(40), 4, True, seed=1, num_workers=1, persistent_workers=True)
    assert len(flat(b.tolist() for b in loader)) == 40
    next(iter(loader))  # and an epoch is broken off
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert len(flat(b.tolist() for b in loader)) == 20
    assert loader.state_dict()["epoch"] == 3


@pytest.mark.parametrize("uneven", ["pad", "drop", "keep"])
def test_the_samplers_length_counts_samples(make_numbers: Callable[[int], qt.Dataset], uneven: str) -> None:
    for rank in range(2):
        loader = qt.DataLoader(make_numbers(21), 4, True, seed=1, rank=rank, world_size=2, uneven=uneven)
        assert len(loader.sampler) == len(flat(b.tolist() for b in loader))


def _state_on_one_rank(rank: int, url: str, folder: str) -> None:
    data = qt.Dataset(url, numbers)
    dist.init_process_group("gloo", init_method=f"file://{folder}/alone", rank=rank, world_size=2)
    if rank == 0:
        loader = qt.DataLoader(data, 4, True)
        loader.set_epoch(2)
        state = loader.state_dict()
        assert (state["epoch"], state["step"], state["world"]) == (2, 0, 2)
        alone = qt.DataLoader(data, 4, True)
        taken = qt.DataLoader(data, 4, True, rank=0, world_size=1)
        next(iter(taken))
        alone.load_state_dict(taken.state_dict())
        assert alone.state_dict()["step"] == 1
    dist.barrier()


def test_a_state_is_no_collective(make_numbers: Callable[[int], qt.Dataset], tmp_path: Path) -> None:
    url = make_numbers(12).source.url
    context = multiprocessing.get_context("spawn")
    ranks = [context.Process(target=_state_on_one_rank, args=(r, url, str(tmp_path))) for r in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(60)
        assert rank.exitcode == 0


def _train(rank: int, world: int, url: str, folder: str, results: Any) -> None:
    """One rank of a job under gloo: built before the group, collective at each step."""
    import torch

    data = qt.Dataset(url, numbers)
    loader = qt.DataLoader(data, 4, True, num_workers=1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rdv", rank=rank, world_size=world)
    epochs = []
    for _ in range(2):
        got = []
        for batch in loader:
            dist.all_reduce(torch.ones(1))
            got += batch.tolist()
        epochs.append(got)
    before = flat(b.tolist() for b in itertools.islice(loader, 2))
    states: list[Any] = [None] * world
    dist.all_gather_object(states, loader.state_dict())
    resumed = qt.DataLoader(data, 4, True)
    resumed.load_state_dict(qt.merge_states(states))
    rest = flat(b.tolist() for b in resumed)
    sampler = resumed.sampler
    results.put((rank, epochs, before, rest, (sampler.rank, sampler.num_replicas)))
    dist.destroy_process_group()


def test_two_gloo_ranks(make_numbers: Callable[[int], qt.Dataset], tmp_path: Path) -> None:
    data = make_numbers(42)
    spawn = multiprocessing.get_context("spawn")
    results = spawn.Queue()
    (tmp_path / "job").mkdir()
    ranks = [
        spawn.Process(target=_train, args=(r, 2, data.source.url, str(tmp_path / "job"), results))
        for r in range(2)
    ]
    for process in ranks:
        process.start()
    got = sorted(results.get(timeout=100) for _ in ranks)
    for process in ranks:
        process.join()
        assert process.exitcode == 0
    everything = list(range(42))
    for epoch in range(2):
        assert sorted(got[0][1][epoch] + got[1][1][epoch]) == everything
    assert got[0][1][0] != got[0][1][1]
    assert sorted(got[0][2] + got[1][2] + got[0][3] + got[1][3]) == everything
    assert [g[4] for g in got] == [(0, 2), (1, 2)]
