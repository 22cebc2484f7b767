"""DataLoader: torch's own, whose batches are drawn, ordered and read ahead by the core."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.utils.data
from torch.utils.data import BatchSampler

from .. import _core
from ..errors import InvalidError
from . import _ranks, _state
from ._engine import Engine, Wishes
from ._iterators import make_iterator
from .dataset import Dataset

_ON_BAD_SAMPLE = ("raise", "skip", "substitute")


class DataLoader(torch.utils.data.DataLoader[Any]):
    """torch's DataLoader over a Dataset of ours, or a Subset or random_split of one.

    torch's arguments and defaults; `shuffle=True` draws in the loader's own order. Besides:

    mode           "substitute" (default): what is resident and what is still to come are drawn in
                   proportion; "strict": the order is a function of (seed, epoch) alone. Without
                   shuffle, and with a sampler of the user's own, the order is always strict.
    seed           else drawn from `generator`, else from torch's; rank 0's counts for all ranks
    rank, world_size  else torch.distributed's, else the launcher's; looked up at iter()
    uneven         where ranks cannot have equally many: "pad" (some twice, as in torch), "drop",
                   or "keep" (ranks differ by one sample: for evaluation)
    on_bad_sample  "raise", "skip", or "substitute" (another good one of the batch), where a sample
                   is gone, changed, damaged or cannot be decoded; an outage is raised always
    record, replay a path to which each delivered batch is appended; such a path (or its objects, or
                   a list of batches) whose batches are given instead of drawing
    read_ahead     batches that are read beyond those that workers have been asked for

    A second iter() gives up the rest of the running epoch and begins the next one. state_dict()
    counts what the loop was given; it may be taken at every step, and be loaded with other numbers
    of workers and ranks.
    """

    _is_accelerate_prepared = True  # Accelerate would throw this class away and divide the data again

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = False,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        mode: str = "substitute",
        seed: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        uneven: str = "pad",
        on_bad_sample: str = "raise",
        record: str | os.PathLike[str] | None = None,
        replay: Any = None,
        read_ahead: int = 4,
    ) -> None:
        if on_bad_sample not in _ON_BAD_SAMPLE:
            raise InvalidError(f"on_bad_sample={on_bad_sample!r}: use one of {_ON_BAD_SAMPLE}")
        if mode not in ("substitute", "strict"):
            raise InvalidError(f"mode={mode!r}: use 'substitute' or 'strict'")
        _core.batches_of_rank(1, 1, 0, 1, False, uneven)  # refuses a wrong `uneven`
        root, subset = unwrap(dataset)
        users_order = sampler is not None or batch_sampler is not None
        self.engine: Engine | None = None
        super().__init__(
            dataset,
            batch_size,
            shuffle if len(dataset) else False,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )
        if users_order:
            by_batch = self._torch_batch_sampler is not None
            _check_length(self._torch_batch_sampler if by_batch else self._torch_sampler)
        self.engine = Engine(
            Wishes(
                root=root,
                subset=subset,
                batch_size=self.batch_size,
                shuffle=bool(shuffle),
                drop_last=self.drop_last,
                sampler=self._torch_sampler if users_order else None,
                batch_sampler=self._torch_batch_sampler if users_order else None,
                generator=generator,
                mode=mode,
                seed=seed,
                rank=rank,
                world=world_size,
                uneven=uneven,
                on_bad_sample=on_bad_sample,
                record=record,
                replay=replay,
                read_ahead=read_ahead,
                max_tickets=max(64, 2 * num_workers * (self.prefetch_factor or 2) + 8),
            )
        )

    @property
    def _engine(self) -> Engine:
        assert self.engine is not None
        return self.engine

    # What others look at to learn how the data is divided. torch's constructor sets both.

    @property
    def sampler(self) -> Any:
        if self.engine is None or self.engine.wishes.users_order:
            return self._torch_sampler
        place = self.engine.find_place()
        samples = self.engine.samples(place)
        return _ranks.visible_sampler(self, place, self.engine.wishes.shuffle, samples)

    @sampler.setter
    def sampler(self, value: Any) -> None:
        self._torch_sampler = value

    @property
    def batch_sampler(self) -> Any:
        if self.engine is None or self.engine.wishes.users_order or self.batch_size is None:
            return self._torch_batch_sampler
        return BatchSampler(self.sampler, self.batch_size, self.drop_last)

    @batch_sampler.setter
    def batch_sampler(self, value: Any) -> None:
        self._torch_batch_sampler = value

    def __len__(self) -> int:
        return self._engine.length(self._engine.find_place())

    def __iter__(self) -> Any:
        if self._engine.wishes.items == 0:
            return iter(())
        self._engine.give_up()
        before = self._engine.place
        self._engine.ready_feed()
        if self._engine.place != before:
            self._iterator = None  # persistent workers of another feed
        return super().__iter__()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_iterator": None}

    def _get_iterator(self) -> Any:
        return make_iterator(self, self._engine, single=self._torch_batch_sampler is None)

    def set_epoch(self, epoch: int) -> None:
        """The next iter() begins this epoch. Not needed: epochs count by themselves."""
        self._engine.set_epoch(epoch)

    def report(self) -> dict[str, float]:
        """Where the time and the bytes of the epoch went that ended last, or runs: seconds, samples,
        hits (samples that were resident when it began), waited_link_s, waited_decode_s,
        origin_bytes (that reached this node for the dataset meanwhile), repeats, skipped."""
        return self._engine.report()

    def state_dict(self) -> _state.State:
        """What this rank's loop was given so far. Of several ranks: see merge_states."""
        return self._engine.state() if self._engine.wishes.items else {}

    def load_state_dict(self, state: _state.State) -> None:
        """The next iter() goes on where the job stood: after what any of its ranks was given."""
        wishes = self._engine.wishes
        if wishes.items:
            manifest = wishes.root.source.manifest
            self._engine.load(_state.complete_parts(state, manifest))


def _check_length(order: Any) -> None:
    try:
        len(order)
    except TypeError as missing:
        raise InvalidError(
            "a sampler without a length cannot be read ahead: give it __len__, or use torch's "
            "DataLoader over the same dataset"
        ) from missing


def unwrap(dataset: Any) -> tuple[Dataset, list[int] | None]:
    """The dataset below torch's Subsets, and which of its items they leave."""
    chain: list[Iterable[int]] = []
    inner = dataset
    while isinstance(inner, torch.utils.data.Subset):
        chain.append(inner.indices)
        inner = inner.dataset
    if not isinstance(inner, Dataset):
        raise InvalidError(
            f"quiver_cache.torch.DataLoader reads datasets of quiver_cache.torch, or a Subset of "
            f"one, not {type(inner).__name__}: pass decode= or transform= to one, or use torch's "
            "DataLoader"
        )
    if not chain:
        return inner, None
    n = len(inner)
    items = [int(i) for i in chain.pop()]
    while chain:
        items = [items[int(i)] for i in chain.pop()]
    wrong = next((i for i in items if not -n <= i < n), None)
    if wrong is not None:
        raise InvalidError(f"the subset names item {wrong} of a dataset of {n}")
    items = [i % n for i in items]
    if len(set(items)) != len(items):
        raise InvalidError(
            "the subset names an item twice, but an epoch gives each once: pass a sampler instead"
        )
    return inner, items
