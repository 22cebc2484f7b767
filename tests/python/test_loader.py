"""DataLoader: every sample exactly once, whatever the shape, the workers and the start method."""

from __future__ import annotations

import copy
import itertools
import json
import os
import random
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import quiver_cache.torch as qt
import torch
import torch.utils.data
from conftest import BUCKET
from helpers import as_list, augment, digest, digests, flat, numbered, numbers
from quiver_cache.errors import BadSampleError, CorruptError, InvalidError, UnreachableError

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.fixture
def make(place: Path, tmp_path: Path) -> Callable[..., qt.Dataset]:
    """A dataset of `count` numbers in a directory."""

    def build(count: int, decode: Any = numbers, **settings: Any) -> qt.Dataset:
        root = tmp_path / f"numbers{count}"
        if not root.exists():
            root.mkdir()
            for key, body in numbered(count).items():
                (root / key).write_bytes(body)
        return qt.Dataset(str(root), decode, **settings)

    return build


@pytest.mark.parametrize("workers", [0, 1, 4])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("mode", ["substitute", "strict"])
def test_exactly_once(make: Callable[..., qt.Dataset], workers: int, persistent: bool, mode: str) -> None:
    if persistent and not workers:
        pytest.skip("torch has no persistent workers without workers")
    loader = qt.DataLoader(
        make(101), 8, True, num_workers=workers, persistent_workers=persistent, mode=mode, seed=3
    )
    orders = []
    for _ in range(3):
        batches = [batch.tolist() for batch in loader]
        assert [len(b) for b in batches] == [8] * 12 + [5]
        assert len(loader) == 13
        assert sorted(flat(batches)) == list(range(101))
        orders.append(flat(batches))
    assert orders[0] != orders[1] != orders[2] != orders[0]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_start_methods(make: Callable[..., qt.Dataset], method: str) -> None:
    loader = qt.DataLoader(
        make(40), 4, True, num_workers=2, multiprocessing_context=method, persistent_workers=True
    )
    for _ in range(2):
        assert sorted(flat(b.tolist() for b in loader)) == list(range(40))


def test_shapes(make: Callable[..., qt.Dataset]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n, size, drop in itertools.product([1, 7, 20, 21], [1, 3, 8], [False, True]):
            loader = qt.DataLoader(make(n), size, True, drop_last=drop)
            for _ in range(2):
                batches = [b.tolist() for b in loader]
                assert len(batches) == len(loader) == (n // size if drop else -(-n // size))
                got = flat(batches)
                assert len(set(got)) == len(got) == (n - n % size if drop else n)


def test_unshuffled_is_in_order(make: Callable[..., qt.Dataset]) -> None:
    loader = qt.DataLoader(make(25), 4, num_workers=2)
    for _ in range(2):
        assert flat(b.tolist() for b in loader) == list(range(25))


def test_without_batches(make: Callable[..., qt.Dataset]) -> None:
    loader = qt.DataLoader(make(9), batch_size=None, shuffle=True)
    assert len(loader) == 9
    assert sorted(loader) == list(range(9))


def test_strict_is_a_function_of_the_seed(make: Callable[..., qt.Dataset]) -> None:
    def run(seed: int, workers: int) -> list[list[int]]:
        loader = qt.DataLoader(make(50), 8, True, mode="strict", seed=seed, num_workers=workers)
        return [flat(b.tolist() for b in loader) for _ in range(2)]

    assert run(1, 0) == run(1, 2)
    assert run(1, 0) != run(2, 0)
    assert run(1, 0)[0] != run(1, 0)[1]


def test_the_seed_is_torchs_unless_given(make: Callable[..., qt.Dataset]) -> None:
    def run(**keywords: Any) -> list[int]:
        return flat(b.tolist() for b in qt.DataLoader(make(50), 8, True, mode="strict", **keywords))

    def with_torch(seed: int) -> list[int]:
        torch.manual_seed(seed)
        return run()

    assert with_torch(5) == with_torch(5) != with_torch(6)
    generators = [torch.Generator().manual_seed(5) for _ in range(2)]
    assert run(generator=generators[0]) == run(generator=generators[1])


def test_set_epoch(make: Callable[..., qt.Dataset]) -> None:
    loader = qt.DataLoader(make(30), 7, True, mode="strict", seed=1)
    first, second = ([b.tolist() for b in loader] for _ in range(2))
    loader.set_epoch(0)
    assert [b.tolist() for b in loader] == first
    assert [b.tolist() for b in loader] == second


@pytest.mark.parametrize("workers", [0, 2])
def test_a_second_iter_begins_the_next_epoch(make: Callable[..., qt.Dataset], workers: int) -> None:
    loader = qt.DataLoader(make(40), 4, True, num_workers=workers, mode="strict", seed=1)
    whole = [[b.tolist() for b in loader] for _ in range(2)]
    loader.set_epoch(0)
    first = iter(loader)
    assert [next(first).tolist() for _ in range(3)] == whole[0][:3]
    second = iter(loader)
    assert next(second).tolist() == whole[1][0]
    with pytest.raises(InvalidError, match="given up"):
        next(first)
    assert [b.tolist() for b in second] == whole[1][1:]


def test_persistent_workers_survive_a_break(make: Callable[..., qt.Dataset]) -> None:
    loader = qt.DataLoader(make(60), 4, True, num_workers=2, persistent_workers=True)
    for stop in (1, 3, 100):
        got = [b.tolist() for b in itertools.islice(loader, stop)]
        assert len(set(flat(got))) == len(flat(got))
    assert sorted(flat(got)) == list(range(60))


def test_subsets_of_subsets(make: Callable[..., qt.Dataset]) -> None:
    data = make(60)
    train, held_out = torch.utils.data.random_split(
        data, [45, 15], generator=torch.Generator().manual_seed(1)
    )
    inner = torch.utils.data.Subset(train, range(0, 45, 3))
    for part in (train, held_out, inner):
        expected = sorted(part[i] for i in range(len(part)))
        loader = qt.DataLoader(part, 4, True, num_workers=1)
        for _ in range(2):
            assert sorted(flat(b.tolist() for b in loader)) == expected
        unshuffled = qt.DataLoader(part, 4)
        for _ in range(2):
            assert flat(b.tolist() for b in unshuffled) == [part[i] for i in range(len(part))]


def test_subsets_at_the_edge(make: Callable[..., qt.Dataset]) -> None:
    data = make(6)
    empty = qt.DataLoader(torch.utils.data.Subset(data, []), 4, True)
    assert (len(empty), list(empty), empty.state_dict()) == (0, [], {})
    with pytest.raises(InvalidError, match="twice"):
        qt.DataLoader(torch.utils.data.Subset(data, [1, 1]))
    with pytest.raises(InvalidError, match="names item 6"):
        qt.DataLoader(torch.utils.data.Subset(data, [6]))
    with pytest.raises(InvalidError, match="not list"):
        qt.DataLoader([1, 2])


@pytest.mark.parametrize("workers", [0, 2])
def test_samplers_of_the_user(make: Callable[..., qt.Dataset], workers: int) -> None:
    data = make(20)
    order = [3, 1, 4, 1, 5, 9, 2, 6]
    loader = qt.DataLoader(data, 3, sampler=order, num_workers=workers)
    for _ in range(2):
        assert [b.tolist() for b in loader] == [[3, 1, 4], [1, 5, 9], [2, 6]]
    batches = [[0, 5], [7], [1, 2, 3]]
    loader = qt.DataLoader(data, batch_sampler=batches, num_workers=workers)
    assert len(loader) == 3
    assert [b.tolist() for b in loader] == batches
    subset = torch.utils.data.Subset(data, range(10, 20))
    assert list(qt.DataLoader(subset, None, sampler=[9, 0])) == [19, 10]
    with pytest.raises(InvalidError, match="without a length"):
        qt.DataLoader(data, 2, sampler=itertools.count())


@pytest.mark.parametrize("workers", [0, 2])
def test_images_and_labels(place: Path, images: dict[str, bytes], workers: int) -> None:
    data = qt.ImageFolder(f"s3://{BUCKET}/images", loader=digest)
    labels = {data[i][0]: data[i][1] for i in range(len(data))}
    loader = qt.DataLoader(data, 16, True, num_workers=workers)
    for _ in range(2):
        pairs = [(n, int(lb)) for names, lbs in loader for n, lb in zip(names, lbs, strict=True)]
        assert Counter(name for name, _ in pairs) == digests(images)
        assert all(labels[name] == label for name, label in pairs)


def test_raw_samples_outlive_their_batch(make: Callable[..., qt.Dataset]) -> None:
    loader = qt.DataLoader(make(200, decode=None), 10, collate_fn=as_list)
    kept = flat(loader)
    assert [int(bytes(s)) for s in kept] == list(range(200))


def test_random_state_is_of_the_item(make: Callable[..., qt.Dataset]) -> None:
    def run(workers: int, seed: int) -> dict[str, tuple[float, float]]:
        loader = qt.DataLoader(
            make(30, decode=augment), 4, True, num_workers=workers, seed=seed, collate_fn=as_list
        )
        return {name: (a, b) for name, a, b in flat(loader)}

    assert run(0, 1) == run(1, 1) == run(4, 1)
    assert run(0, 1) != run(0, 2)
    loader = qt.DataLoader(make(30, decode=augment), 4, True, seed=1, collate_fn=as_list)
    first, second = ({name: a for name, a, _ in flat(loader)} for _ in range(2))
    assert all(first[name] != second[name] for name in first)


def test_random_state_of_the_loop_is_restored(make: Callable[..., qt.Dataset]) -> None:
    def draw(use: bool) -> tuple[float, float, float]:
        loader = qt.DataLoader(make(30, decode=augment), 4, True, seed=1, collate_fn=as_list)
        batches = iter(loader)
        torch.manual_seed(1)
        random.seed(1)
        numpy.random.seed(1)
        if use:
            next(batches)
        return float(torch.rand(())), random.random(), float(numpy.random.rand())

    assert draw(True) == draw(False)


def reject(buffer: Any) -> int:
    number = numbers(buffer)
    if number % 10 == 3:
        raise ArithmeticError(f"no {number}")
    return number


@pytest.mark.parametrize("workers", [0, 2])
def test_bad_samples(make: Callable[..., qt.Dataset], workers: int) -> None:
    data = make(40, decode=reject)
    good = [i for i in range(40) if i % 10 != 3]

    def run(policy: str) -> list[list[int]]:
        loader = qt.DataLoader(data, 4, True, num_workers=workers, on_bad_sample=policy)
        return [b.tolist() for b in loader]

    with pytest.raises(BadSampleError, match=r"ArithmeticError: no \d+3|ArithmeticError: no 3"):
        run("raise")
    assert sorted(flat(run("skip"))) == good
    substituted = run("substitute")
    assert [len(b) for b in substituted] == [4] * 10
    assert sorted(set(flat(substituted))) == good
    with pytest.raises(InvalidError, match="on_bad_sample='ignore'"):
        run("ignore")


def test_batches_without_a_good_sample(make: Callable[..., qt.Dataset]) -> None:
    data = make(40, decode=reject)
    loader = qt.DataLoader(data, 1, on_bad_sample="skip")
    assert flat(b.tolist() for b in loader) == [i for i in range(40) if i % 10 != 3]
    with pytest.raises(BadSampleError):
        list(qt.DataLoader(data, 1, on_bad_sample="substitute"))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_replay_gives_the_same_batches(
    make: Callable[..., qt.Dataset], tmp_path: Path, workers: int
) -> None:
    data, path = make(50), tmp_path / "run.jsonl"
    loader = qt.DataLoader(data, 8, True, num_workers=workers, record=path)
    recorded = [[b.tolist() for b in loader] for _ in range(2)]
    chain = loader.state_dict()
    replayed = qt.DataLoader(data, 8, True, replay=path)
    assert len(replayed) == 7
    assert [[b.tolist() for b in replayed] for _ in range(2)] == recorded
    assert chain_of(replayed.state_dict()) == chain_of(chain)
    with pytest.raises(InvalidError, match="no batch of epoch 2"):
        list(replayed)
    assert [b.tolist() for b in qt.DataLoader(data, replay=[[1, 2], [3]])] == [[1, 2], [3]]


def chain_of(state: Any) -> str:
    from quiver_cache.torch._state import parts_of

    return parts_of(state)[0].chain


def test_out_of_order(make: Callable[..., qt.Dataset]) -> None:
    loader = qt.DataLoader(make(60), 4, True, num_workers=3, in_order=False)
    for _ in range(2):
        assert sorted(flat(b.tolist() for b in loader)) == list(range(60))


def test_the_line_at_the_end(make: Callable[..., qt.Dataset], capsys: pytest.CaptureFixture[str]) -> None:
    loader = qt.DataLoader(make(30), 8, True)
    list(loader)
    lines = [x for x in capsys.readouterr().err.splitlines() if x.startswith("quiver: epoch")]
    assert len(lines) == 1
    assert lines[0].startswith("quiver: epoch 0: 30 samples in ")
    assert " % hits; " in lines[0]
    assert " from the origin" in lines[0]


def test_accelerate_and_lightning_leave_it_alone(make: Callable[..., qt.Dataset]) -> None:
    alone = qt.DataLoader(make(20), 4, True)
    assert alone._is_accelerate_prepared
    assert isinstance(alone.sampler, torch.utils.data.RandomSampler)
    assert len(alone.batch_sampler) == 5
    one_of_two = qt.DataLoader(make(20), 4, True, seed=1, rank=1, world_size=2)
    sampler = one_of_two.sampler
    assert isinstance(sampler, torch.utils.data.distributed.DistributedSampler)
    assert (sampler.rank, sampler.num_replicas) == (1, 2)
    with pytest.raises(InvalidError, match="iterate over"):
        iter(sampler)
    sampler.set_epoch(4)
    list(one_of_two)
    assert one_of_two.state_dict()["epoch"] == 5


def test_worker_init_and_timeout(make: Callable[..., qt.Dataset], tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()

    def mark(worker: int) -> None:
        (marks / str(worker)).touch()

    loader = qt.DataLoader(make(20), 4, num_workers=2, timeout=30, worker_init_fn=mark)
    assert len(list(loader)) == 5
    assert {p.name for p in marks.iterdir()} == {"0", "1"}


class Order:
    """A sampler whose items and length the test changes."""

    def __init__(self, items: Any, length: int | None = None) -> None:
        self.items, self.length = items, length

    def __len__(self) -> int:
        return len(self.items) if self.length is None else self.length

    def __iter__(self) -> Any:
        return iter(self.items)


def test_an_empty_epoch_after_a_break(make: Callable[..., qt.Dataset]) -> None:
    order = Order(range(20))
    loader = qt.DataLoader(make(40), 4, sampler=order)
    assert next(iter(loader)).tolist() == [0, 1, 2, 3]
    order.items = []
    assert list(loader) == []
    order.items = [7]
    assert flat(b.tolist() for b in loader) == [7]


def test_orders_that_are_refused(make: Callable[..., qt.Dataset]) -> None:
    data = make(12)
    with pytest.raises(InvalidError, match="no end of samples"):
        next(iter(qt.DataLoader(data, 4, sampler=Order(itertools.cycle(range(12)), 12))))
    with pytest.raises(InvalidError, match="no sample in it"):
        list(qt.DataLoader(data, batch_sampler=[[1], []]))
    with pytest.raises(InvalidError, match="pass a batch_size"):
        list(qt.DataLoader(data, None, replay=[[1, 2, 3]]))
    assert [int(x) for x in qt.DataLoader(data, None, replay=[[1], [2]])] == [1, 2]


def test_repeats_are_augmented_anew(make: Callable[..., qt.Dataset]) -> None:
    data = make(4, decode=lambda _: float(torch.rand(())))

    def draw(order: list[int], size: int) -> list[float]:
        loader = qt.DataLoader(data, size, sampler=order, seed=1, collate_fn=as_list)
        return flat(loader)

    once, often = draw([0, 1], 2), draw([0, 0, 1, 0, 1], 2)
    assert len(set(often)) == 5
    assert [often[0], often[2]] == once
    assert draw([0, 0, 1, 0, 1], 3) == often


def fail_in_two_ways(buffer: Any) -> int:
    number = numbers(buffer)
    if number == 3:
        raise CorruptError("its bytes are others")
    if number == 20:
        raise UnreachableError("nobody answers")
    return number


@pytest.mark.parametrize("policy", ["skip", "substitute"])
def test_an_outage_is_not_a_bad_sample(make: Callable[..., qt.Dataset], policy: str) -> None:
    given = []
    with pytest.raises(UnreachableError):
        for batch in qt.DataLoader(make(40, decode=fail_in_two_ways), 4, on_bad_sample=policy):
            given += batch.tolist()
    assert set(given) == set(range(20)) - {3}


def test_a_recording_over_a_crash(make: Callable[..., qt.Dataset], tmp_path: Path) -> None:
    data, path = make(24), tmp_path / "run.jsonl"
    crashed = qt.DataLoader(data, 4, True, seed=1, record=path)
    batches = iter(crashed)
    run = [next(batches).tolist() for _ in range(2)]
    state = crashed.state_dict()
    for _ in range(3):
        next(batches)
    crashed.load_state_dict(state)  # the same file goes on, and so do chain and steps
    run += [b.tolist() for b in crashed]
    assert sorted(flat(run)) == list(range(24))
    replayed = qt.DataLoader(data, 4, True, replay=path)
    assert [b.tolist() for b in replayed] == run
    assert chain_of(replayed.state_dict()) == chain_of(crashed.state_dict())
    last = json.loads(path.read_text().splitlines()[-1])
    assert last["chain"] == chain_of(crashed.state_dict())


def test_copies(make: Callable[..., qt.Dataset]) -> None:
    loader = qt.DataLoader(make(24), 4, True, seed=1, mode="strict", num_workers=1, persistent_workers=True)
    epochs = [flat(b.tolist() for b in loader) for _ in range(2)]
    loader.set_epoch(1)
    assert flat(b.tolist() for b in copy.deepcopy(loader)) == epochs[1]


_NO_ROOM = """
import pathlib, resource, sys
import quiver_cache.torch as qt
root = pathlib.Path(sys.argv[1])
root.mkdir()
for i in range(18):
    with open(root / f"{i}.bin", "wb") as file:
        file.truncate(60_000_000)
        file.write(bytes([i]))
data = qt.Dataset(str(root))
size = int(open("/proc/self/status").read().split("VmSize:")[1].split()[0]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (size + (1500 << 20),) * 2)
kept = []
try:
    kept.extend(qt.DataLoader(data, 2, collate_fn=lambda samples: samples))
except qt.dataset.QuiverError as problem:
    print(type(problem).__name__, problem)
"""


def test_no_room_for_a_batch_is_an_error(place: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", _NO_ROOM, str(tmp_path / "large")]
    environment = {**os.environ, "QUIVER": "off"}
    told = subprocess.run(command, env=environment, timeout=60, capture_output=True, text=True, check=True)
    assert told.stdout.startswith("NoSpaceError") and "no room for a batch" in told.stdout


def test_a_forked_copy_of_an_iterator_stops_nobodys_workers(
    make: Callable[..., qt.Dataset], capfd: pytest.CaptureFixture[str]
) -> None:
    batches = iter(qt.DataLoader(make(40), 2, True, num_workers=2))
    got = next(batches).tolist()
    child = os.fork()
    if child == 0:
        try:
            batches.__del__()
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    for batch in batches:
        got += batch.tolist()
    assert sorted(got) == list(range(40))
    assert "Traceback" not in capfd.readouterr().err
