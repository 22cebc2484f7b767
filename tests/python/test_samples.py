"""Raw samples: they come from workers by reference, are right, and stay right however long they live."""

from __future__ import annotations

import gc
import hashlib
import itertools
import os
import pickle
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest
import quiver_cache.torch as qt
import torch
from conftest import wait_until
from helpers import as_list, digest, flat
from quiver_cache import _core
from quiver_cache.errors import CancelledError
from quiver_cache.torch._tickets import Fed

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

Make = Callable[..., tuple[qt.Dataset, Counter[str]]]


@pytest.fixture
def make(place: Path, tmp_path: Path) -> Make:
    """A dataset of `count` random items of about `size` bytes, and their digests."""

    def build(count: int, size: int, decode: Any = None, **settings: Any) -> Any:
        root = tmp_path / f"items{count}"
        root.mkdir()
        source = random.Random(count)
        bodies = [source.randbytes(source.randrange(size, 2 * size)) for _ in range(count)]
        for i, body in enumerate(bodies):
            (root / f"{i:05d}").write_bytes(body)
        return qt.Dataset(str(root), decode, **settings), Counter(map(digest, bodies))

    return build


def digests_of(batches: Any) -> Counter[str]:
    """Each batch is read after the next one has arrived, and is held no longer."""
    found, before = Counter(), []
    for batch in itertools.chain(batches, [[]]):
        found.update(digest(sample) for sample in before)
        before = batch
    return found


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_contents(make: Make, method: str, workers: int) -> None:
    data, expected = make(300, 3000)
    loader = qt.DataLoader(
        data,
        7,
        True,
        num_workers=workers,
        multiprocessing_context=method,
        persistent_workers=True,
        collate_fn=as_list,
    )
    for _ in range(3):
        assert digests_of(loader) == expected


@pytest.mark.parametrize("settings", [{"in_order": False}, {"timeout": 60}, {"prefetch_factor": 9}])
def test_contents_with_other_settings(make: Make, settings: dict[str, Any]) -> None:
    data, expected = make(200, 3000)
    loader = qt.DataLoader(data, 4, True, num_workers=2, collate_fn=as_list, **settings)
    for _ in range(2):
        assert digests_of(loader) == expected


def nested(samples: list[Any]) -> dict[str, Any]:
    return {"first": samples[0], "all": [(s, s.id) for s in samples], "length": torch.tensor(len(samples[0]))}


def test_wherever_they_are_in_a_batch(make: Make) -> None:
    data, expected = make(60, 3000)
    loader = qt.DataLoader(data, 4, True, num_workers=2, collate_fn=nested)
    batches = list(loader)
    assert Counter(digest(s) for b in batches for s, _ in b["all"]) == expected
    assert sorted(item for b in batches for _, item in b["all"]) == list(range(60))
    for batch in batches:
        assert batch["first"] is batch["all"][0][0]
        assert len(batch["first"]) == int(batch["length"])


def test_the_pinning_thread(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it runs where there is a GPU; a Sample is nothing to pin."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cpu"))
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    monkeypatch.setattr(torch.accelerator, "set_device_index", lambda _: None)
    data, expected = make(100, 3000)
    for persistent in (False, True):
        loader = qt.DataLoader(
            data,
            4,
            True,
            num_workers=2,
            collate_fn=as_list,
            pin_memory=True,
            persistent_workers=persistent,
        )
        assert digests_of(loader) == expected
        for _ in range(4):  # given up at once, with batches in every queue
            next(iter(loader))
        batches = iter(loader)
        assert batches._pin_memory_thread.is_alive()
        assert digests_of(batches) == expected


@pytest.mark.parametrize("persistent", [False, True])
def test_an_epoch_that_is_given_up(make: Make, persistent: bool) -> None:
    data, expected = make(120, 3000)
    loader = qt.DataLoader(
        data, 2, True, num_workers=3, collate_fn=as_list, persistent_workers=persistent, prefetch_factor=4
    )
    source = random.Random(1)
    for _ in range(8):
        got = digests_of(itertools.islice(loader, source.randrange(1, 12)))
        assert got <= expected
    assert digests_of(loader) == expected


HELD: list[Any] = []


def hoard(samples: list[Any]) -> int:
    HELD.append(samples)
    return len(samples)


def test_a_worker_that_ends_lets_go_of_what_it_holds(make: Make) -> None:
    data, _ = make(100, 50_000)
    loader = qt.DataLoader(data, 4, True, num_workers=2, collate_fn=hoard)
    assert sum(loader) == 100
    first = used(loader)
    for _ in range(4):
        assert sum(loader) == 100
    assert first > 100 * 50_000
    assert used(loader) < 2 * first


def test_they_outlive_loader_and_workers(make: Make) -> None:
    data, expected = make(120, 3000)
    loader = qt.DataLoader(data, 8, True, num_workers=2, collate_fn=as_list)
    kept = flat(loader)
    del loader, data
    gc.collect()
    assert Counter(map(digest, kept)) == expected
    assert sorted(sample.id for sample in kept) == list(range(120))


def used(loader: qt.DataLoader) -> int:
    """Bytes of the shared memory that occupy anything."""
    return os.fstat(loader.engine.ready_feed().shared_fd).st_blocks * 512


def test_all_of_an_epoch_may_be_held(make: Make) -> None:
    limit = 16 * 2**20
    data, expected = make(250, 120_000, memory_limit=f"{limit}")
    loader = qt.DataLoader(data, 4, True, num_workers=2, collate_fn=as_list)
    kept = flat(loader)
    assert Counter(map(digest, kept)) == expected
    assert used(loader) > 250 * 120_000
    del kept
    assert digests_of(loader) == expected
    wait_until(lambda: used(loader) <= 1.5 * limit)


# Below torch: a feed of the core, with this process as worker and loop at once.


class Loop:
    """Issues tickets, has them read, and pickles batches as a worker does."""

    def __init__(self, data: qt.Dataset, batch_size: int, max_tickets: int = 8) -> None:
        self.feed = _core.Feed(
            data.source.client(),
            batch_size=batch_size,
            shuffle=True,
            drop_last=False,
            mode="substitute",
            seed=1,
            world=1,
            rank=0,
            uneven="pad",
            subset=[],
            max_tickets=max_tickets,
            memory_limit=100_000,
        )
        self.reader = _core.FeedReader.attach(self.feed.shared_fd)
        self.feed.begin_epoch()

    def fed(self, ticket: int) -> Fed:
        batch = self.reader.wait(ticket, 20)
        assert batch is not None
        return Fed(ticket, batch.epoch, batch.step, None, 0, batch.contents(), False, batch)

    def messages(self) -> Iterator[tuple[int, bytes]]:
        """What is left of the epoch: tickets, pickled batches."""
        while (ticket := self.feed.issue()) is not None:
            yield ticket, bytes(ForkingPickler.dumps(self.fed(ticket)))


def test_a_sample_is_a_few_bytes_on_its_way(make: Make) -> None:
    data, expected = make(256, 20_000)
    loop = Loop(data, 64)
    found: Counter[str] = Counter()
    for ticket, message in loop.messages():
        assert len(message) < 200 * 64
        found.update(map(digest, pickle.loads(message).data))
        loop.feed.delivered(ticket, 0)
    assert found == expected


def test_only_the_batch_that_is_passed_on_goes_by_reference(make: Make) -> None:
    data, _ = make(8, 3000)
    loop = Loop(data, 4)
    first, second = (loop.fed(loop.feed.issue()) for _ in range(2))  # type: ignore[arg-type]
    alone = pickle.loads(pickle.dumps(first.data[0]))
    assert (type(alone), alone) == (bytes, bytes(first.data[0]))
    first.data.append(second.data[0])
    passed = pickle.loads(pickle.dumps(first)).data
    assert [type(x) for x in passed] == [_core.Sample] * 4 + [bytes]
    assert list(map(bytes, passed)) == list(map(bytes, first.data))
    assert type(pickle.loads(pickle.dumps(first.data[0]))) is bytes  # after it, as before it
    with pytest.raises(TypeError, match="by reference"):
        pickle.dumps(first.batch)
    first.data.append(lambda: None)
    with pytest.raises(Exception, match="lambda"):
        pickle.dumps(first)
    assert type(pickle.loads(pickle.dumps(first.data[0]))) is bytes


def is_lost(sample: Any) -> bool:
    try:
        len(sample)
    except CancelledError:
        with pytest.raises(CancelledError, match="given up before it arrived"):
            bytes(sample)
        with pytest.raises(CancelledError):
            sample == b""  # noqa: B015
        with pytest.raises(CancelledError):
            pickle.dumps(sample)
        assert repr(sample) == "<Sample that did not arrive>"
        return True
    return False


def test_what_was_given_up_arrives_empty(make: Make) -> None:
    data, _ = make(8, 3000)
    loop = Loop(data, 4)
    messages = list(loop.messages())
    loop.feed.begin_epoch()
    for _, message in messages:
        batch = pickle.loads(message)
        assert len(batch.data) == 4
        assert all(map(is_lost, batch.data))
    of_another = [message for _, message in loop.messages()]
    del loop
    gc.collect()
    assert all(map(is_lost, flat(pickle.loads(message).data for message in of_another)))


def test_never_the_bytes_of_another_batch(make: Make) -> None:
    """Messages that arrive in any order, late, twice or never, among epochs that are given up."""
    data, _ = make(60, 3000)
    loop = Loop(data, 3, max_tickets=4)
    choice = random.Random(5)
    on_their_way: list[tuple[int, list[str], bytes]] = []
    lost = arrived = 0
    kept: list[tuple[Any, str]] = []
    for _ in range(3000):
        what = choice.random()
        if what < 0.02:
            loop.feed.begin_epoch()
        elif what < 0.45:
            ticket = loop.feed.issue()
            if ticket is None:
                loop.feed.begin_epoch()
                continue
            fed = loop.fed(ticket)
            on_their_way.append((ticket, list(map(digest, fed.data)), bytes(ForkingPickler.dumps(fed))))
        elif on_their_way:
            index = choice.randrange(max(0, len(on_their_way) - 12), len(on_their_way))
            ticket, expected, message = on_their_way[index]
            samples = pickle.loads(message).data
            for sample, wanted in zip(samples, expected, strict=True):
                if is_lost(sample):
                    lost += 1
                    continue
                arrived += 1
                kept.append((sample, wanted))
            if choice.random() < 0.7:
                loop.feed.delivered(ticket, 0)
        if len(kept) > 40:
            for sample, wanted in kept:
                assert hashlib.sha256(sample).hexdigest() == wanted
            kept = kept[choice.randrange(40) :]
    assert lost > 100
    assert arrived > 100


def slow_at_first(buffer: Any) -> str:
    if bytes(buffer)[:1] == b"!":
        time.sleep(2)
    return digest(buffer)


def test_a_slow_worker_keeps_its_tickets(place: Path, tmp_path: Path) -> None:
    """Out of order the others run as far ahead as there are samples: far beyond the tickets' slots."""
    root = tmp_path / "items"
    root.mkdir()
    bodies = [b"!"] + [b"%d" % i for i in range(600)]
    for i, body in enumerate(bodies):
        (root / f"{i:05d}").write_bytes(body)
    data = qt.Dataset(str(root), slow_at_first)
    loader = qt.DataLoader(data, None, num_workers=2, in_order=False, prefetch_factor=3)
    got = list(loader)
    assert Counter(got) == Counter(map(digest, bodies))
    place_of = got.index(digest(b"!"))
    assert place_of > 150, "the others did not overtake it"
