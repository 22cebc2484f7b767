"""What drives the epochs of one loader: its feed, its place among the ranks, the order it was given.

A loader and its iterators both hold the engine, and it holds neither: so that the last reference to
an iterator ends its workers at once, as with torch's own.
"""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .. import _core
from ..errors import InvalidError
from . import _ranks, _state
from ._record import Batches, Recorder, read_replay
from ._report import as_dict, tell
from ._tickets import Fed
from .dataset import Dataset


@dataclass(frozen=True)
class Wishes:
    """What the user asked for."""

    root: Dataset
    subset: list[int] | None
    batch_size: int | None
    shuffle: bool
    drop_last: bool
    sampler: Any  # the user's own, or None
    batch_sampler: Any  # the user's own, or torch's around `sampler`
    generator: torch.Generator | None
    mode: str
    seed: int | None
    rank: int | None
    world: int | None
    uneven: str
    on_bad_sample: str
    record: str | os.PathLike[str] | None
    replay: Any
    read_ahead: int
    max_tickets: int

    @property
    def items(self) -> int:
        return len(self.root) if self.subset is None else len(self.subset)

    @property
    def users_order(self) -> bool:
        return self.sampler is not None or self.batch_sampler is not None

    @property
    def reordered(self) -> bool:
        """An unshuffled subset whose own order is not the dataset's: torch keeps it."""
        if self.subset is None or self.shuffle:
            return False
        return any(a > b for a, b in itertools.pairwise(self.subset))


class Engine:
    """Not thread-safe: the loop's thread alone. The feed is made when it is first needed."""

    def __init__(self, wishes: Wishes) -> None:
        self.wishes = wishes
        self.place = _ranks.Place(0, 1)
        self._listed = wishes.users_order or wishes.replay is not None or wishes.reordered
        self._recorder = None if wishes.record is None else Recorder(wishes.record)
        self._feed: _core.Feed | None = None
        self._seed = 0  # that the ranks agreed on
        self._running: int | None = None  # the pass that the feed serves
        self._serials = itertools.count()
        self._wanted_epoch: int | None = None
        self._begun_epoch: int | None = None
        self._pending: list[_core.RankState] | None = None  # loaded, not yet begun
        self._replay: Batches | None = None

    def find_place(self) -> _ranks.Place:
        return _ranks.find_place(self.wishes.rank, self.wishes.world, os.environ)

    def length(self, place: _ranks.Place) -> int:
        """The batches that the next epoch, or the one that runs, has for this rank."""
        w = self.wishes
        if w.items == 0:
            return 0
        if w.replay is not None:
            return len(self._replayed(self._next_epoch(), place))
        if w.users_order:
            return len(w.batch_sampler if w.batch_sampler is not None else w.sampler)
        if self._feed is not None and place == self.place and not self._listed:
            return self._feed.batches
        size = w.batch_size or 1
        return _core.batches_of_rank(w.items, place.world, place.rank, size, w.drop_last, w.uneven)

    # The life of an epoch: a pass over the loader begins it with its first ticket.

    def new_pass(self) -> int:
        return next(self._serials)

    def begin(self, serial: int) -> tuple[_core.Feed, int]:
        """The first ticket of a pass is asked for: its epoch begins, another one's ends."""
        feed = self.ready_feed()
        epoch = self._next_epoch()
        goes_on = self._pending is not None and self._pending[0].epoch == epoch
        if self._wanted_epoch is not None and not goes_on:
            feed.set_epoch(epoch)
        listed = self._listed_batches(epoch) if self._listed else None
        if listed is not None:
            if self._pending is not None and goes_on:
                del listed[: self._pending[0].step]
            feed.replay(listed)
        if listed is None or listed:
            feed.begin_epoch()
        self._begun_epoch = epoch
        self._pending = self._wanted_epoch = None
        self._running = serial
        return feed, self._seed

    def check_running(self, serial: int) -> None:
        if self._running != serial:
            raise InvalidError(
                "this iterator was given up when another iter() of the same loader began the next "
                "epoch: use one loader for each loop that runs at the same time"
            )

    def deliver(self, batch: Fed, waited: float) -> None:
        """The loop is about to get this batch."""
        feed = self.ready_feed()
        if self._recorder is not None:
            start = feed.state().chain if self._recorder.is_new else ""
            self._recorder.add(batch.epoch, batch.step, self.place.rank, batch.ids or [], start)
        feed.waited(batch.ticket, waited)
        feed.delivered(batch.ticket, batch.skipped)

    def finish(self, serial: int) -> None:
        """The loop has asked for more than the epoch has."""
        if self._running != serial or self._feed is None:
            return
        self._running = None
        if self.place.rank == 0:
            tell(self._feed.report(), self.wishes.on_bad_sample)

    def report(self) -> dict[str, float]:
        return {} if self._feed is None else as_dict(self._feed.report())

    def set_epoch(self, epoch: int) -> None:
        self._wanted_epoch = int(epoch)

    def _next_epoch(self) -> int:
        if self._wanted_epoch is not None:
            return self._wanted_epoch
        if self._pending is not None:
            return self._pending[0].epoch
        return 0 if self._begun_epoch is None else self._begun_epoch + 1

    def load(self, parts: list[_core.RankState]) -> None:
        self._running = None
        self._pending = parts
        if self._feed is None:
            self.ready_feed()  # loads what is pending
        else:
            self._load_pending(self._feed)

    def _load_pending(self, feed: _core.Feed) -> None:
        assert self._pending is not None
        feed.load_state(self._pending)
        self._seed = self._pending[0].seed

    # The feed.

    def ready_feed(self) -> _core.Feed:
        place = self.find_place()
        if self._feed is not None and (place == self.place or self._running is not None):
            return self._feed
        if self._feed is not None:
            self._feed.close()
        self._feed = self._make_feed(place)
        self.place = place
        weakref.finalize(self, _close, self._feed, os.getpid())
        if self._pending is not None:
            self._load_pending(self._feed)
        elif self._begun_epoch is not None:
            self._feed.set_epoch(self._begun_epoch + 1)
        return self._feed

    def _make_feed(self, place: _ranks.Place) -> _core.Feed:
        w, source = self.wishes, self.wishes.root.source
        dataset = source.manifest.public_id
        agreed = _ranks.agree(place, w.seed, w.generator, dataset, explicit=w.rank is not None)
        self._seed = agreed.seed & (2**64 - 1)
        return _core.Feed(
            source.client(),
            batch_size=1 if self._listed else w.batch_size or 1,
            shuffle=w.shuffle and not self._listed,
            drop_last=w.drop_last,
            mode="strict" if self._listed or not w.shuffle else w.mode,
            seed=self._seed,
            world=place.world,
            rank=place.rank,
            uneven=w.uneven,
            subset=w.subset or [],
            read_ahead=w.read_ahead,
            max_tickets=w.max_tickets,
            memory_limit=source.load_settings().memory_limit,
            job=agreed.job,
        )

    # Orders that are given instead of drawn.

    def _listed_batches(self, epoch: int) -> list[list[int]]:
        w = self.wishes
        if w.replay is not None:
            return list(self._replayed(epoch, self.place))
        if w.batch_sampler is not None:
            return [[self._item(i) for i in batch] for batch in w.batch_sampler]
        if w.sampler is not None:
            return [[self._item(i)] for i in w.sampler]
        assert w.subset is not None
        order = _deal(w.subset, self.place, w.uneven)
        size = w.batch_size or 1
        end = len(order) - len(order) % size if w.drop_last else len(order)
        return [order[i : min(i + size, end)] for i in range(0, end, size)]

    def _replayed(self, epoch: int, place: _ranks.Place) -> list[list[int]]:
        if self._replay is None:
            self._replay = read_replay(self.wishes.replay, place.rank)
        if epoch not in self._replay:
            raise InvalidError(
                f"replay= has no batch of epoch {epoch} in it (it has {sorted(self._replay)}): end "
                "the run there, or set_epoch() to one that it has"
            )
        return self._replay[epoch]

    def _item(self, index: Any) -> int:
        w = self.wishes
        if not -w.items <= int(index) < w.items:
            raise IndexError(f"the sampler names sample {index} of a dataset of {w.items}")
        return int(index) % w.items if w.subset is None else w.subset[int(index)]

    def state(self) -> _state.State:
        return _state.to_dict(self.ready_feed().state())


def _deal(items: Sequence[int], place: _ranks.Place, uneven: str) -> list[int]:
    """This rank's part of an order that is given, as torch's DistributedSampler deals it."""
    dealt = list(items)
    over = len(dealt) % place.world
    if over and uneven == "drop":
        del dealt[-over:]
    elif over and uneven == "pad":
        dealt += [dealt[i % len(items)] for i in range(place.world - over)]
    return dealt[place.rank :: place.world]


def _close(feed: _core.Feed, owner: int) -> None:
    if os.getpid() == owner:  # in a forked child its threads do not exist
        feed.close()
