"""What drives the epochs of one loader: its feed, its place among the ranks, the order it was given.

A loader and its iterators both hold the engine, and it holds neither: so that the last reference to
an iterator ends its workers at once, as with torch's own.
"""

from __future__ import annotations

import itertools
import os
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from .. import _core
from ..errors import InvalidError
from . import _listed, _ranks, _state
from ._record import Batches, Recorder, read_replay
from ._report import as_dict, tell
from ._tickets import Fed
from .dataset import Dataset

_WORD = 2**64 - 1


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
        self._seat: _ranks.Seat | None = None
        self._running: int | None = None  # the pass that the feed serves
        self._serials = itertools.count()
        self._wanted: int | None = None  # epoch, while there is no feed to tell
        self._pending: list[_core.RankState] | None = None  # loaded, not yet begun
        self._replay: Batches | None = None

    def find_place(self) -> _ranks.Place:
        return _ranks.find_place(self.wishes.rank, self.wishes.world, os.environ)

    def samples(self, place: _ranks.Place) -> int:
        """That the epoch has for this rank."""
        w = self.wishes
        share, over = divmod(w.items, place.world)
        if over and (w.uneven == "pad" or (w.uneven == "keep" and place.rank < over)):
            share += 1
        return min(share, self.length(place) * (w.batch_size or 1))

    def length(self, place: _ranks.Place) -> int:
        """The batches that the next epoch, or the one that runs, has for this rank."""
        w = self.wishes
        if w.items == 0:
            return 0
        if w.replay is not None:
            return len(self._replayed(self._epoch(), place))
        if w.users_order:
            return len(w.batch_sampler if w.batch_sampler is not None else w.sampler)
        if self._feed is not None and place == self.place and not self._listed:
            return self._feed.batches
        if self._feed is None and self._pending is not None and not self._listed:
            feed = self._feed_apart(place)
            batches = feed.batches
            feed.close()
            return batches
        size = w.batch_size or 1
        return _core.batches_of_rank(w.items, place.world, place.rank, size, w.drop_last, w.uneven)

    # The life of an epoch: a pass over the loader begins it with its first ticket.

    def new_pass(self) -> int:
        return next(self._serials)

    def give_up(self) -> None:
        """Another pass is about to begin: nobody waits for the rest of the running epoch."""
        if self._running is not None and self._feed is not None:
            self._feed.abandon()
        self._running = None

    def begin(self, serial: int) -> tuple[_core.Feed, int, Iterator[tuple[int, ...]]]:
        """The first ticket of a pass is asked for: its epoch begins, another one's ends.

        With its feed and seed, and for each batch how often its items were given before, if ever.
        """
        self.give_up()
        feed = self.ready_feed()
        feed.abandon()
        epoch = feed.epoch
        repeats: list[tuple[int, ...]] = []
        if self._listed:
            goes_on = self._pending is not None and self._pending[0].epoch == epoch
            batches = self._listed_batches(epoch, self._pending if goes_on else None)
            repeats = [_listed.repeats_of(batch) for batch in batches]
            feed.replay([[drawn.item for drawn in batch] for batch in batches])
        feed.begin_epoch()
        self._pending = None
        self._running = serial
        return feed, self._seed, iter(repeats)

    def check_running(self, serial: int) -> None:
        if self._running != serial:
            raise InvalidError(
                "this iterator was given up when another iter() of the same loader began the next "
                "epoch: use one loader for each loop that runs at the same time"
            )

    def deliver(self, batch: Fed, waited: float, workers: int) -> None:
        """The loop is about to get this batch."""
        feed = self._feed
        assert feed is not None  # its ticket has been waited for
        if self._recorder is not None:
            start = feed.state().chain if self._recorder.is_new else ""
            self._recorder.add(batch.epoch, batch.step, self.place.rank, batch.ids or [], start)
        since_decoded = time.monotonic() - batch.ready
        feed.delivered(batch.ticket, batch.skipped, waited, batch.decoding, since_decoded, workers)

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
        if self._feed is None:
            self._wanted = int(epoch)
        else:
            self._feed.set_epoch(int(epoch))

    def _epoch(self) -> int:
        """That runs, or begins next."""
        if self._feed is not None:
            return self._feed.epoch
        if self._wanted is not None:
            return self._wanted
        return 0 if self._pending is None else self._pending[0].epoch

    def load(self, parts: list[_core.RankState]) -> None:
        self.give_up()
        self._pending = parts
        self._wanted = None
        if self._recorder is not None:
            self._recorder.restart()
        if self._feed is not None:
            self._load_pending(self._feed)
        elif not self._is_collective(self.find_place()):
            self.ready_feed()

    def _load_pending(self, feed: _core.Feed) -> None:
        assert self._pending is not None
        feed.load_state(self._pending)
        self._seed = self._pending[0].seed

    def state(self) -> _state.State:
        """No rank waits for another here: before the ranks have agreed there is only what was loaded."""
        place = self.find_place()
        if self._stands(place) or not self._is_collective(place):
            return _state.to_dict(self.ready_feed().state())
        feed = self._feed_apart(place)
        state = _state.to_dict(feed.state())
        feed.close()
        return state

    def _is_collective(self, place: _ranks.Place) -> bool:
        return _ranks.is_collective(place, explicit=self.wishes.rank is not None)

    def _feed_apart(self, place: _ranks.Place) -> _core.Feed:
        """One that never begins, for what it says of this rank alone."""
        seed = self._pending[0].seed if self._pending is not None else self.wishes.seed or 0
        feed = self._feed_of(place, seed & _WORD, b"")
        self._take_up(feed)
        return feed

    # The feed.

    def ready_feed(self) -> _core.Feed:
        place = self.find_place()
        if self._feed is not None and self._stands(place):
            return self._feed
        self._replay = None  # another rank's
        feed = self._make_feed(place)
        self._take_up(feed)
        if self._feed is not None:
            self._feed.close()
        self._feed, self.place, self._wanted = feed, place, None
        weakref.finalize(self, _close, feed, os.getpid())
        return feed

    def _stands(self, place: _ranks.Place) -> bool:
        return self._feed is not None and (place == self.place or self._running is not None)

    def _take_up(self, feed: _core.Feed) -> None:
        """A new feed goes on where this loader is."""
        if self._pending is not None:
            self._load_pending(feed)
        feed.set_epoch(self._epoch())

    def _make_feed(self, place: _ranks.Place) -> _core.Feed:
        w = self.wishes
        manifest = w.root.source.manifest
        dataset = manifest.listing_id if manifest.provisional else manifest.public_id
        self._seat = None
        agreed = _ranks.agree(place, w.seed, w.generator, dataset, w.subset, explicit=w.rank is not None)
        self._seed = agreed.seed & _WORD
        self._seat = agreed.seat
        return self._feed_of(place, self._seed, agreed.job)

    def _feed_of(self, place: _ranks.Place, seed: int, job: bytes) -> _core.Feed:
        w, source = self.wishes, self.wishes.root.source
        return _core.Feed(
            source.client(),
            batch_size=self._usual_size(place),
            shuffle=w.shuffle and not self._listed,
            drop_last=w.drop_last,
            mode="strict" if self._listed or not w.shuffle else w.mode,
            seed=seed,
            world=place.world,
            rank=place.rank,
            uneven=w.uneven,
            subset=w.subset or [],
            read_ahead=w.read_ahead,
            max_tickets=w.max_tickets,
            memory_limit=source.load_settings().memory_limit,
            job=job,
        )

    def _usual_size(self, place: _ranks.Place) -> int:
        """Of a batch: the daemon reckons with it. A batch sampler may give others."""
        w = self.wishes
        if w.replay is not None:
            lengths = [len(batch) for batches in self._recorded(place).values() for batch in batches]
            return max(1, round(sum(lengths) / max(1, len(lengths))))
        if w.batch_size is None and w.batch_sampler is not None:
            return max(1, round(w.items / place.world / max(1, len(w.batch_sampler))))
        return w.batch_size or 1

    # Orders that are given instead of drawn.

    def _listed_batches(self, epoch: int, resumed: list[_core.RankState] | None) -> list[list[_listed.Drawn]]:
        w = self.wishes
        if not w.users_order and w.replay is None:
            assert w.subset is not None
            done = set() if resumed is None else _listed.delivered_by_all(resumed)
            order = _listed.deal([i for i in w.subset if i not in done], self.place, w.uneven)
            return _listed.number_repeats(_listed.chunks(order, w.batch_size or 1, w.drop_last))
        if w.replay is not None:
            batches = self._replayed(epoch, self.place)
        elif w.batch_sampler is not None:
            batches = [[self._item(i) for i in batch] for batch in _listed.bounded(w.batch_sampler)]
        else:
            batches = [[self._item(i)] for i in _listed.bounded(w.sampler)]
        self._check_sizes(batches)
        numbered = _listed.number_repeats(batches)
        if resumed is None:
            return numbered
        size = w.batch_size if w.sampler is not None and w.replay is None else None
        return _listed.left_of(numbered, resumed, self.place, size, w.drop_last)

    def _check_sizes(self, batches: list[list[int]]) -> None:
        w = self.wishes
        if not all(batches):
            raise InvalidError("the order that was given has a batch with no sample in it: leave it out")
        single = w.batch_size is None and w.batch_sampler is None
        if single and any(len(batch) != 1 for batch in batches):
            raise InvalidError(
                "replay= has batches of several samples, and with batch_size=None there are only "
                "single ones: pass a batch_size"
            )

    def _recorded(self, place: _ranks.Place) -> Batches:
        if self._replay is None:
            self._replay = read_replay(self.wishes.replay, place.rank)
        return self._replay

    def _replayed(self, epoch: int, place: _ranks.Place) -> list[list[int]]:
        recorded = self._recorded(place)
        if epoch not in recorded:
            raise InvalidError(
                f"replay= has no batch of epoch {epoch} in it (it has {sorted(recorded)}): end "
                "the run there, or set_epoch() to one that it has"
            )
        return recorded[epoch]

    def _item(self, index: Any) -> int:
        w = self.wishes
        if not -w.items <= int(index) < w.items:
            raise IndexError(f"the sampler names sample {index} of a dataset of {w.items}")
        return int(index) % w.items if w.subset is None else w.subset[int(index)]

    # A copy is another job: it begins with the epoch that this one is in.

    def __getstate__(self) -> dict[str, Any]:
        none = dict.fromkeys(("_feed", "_seat", "_running", "_serials"))
        pending = None if self._pending is None else [part.encode() for part in self._pending]
        return {**self.__dict__, **none, "_pending": pending, "_wanted": self._epoch()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._serials = itertools.count()
        if self._pending is not None:
            self._pending = [_core.RankState.decode(part) for part in state["_pending"]]


def _close(feed: _core.Feed, owner: int) -> None:
    if os.getpid() == owner:  # in a forked child its threads do not exist
        feed.close()
