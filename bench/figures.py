"""Figures of a benchmark: ours beside a reference, both measured in the same run."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass

REPEATS = 5


@dataclass(frozen=True)
class Figure:
    name: str  # bench.figure.case
    ratio: float  # what the goal is about
    ours: float
    reference: float
    unit: str
    goal: str  # such as ">= 0.9"

    @property
    def met(self) -> bool:
        sign, bound = self.goal.split()
        return self.ratio >= float(bound) if sign == ">=" else self.ratio <= float(bound)


def median_ratio(pairs: Iterable[tuple[float, float]]) -> tuple[float, float, float]:
    """Medians of (ours / reference, ours, reference) over interleaved repeats."""
    pairs = list(pairs)
    return (
        statistics.median(o / r for o, r in pairs),
        statistics.median(o for o, _ in pairs),
        statistics.median(r for _, r in pairs),
    )


def show(figures: Iterable[Figure], *, as_json: bool) -> bool:
    """Prints them as they come; true when every goal is met."""
    all_met = True
    for figure in figures:
        all_met &= figure.met
        if as_json:
            print(json.dumps({**asdict(figure), "met": figure.met}), flush=True)
        else:
            verdict = "ok  " if figure.met else "MISS"
            print(
                f"{verdict} {figure.name:28} {figure.ratio:9.4f}  goal {figure.goal:9} "
                f"ours {figure.ours:.4g}, reference {figure.reference:.4g} {figure.unit}",
                flush=True,
            )
    return all_met


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
