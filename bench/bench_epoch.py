"""Steady epochs of one job at four sizes of the cache, bound by the link and at balance."""

from __future__ import annotations

from collections.abc import Iterator

from figures import REPEATS, Figure, median_ratio, say
from limited import Bench, Pinned, open_bench, pinned_share

SHARES = (0.10, 0.25, 0.50, 0.75)


def steady(bench: Bench, share: float, compute: float) -> tuple[list[dict], Pinned]:
    """The epochs after the one that fills the cache, and the pinned part of the data."""
    with bench.daemon(share) as environment:
        epochs = bench.epochs(environment, 1 + REPEATS, compute)[1:]
        return epochs, pinned_share(environment)


def figures() -> Iterator[Figure]:
    with open_bench() as bench:
        for share in SHARES:
            case = f"{share * 100:.0f}"
            for kind in ("link", "balance"):
                rate = bench.rate()
                whole = bench.total / rate.payload_per_second
                compute = (1 - share) * whole if kind == "balance" else 0.0
                epochs, pinned = steady(bench, share, compute / len(bench.keys))
                link = (1 - pinned.of_bytes) * whole
                ratio, ours, reference = median_ratio(
                    (e["seconds"], max(e["computed"], link)) for e in epochs
                )
                say(f"  {case} % {kind}: p = {pinned.of_bytes:.3f}, {ours:.2f} s against {reference:.2f} s")
                yield Figure(f"epoch.time_{kind}.{case}", ratio, ours, reference, "s", "<= 1.05")
            hits = median_ratio((e["hits"] / e["samples"], pinned.of_items) for e in epochs)
            yield Figure(f"epoch.hits.{case}", *hits, "of samples", ">= 0.98")
            yield Figure(
                f"epoch.window.{case}", share - pinned.of_bytes, pinned.of_bytes, share, "of data", "<= 0.04"
            )
