"""Orders that are given instead of drawn: what they are, and what is left of one after a resume."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from .. import _core
from ..errors import InvalidError
from ._ranks import Place

Batch = list[int]


class Drawn(NamedTuple):
    """An item of a given order, and how often the epoch gave it before."""

    item: int
    repeat: int


def number_repeats(batches: Iterable[Batch]) -> list[list[Drawn]]:
    given: Counter[int] = Counter()
    numbered = []
    for batch in batches:
        row = []
        for item in batch:
            row.append(Drawn(item, given[item]))
            given[item] += 1
        numbered.append(row)
    return numbered


def repeats_of(batch: Sequence[Drawn]) -> tuple[int, ...]:
    """Empty where nothing is given again, as nearly always."""
    repeats = tuple(drawn.repeat for drawn in batch)
    return repeats if any(repeats) else ()


def bounded(order: Any) -> Iterator[Any]:
    """A sampler's own length may be a little off, but an endless one is not read ahead."""
    most = 2 * len(order) + 1000
    for count, index in enumerate(order):
        if count == most:
            raise InvalidError(
                f"the sampler gives no end of samples, although its length is {len(order)}: an "
                "epoch is read ahead as a whole; end it at its length, or use torch's DataLoader "
                "over the same dataset"
            )
        yield index


def chunks(order: Sequence[Any], size: int, drop_last: bool) -> list[Any]:
    end = len(order) - len(order) % size if drop_last else len(order)
    return [order[i : min(i + size, end)] for i in range(0, end, size)]


def deal(items: Sequence[int], place: Place, uneven: str) -> list[int]:
    """This rank's part of an order that is given, as torch's DistributedSampler deals it."""
    dealt = list(items)
    over = len(dealt) % place.world
    if over and uneven == "drop":
        del dealt[-over:]
    elif over and uneven == "pad":
        dealt += [dealt[i % len(items)] for i in range(place.world - over)]
    return dealt[place.rank :: place.world]


def delivered_by_all(parts: Sequence[_core.RankState]) -> set[int]:
    return set(parts[0].ids_before()).union(*(part.delivered_ids() for part in parts))


def left_of(
    batches: list[list[Drawn]],
    parts: Sequence[_core.RankState],
    place: Place,
    size: int | None,
    drop_last: bool,
) -> list[list[Drawn]]:
    """What the ranks of a loaded state have not been given. `size`: of batches made anew."""
    done = delivered_by_all(parts)
    step = parts[0].step
    if parts[0].world == place.world:
        mine = set(parts[place.rank].delivered_ids())
        ahead = {drawn.item for batch in batches[:step] for drawn in batch}
        if mine <= ahead <= done:  # the same batches, in their order
            return batches[step:]
    flat = list(itertools.chain.from_iterable(batches))
    count = parts[0].pads  # of a listed order: all that this rank was given
    if place.world == len(parts) == 1 and {d.item for d in flat[:count]} == done and size:
        return chunks(flat[count:], size, drop_last)
    rest = []
    for batch in batches:
        kept = [d for d in batch if d.item not in done or d.repeat]
        if kept:
            rest.append(kept)
    if size is None:
        return rest
    return chunks(list(itertools.chain.from_iterable(rest)), size, drop_last)
