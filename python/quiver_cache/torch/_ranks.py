"""Which rank this is, and what all ranks of a job must agree on."""

from __future__ import annotations

import hashlib
import os
import weakref
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
import torch.distributed as dist
from torch.utils.data import RandomSampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from .._log import logger
from ..errors import InvalidError

# (rank, world) variables of the launchers, the first that is set wins.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
)
_JOB_NAMES = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "MASTER_ADDR", "MASTER_PORT", "PMIX_NAMESPACE")

_told: set[str] = set()


class Place(NamedTuple):
    rank: int
    world: int


class Seat:
    """A rank of a job that ranks without torch.distributed have to name alike.

    The n-th loader of a process that runs at the same time as others of the same description has
    number n; where all ranks do the same, so do their numbers. Free when nobody refers to it.
    """

    _all: ClassVar[weakref.WeakSet[Seat]] = weakref.WeakSet()

    def __init__(self, description: str, rank: int) -> None:
        self.number: int
        self._of = (os.getpid(), description, rank)  # a fork's are another process's
        taken = {seat.number for seat in Seat._all if seat._of == self._of}
        self.number = next(n for n in range(len(taken) + 1) if n not in taken)
        Seat._all.add(self)

    @property
    def job(self) -> bytes:
        return hashlib.sha256(f"{self._of[1]}\0{self.number}".encode()).digest()[:16]


class Agreement(NamedTuple):
    seed: int
    job: bytes  # 16 bytes; empty: the feed makes one
    seat: Seat | None = None  # to be held while the job runs


def is_distributed() -> bool:
    return dist.is_available() and dist.is_initialized()


def find_place(rank: int | None, world: int | None, environment: Mapping[str, str]) -> Place:
    """Arguments, else torch.distributed, else the launcher's variables, else one rank."""
    from_launcher = _from_launcher(environment)
    if rank is not None or world is not None:
        place, source = Place(rank or 0, world or 1), "the arguments"
        if rank is None or world is None:
            raise InvalidError("rank= and world_size= belong together: pass both or neither")
    elif is_distributed():
        place, source = Place(dist.get_rank(), dist.get_world_size()), "torch.distributed"
    else:
        place, source = from_launcher or Place(0, 1), "the environment"
    if not 0 <= place.rank < place.world:
        raise InvalidError(f"rank {place.rank} of {place.world} ranks: ranks count from 0")
    for name, other in _all_launchers(environment):
        if other != place and other.world > 1:
            _tell_once(
                f"this is rank {place.rank} of {place.world} by {source}; {name} says rank "
                f"{other.rank} of {other.world}, which is ignored"
            )
    return place


def _all_launchers(environment: Mapping[str, str]) -> Iterator[tuple[str, Place]]:
    for rank_name, world_name in _LAUNCHERS:
        try:
            yield rank_name, Place(int(environment[rank_name]), int(environment[world_name]))
        except (KeyError, ValueError):
            continue


def _from_launcher(environment: Mapping[str, str]) -> Place | None:
    return next((place for _, place in _all_launchers(environment)), None)


def _tell_once(line: str) -> None:
    if line not in _told:
        _told.add(line)
        logger.warning("%s", line)


def draw_seed(generator: torch.Generator | None) -> int:
    """From the generator, else torch's own: torch.manual_seed makes a run repeatable, as in torch."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


def is_collective(place: Place, explicit: bool) -> bool:
    """Whether the ranks agree by talking to each other: then all of them must."""
    return place.world > 1 and is_distributed() and not explicit


def agree(
    place: Place,
    seed: int | None,
    generator: torch.Generator | None,
    dataset: str,
    subset: Sequence[int] | None,
    explicit: bool,
) -> Agreement:
    """Seed and job: rank 0 decides for all of torch.distributed."""
    if place.world == 1:
        return Agreement(draw_seed(generator) if seed is None else seed, b"")
    if is_collective(place, explicit):
        mine: list[Any] = [draw_seed(generator) if seed is None else seed, os.urandom(16)]
        dist.broadcast_object_list(mine, src=0)
        return Agreement(int(mine[0]), bytes(mine[1]))
    if seed is None:
        raise InvalidError(
            f"{place.world} ranks without torch.distributed cannot agree on a seed: pass seed=, "
            "the same on all ranks, or call init_process_group first"
        )
    launcher = [os.environ.get(name, "") for name in _JOB_NAMES]
    items = "" if subset is None else hashlib.sha256(array("Q", subset)).hexdigest()
    seat = Seat("\0".join([str(seed), dataset, items, str(place.world), *launcher]), place.rank)
    return Agreement(seed, seat.job, seat)


class RankSampler(DistributedSampler[Any]):
    """Tells Lightning, Accelerate and others that the data is divided already. Never iterated."""

    def __init__(self, loader: Any, place: Place, shuffle: bool, length: int) -> None:
        super().__init__(loader.dataset, place.world, place.rank, shuffle=shuffle)
        self._loader = loader
        self.num_samples = length
        self.total_size = length * place.world

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self._loader.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        raise InvalidError(
            "the order of samples is drawn by quiver_cache.torch.DataLoader itself: iterate over "
            "the loader, and pass it where a DataLoader is asked for, not its sampler"
        )


def visible_sampler(loader: Any, place: Place, shuffle: bool, length: int) -> Any:
    """What `loader.sampler` shows: what kind of order this is, as others ask for it."""
    if place.world > 1:
        return RankSampler(loader, place, shuffle, length)
    if shuffle and len(loader.dataset) > 0:
        return RandomSampler(loader.dataset)
    return SequentialSampler(loader.dataset)
