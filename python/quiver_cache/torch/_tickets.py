"""What runs where a batch is made: in torch's workers, or in the loop's process without them.

The loader's index for a batch is a Ticket. Here its bytes are awaited in the shared arena, decoded
and collated; the number travels back with the batch, for the loader to account for.
"""

from __future__ import annotations

import os
import random
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import reduction, util
from typing import Any, NamedTuple

import torch
from torch.utils.data._utils.pin_memory import pin_memory

from .. import _core
from ..errors import (
    BadSampleError,
    CancelledError,
    ChangedError,
    CorruptError,
    NotFoundError,
    ShortReadError,
)
from .dataset import Dataset

# What is wrong with the item itself. Anything else is an outage, which leaves nothing out.
_BAD = (BadSampleError, NotFoundError, ChangedError, CorruptError, ShortReadError)
_SLICE_S = 0.2  # how long a wait may go on without looking at signals and at the parent


class Ticket(NamedTuple):
    number: int
    seed: int
    repeats: tuple[int, ...] = ()  # how often the epoch gave each of its items before; or never


class Fed:
    """A batch on its way to the loop, with what the loader needs to account for it.

    Its raw Samples are pickled by reference: the loop's process has their memory too, and until it
    has got the batch it is the ticket that holds it.
    """

    __slots__ = ("batch", "data", "decoding", "empty", "epoch", "ids", "ready", "skipped", "step", "ticket")

    def __init__(
        self,
        ticket: int,
        epoch: int,
        step: int,
        ids: list[int] | None,
        skipped: int,
        data: Any,
        empty: bool,
        batch: _core.Batch | None = None,
        decoding: float = 0.0,
        ready: float | None = None,
    ) -> None:
        self.ticket = ticket
        self.epoch = epoch
        self.step = step
        self.ids = ids
        self.skipped = skipped
        self.data = data
        self.empty = empty
        self.batch = batch
        self.decoding = decoding  # seconds, from its bytes to the batch
        self.ready = time.monotonic() if ready is None else ready  # the clock is of all processes

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (self.ticket, self.epoch, self.step, self.ids, self.skipped)
        # Pickled in this order: what makes the samples references ends after them, and is None then.
        by_reference = None if self.batch is None else self.batch.by_reference()
        return Fed, (*fields, self.data, self.empty, by_reference, self.decoding, self.ready)

    def pin_memory(self, device: str | None = None) -> Fed:
        self.data = pin_memory(self.data, device)  # type: ignore[no-untyped-call]
        return self


class Loaded(NamedTuple):
    """A batch before it is collated."""

    batch: _core.Batch
    samples: list[Any]
    skipped: int
    since: float  # its bytes were there


class TicketDataset(torch.utils.data.Dataset[Any]):
    """Stands for the user's dataset in the fetcher: its indices are tickets.

    `feed_fd` is the shared arena's descriptor; `stop_fd` becomes readable when the iterator of these
    workers is given up, so that none of them sits in a wait meanwhile.
    """

    def __init__(self, dataset: Dataset, feed_fd: int, stop_fd: int, on_bad_sample: str, owner: int) -> None:
        self.dataset = dataset
        self._feed_fd = feed_fd
        self._stop_fd = stop_fd
        self._on_bad = on_bad_sample
        self._owner = owner
        self._reader: tuple[int, _core.FeedReader] | None = None

    def use(self, reader: _core.FeedReader) -> None:
        """In the owner's process: its own reader."""
        self._reader = (os.getpid(), reader)

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_reader": None}
        state["_feed_fd"] = reduction.DupFd(self._feed_fd)
        state["_stop_fd"] = reduction.DupFd(self._stop_fd)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._feed_fd = state["_feed_fd"].detach()
        self._stop_fd = state["_stop_fd"].detach()

    def __getitems__(self, ticket: Ticket) -> Loaded:
        batch = self._wait(ticket.number)
        since = time.monotonic()
        ids = batch.ids
        contents = batch.contents()
        labels = self.dataset.source.manifest.labels_of(ids) if self.dataset.classes else ids
        if self.dataset.plain:
            results = [self._finish(*each) for each in zip(contents, ids, labels, strict=True)]
            return self._sort_out(batch, results, since)
        results = []
        with _item_random_state() as seed_item:
            repeats = ticket.repeats or (0,) * len(ids)
            for item, content, label, repeat in zip(ids, contents, labels, repeats, strict=True):
                seed_item(ticket.seed, batch.epoch, item, repeat)
                results.append(self._finish(content, item, label))
        return self._sort_out(batch, results, since)

    def __getitem__(self, ticket: Any) -> Any:
        raise TypeError("this dataset is read by tickets")

    def _finish(self, content: Any, item: int, label: int) -> Any:
        if isinstance(content, Exception):
            if self._on_bad != "raise" and not isinstance(content, _BAD):
                raise content
            return _Failure(content)
        if self._on_bad == "raise":
            return self.dataset.finish(content, item, label)
        try:
            return self.dataset.finish(content, item, label)
        except _BAD as problem:
            return _Failure(problem)

    def _sort_out(self, batch: _core.Batch, results: list[Any], since: float) -> Loaded:
        good = [r for r in results if type(r) is not _Failure]
        bad = len(results) - len(good)
        if bad == 0:
            return Loaded(batch, results, 0, since)
        failure = next(r for r in results if type(r) is _Failure)
        if self._on_bad == "raise" or (self._on_bad == "substitute" and not good):
            raise failure.problem
        if self._on_bad == "skip":
            return Loaded(batch, good, bad, since)
        others = iter(good * (bad // len(good) + 1))
        samples = [next(others) if type(r) is _Failure else r for r in results]
        return Loaded(batch, samples, bad, since)

    def _wait(self, ticket: int) -> _core.Batch:
        reader = self._attached()
        while True:
            batch = reader.wait(ticket, _SLICE_S)
            if batch is not None:
                if batch.abandoned:
                    raise CancelledError("this epoch was given up when another one was begun")
                return batch
            if os.getpid() != self._owner and self._is_over():
                raise CancelledError("the loader of this worker is gone")

    def _attached(self) -> _core.FeedReader:
        if self._reader is None or self._reader[0] != os.getpid():
            reader = _core.FeedReader.attach(self._feed_fd)
            self._reader = (os.getpid(), reader)
            if os.getpid() != self._owner:  # a worker's end runs no destructors; after the queues'
                util.Finalize(None, reader.release, exitpriority=-100)
        return self._reader[1]

    def _is_over(self) -> bool:
        poll = select.poll()
        poll.register(self._stop_fd, select.POLLIN)
        return bool(poll.poll(0))


class _Failure:
    __slots__ = ("problem",)

    def __init__(self, problem: Exception) -> None:
        self.problem = problem


class TicketCollate:
    """The user's collate_fn, around which the ticket is passed on."""

    def __init__(self, collate: Callable[[Any], Any], single: bool, keep_ids: bool) -> None:
        self._collate = collate
        self._single = single
        self._keep_ids = keep_ids

    def __call__(self, loaded: Loaded) -> Fed:
        batch, samples = loaded.batch, loaded.samples
        data = None
        if samples:
            data = self._collate(samples[0] if self._single else samples)
        ids = batch.ids if self._keep_ids else None
        fields = (batch.ticket, batch.epoch, batch.step, ids, loaded.skipped)
        now = time.monotonic()
        return Fed(*fields, data, not samples, batch, now - loaded.since, now)


@contextmanager
def _item_random_state() -> Iterator[Callable[[int, int, int, int], None]]:
    """Gives each item a random state of its own, a function of (seed, epoch, item) alone, and of
    how often the epoch gave it before.

    Restored afterwards: without workers it is the training loop's.
    """
    numpy_random = getattr(sys.modules.get("numpy"), "random", None)
    saved_torch, saved_python = torch.get_rng_state(), random.getstate()
    saved_numpy = numpy_random.get_state() if numpy_random is not None else None
    generator = torch.default_generator

    def seed_item(seed: int, epoch: int, item: int, repeat: int) -> None:
        value = _core.item_seed(seed, epoch, item)
        if repeat:
            value = _core.item_seed(value, repeat, item)
        generator.manual_seed(value & (2**63 - 1))
        random.seed(value)
        if numpy_random is not None:
            numpy_random.seed(value & (2**32 - 1))

    try:
        yield seed_item
    finally:
        torch.set_rng_state(saved_torch)
        random.setstate(saved_python)
        if numpy_random is not None:
            numpy_random.set_state(saved_numpy)
