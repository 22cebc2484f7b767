"""Checkpoints: prefix and rest together are the epoch, at every step."""

from __future__ import annotations

import copy
import io
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import quiver_cache.torch as qt
import torch
from helpers import flat, numbered, numbers
from quiver_cache.errors import InvalidError, QuiverError

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
N, BATCH = 23, 4
STEPS = 6


@pytest.fixture
def data(place: Path, tmp_path: Path) -> qt.Dataset:
    root = tmp_path / "numbers"
    root.mkdir()
    for key, body in numbered(N).items():
        (root / key).write_bytes(body)
    return qt.Dataset(str(root), numbers)


def take(loader: qt.DataLoader, steps: int) -> list[int]:
    return flat(b.tolist() for b in itertools.islice(loader, steps))


@pytest.mark.parametrize(("saving", "loading"), [(0, 0), (0, 4), (4, 0), (1, 2)])
@pytest.mark.parametrize("mode", ["substitute", "strict"])
def test_every_step(data: qt.Dataset, saving: int, loading: int, mode: str) -> None:
    steps = range(STEPS + 1) if saving + loading == 0 else (1, 3, STEPS)
    for step in steps:
        loader = qt.DataLoader(data, BATCH, True, num_workers=saving, mode=mode)
        before = take(loader, step)
        state = json.loads(json.dumps(loader.state_dict()))
        assert (state["epoch"], state["step"]) == ((0, step) if step < STEPS else (1, 0))
        resumed = qt.DataLoader(data, BATCH, True, num_workers=loading, mode=mode)
        resumed.load_state_dict(state)
        assert resumed.state_dict()["epoch"] == state["epoch"]
        rest = flat(b.tolist() for b in resumed)
        if step == STEPS:
            assert sorted(rest) == sorted(before) == list(range(N))
        else:
            assert sorted(before + rest) == list(range(N))
        assert sorted(flat(b.tolist() for b in resumed)) == list(range(N))


def test_a_strict_run_goes_on_as_if_uncut(data: qt.Dataset) -> None:
    whole = qt.DataLoader(data, BATCH, True, mode="strict", seed=9)
    expected = [b.tolist() for _ in range(2) for b in whole]
    for step in range(1, STEPS):
        first = qt.DataLoader(data, BATCH, True, mode="strict", seed=9)
        got = [b.tolist() for b in itertools.islice(first, step)]
        second = qt.DataLoader(data, BATCH, True, mode="strict")
        second.load_state_dict(first.state_dict())
        got += [b.tolist() for _ in range(2) for b in second]
        assert got == expected


def test_state_in_mid_loop_with_prefetch(data: qt.Dataset) -> None:
    """What workers have fetched and the loop has not got is in the rest."""
    loader = qt.DataLoader(data, BATCH, True, num_workers=2, prefetch_factor=4)
    got = []
    for step, batch in enumerate(loader):
        got += batch.tolist()
        if step == 1:
            state = loader.state_dict()
            delivered = list(got)
    resumed = qt.DataLoader(data, BATCH, True)
    resumed.load_state_dict(state)
    assert sorted(delivered + flat(b.tolist() for b in resumed)) == list(range(N))


def test_len_of_a_resumed_epoch(data: qt.Dataset) -> None:
    loader = qt.DataLoader(data, BATCH, True)
    take(loader, 2)
    resumed = qt.DataLoader(data, BATCH, True)
    resumed.load_state_dict(loader.state_dict())
    assert len(resumed) == len(list(resumed)) == STEPS - 2
    assert len(resumed) == len(list(resumed)) == STEPS


def test_set_epoch_does_not_restart_a_resumed_epoch(data: qt.Dataset) -> None:
    loader = qt.DataLoader(data, BATCH, True)
    before = take(loader, 2)
    resumed = qt.DataLoader(data, BATCH, True)
    resumed.load_state_dict(loader.state_dict())
    resumed.set_epoch(0)
    assert sorted(before + flat(b.tolist() for b in resumed)) == list(range(N))


def test_loading_into_a_loader_that_ran(data: qt.Dataset) -> None:
    loader = qt.DataLoader(data, BATCH, True, num_workers=1, persistent_workers=True)
    before = take(loader, 2)
    state = loader.state_dict()
    take(loader, 3)
    loader.load_state_dict(state)
    assert sorted(before + flat(b.tolist() for b in loader)) == list(range(N))


def test_torch_save(data: qt.Dataset) -> None:
    loader = qt.DataLoader(data, BATCH, True)
    take(loader, 1)
    file = io.BytesIO()
    torch.save(loader.state_dict(), file)
    file.seek(0)
    assert torch.load(file, weights_only=True) == loader.state_dict()


def run_ranks(
    data: qt.Dataset, world: int, steps: int | None, state: Any = None
) -> tuple[list[int], list[Any]]:
    """All ranks one after the other in this process."""
    got: list[int] = []
    states = []
    for rank in range(world):
        loader = qt.DataLoader(data, 3, True, seed=7, rank=rank, world_size=world, uneven="keep")
        if state is not None:
            loader.load_state_dict(state)
        for batch in itertools.islice(loader, steps):
            got += batch.tolist()
        states.append(loader.state_dict())
    return got, states


@pytest.mark.parametrize("saving", [1, 2, 3])
@pytest.mark.parametrize("loading", [1, 2, 3, 8])
def test_other_numbers_of_ranks(data: qt.Dataset, saving: int, loading: int) -> None:
    for step in (0, 1, 2):
        before, states = run_ranks(data, saving, step)
        rest, _ = run_ranks(data, loading, None, qt.merge_states(states))
        assert sorted(before + rest) == list(range(N))


def test_parts_of_a_job_are_refused(data: qt.Dataset) -> None:
    _, states = run_ranks(data, 2, 1)
    loader = qt.DataLoader(data, 3, True)
    with pytest.raises(InvalidError, match=r"rank 0 alone.*merge_states"):
        loader.load_state_dict(states[0])
    with pytest.raises(InvalidError):
        qt.merge_states([states[0]])
    with pytest.raises(InvalidError):
        qt.merge_states([states[0], states[0]])
    with pytest.raises(InvalidError):
        qt.merge_states([states[0], run_ranks(data, 2, 2)[1][1]])
    with pytest.raises(InvalidError, match="no state"):
        qt.merge_states([])


def test_other_things_are_refused(data: qt.Dataset, place: Path, tmp_path: Path) -> None:
    loader = qt.DataLoader(data, 3, True)
    take(loader, 1)
    state = loader.state_dict()
    with pytest.raises(InvalidError, match="not the state"):
        loader.load_state_dict({"model": 1})
    with pytest.raises(InvalidError, match="version 7"):
        loader.load_state_dict({**state, "version": 7})
    damaged = copy.deepcopy(state)
    damaged["parts"][0] = damaged["parts"][0][:-8] + "AAAAAAA="
    with pytest.raises(QuiverError):
        loader.load_state_dict(damaged)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x").write_bytes(b"x")
    other = qt.DataLoader(qt.Dataset(str(tmp_path / "other")))
    with pytest.raises(InvalidError, match="another dataset"):
        other.load_state_dict(state)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_that_failed_is_not_delivered(
    data: qt.Dataset, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data.decode = fail_at_7
    loader = qt.DataLoader(data, BATCH, num_workers=workers)
    got: list[int] = []
    with pytest.raises(QuiverError, match="no 7"):
        for batch in loader:
            got += batch.tolist()
    assert got == [0, 1, 2, 3]
    data.decode = numbers
    resumed = qt.DataLoader(data, BATCH)
    resumed.load_state_dict(loader.state_dict())
    assert flat(b.tolist() for b in resumed) == list(range(4, N))


def fail_at_7(buffer: Any) -> int:
    if numbers(buffer) == 7:
        raise ArithmeticError("no 7")
    return numbers(buffer)


def test_user_samplers_resume_by_step(data: qt.Dataset) -> None:
    order = [5, 3, 5, 1, 2, 0, 9]
    loader = qt.DataLoader(data, 2, sampler=order)
    assert take(loader, 2) == [5, 3, 5, 1]
    resumed = qt.DataLoader(data, 2, sampler=order)
    resumed.load_state_dict(loader.state_dict())
    assert flat(b.tolist() for b in resumed) == [2, 0, 9]


def test_set_epoch_before_loading(data: qt.Dataset) -> None:
    loader = qt.DataLoader(data, BATCH, True)
    before = take(loader, 2)
    resumed = qt.DataLoader(data, BATCH, True)
    resumed.set_epoch(3)
    resumed.load_state_dict(loader.state_dict())
    assert (resumed.state_dict()["epoch"], resumed.state_dict()["step"]) == (0, 2)
    assert sorted(before + flat(b.tolist() for b in resumed)) == list(range(N))


def test_the_state_after_set_epoch(data: qt.Dataset) -> None:
    loader = qt.DataLoader(data, BATCH, True, mode="strict", seed=1)
    loader.set_epoch(5)
    state = loader.state_dict()
    assert (state["epoch"], state["step"]) == (5, 0)
    resumed = qt.DataLoader(data, BATCH, True, mode="strict")
    resumed.load_state_dict(state)
    assert flat(b.tolist() for b in resumed) == flat(b.tolist() for b in loader)
    assert resumed.state_dict()["epoch"] == loader.state_dict()["epoch"] == 6


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_reordered_subset_resumes_with_any_shape(data: qt.Dataset, size: int) -> None:
    subset = torch.utils.data.Subset(data, list(range(N - 1, -1, -1)))
    loader = qt.DataLoader(subset, 2)
    before, state = take(loader, 4), loader.state_dict()
    for world in (1, 2):
        rest: list[int] = []
        for rank in range(world):
            again = qt.DataLoader(subset, size, seed=1, rank=rank, world_size=world, uneven="keep")
            again.load_state_dict(state)
            rest += flat(b.tolist() for b in again)
        assert sorted(before + rest) == list(range(N))
        assert world > 1 or before + rest == list(range(N - 1, -1, -1))


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_user_samplers_resume_with_another_batch_size(data: qt.Dataset, size: int) -> None:
    order = [5, 3, 5, 1, 2, 0, 9, 5, 7, 7]
    loader = qt.DataLoader(data, 2, sampler=order)
    assert take(loader, 2) == order[:4]
    resumed = qt.DataLoader(data, size, sampler=order)
    resumed.load_state_dict(loader.state_dict())
    batches = [b.tolist() for b in resumed]
    assert flat(batches) == order[4:]
    assert [len(b) for b in batches[:-1]] == [size] * (len(batches) - 1)


def test_samplers_with_replacement_on_two_ranks_have_a_state(data: qt.Dataset) -> None:
    states = []
    for rank in range(2):
        loader = qt.DataLoader(data, 3, sampler=[4, 4, 1, 2, 4, 1], seed=5, rank=rank, world_size=2)
        take(loader, 1)
        states.append(loader.state_dict())
    assert qt.merge_states(states)["step"] == 1
