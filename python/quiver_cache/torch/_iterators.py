"""torch's iterators, driven by tickets."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import Any

from torch.utils.data.dataloader import (
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)

from .. import _core
from ._engine import Engine
from ._tickets import Fed, Ticket, TicketCollate, TicketDataset


class Tickets:
    """In place of a batch sampler. torch makes two iterators of it for the first epoch, so nothing
    happens before the first ticket is asked for."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __iter__(self) -> Iterator[Ticket]:
        return Pass(self._engine)

    def __len__(self) -> int:
        return self._engine.length(self._engine.find_place())


class Pass(Iterator[Ticket]):
    """The tickets of one epoch."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.serial = engine.new_pass()
        self._feed: _core.Feed | None = None
        self._seed = 0
        self._repeats: Iterator[tuple[int, ...]] = iter(())

    def check_running(self) -> None:
        if self._feed is not None:
            self._engine.check_running(self.serial)

    def __next__(self) -> Ticket:
        self.check_running()
        if self._feed is None:
            self._feed, self._seed, self._repeats = self._engine.begin(self.serial)
        number = self._feed.issue()
        if number is None:
            raise StopIteration
        return Ticket(number, self._seed, next(self._repeats, ()))


class Face:
    """The loader as torch's iterators see it: tickets in place of indices."""

    def __init__(self, loader: Any, engine: Engine, single: bool, stop_fd: int) -> None:
        self._loader = loader
        wishes, feed = engine.wishes, engine.ready_feed()
        self.dataset = TicketDataset(wishes.root, feed.shared_fd, stop_fd, wishes.on_bad_sample, os.getpid())
        if loader.num_workers == 0:
            self.dataset.use(feed.reader())
        self._index_sampler = Tickets(engine)
        self._auto_collation = True
        self.collate_fn = TicketCollate(loader.collate_fn, single, wishes.record is not None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _Accounts:
    """Between torch's iterator and the loop: takes the ticket off and accounts for the batch."""

    _engine: Engine
    _sampler_iter: Any
    _num_workers: int

    def _next_data(self) -> Any:
        while True:
            self._sampler_iter.check_running()
            began = time.perf_counter()
            try:
                batch: Fed = super()._next_data()  # type: ignore[misc]
            except StopIteration:
                self._engine.finish(self._sampler_iter.serial)
                raise
            self._engine.deliver(batch, time.perf_counter() - began, self._num_workers)
            if not batch.empty:
                return batch.data


class _InProcess(_Accounts, _SingleProcessDataLoaderIter):
    def __init__(self, loader: Any, engine: Engine, single: bool) -> None:
        self._engine = engine
        super().__init__(Face(loader, engine, single, stop_fd=-1))


class _WithWorkers(_Accounts, _MultiProcessingDataLoaderIter):
    def __init__(self, loader: Any, engine: Engine, single: bool) -> None:
        self._engine = engine
        self._owner = os.getpid()
        self._stop_fds = os.pipe()
        super().__init__(Face(loader, engine, single, stop_fd=self._stop_fds[0]))

    def _shutdown_workers(self) -> None:
        # A worker forked later has a copy of this iterator, and the workers and the pipe are not its.
        if getattr(self, "_owner", None) != os.getpid():
            return
        fds, self._stop_fds = getattr(self, "_stop_fds", ()), ()  # type: ignore[assignment]
        if fds:
            with contextlib.suppress(OSError):
                os.write(fds[1], b"x")  # whoever waits for a ticket stops waiting
        try:
            super()._shutdown_workers()
        finally:
            for fd in fds:
                os.close(fd)


def make_iterator(loader: Any, engine: Engine, single: bool) -> _InProcess | _WithWorkers:
    if loader.num_workers == 0:
        return _InProcess(loader, engine, single)
    loader.check_worker_number_rationality()
    return _WithWorkers(loader, engine, single)
