"""A dataset without a manifest, digested while its first epoch is trained on, against a digested one.

Both over the same limited link with an empty cache of a quarter of the data, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator

from figures import Figure, median_ratio, say
from limited import Bench, open_bench

RATE = 8_000_000  # bytes/s on the wire
SHARE = 0.25
PAIRS = 3


def two_epochs(bench: Bench, **settings: str) -> list[dict]:
    """The first, with nothing cached, and the second."""
    with bench.daemon(SHARE) as environment:
        return bench.epochs({**environment, **settings}, 2, 0)


def figures() -> Iterator[Figure]:
    first, second, volumes = [], [], []
    with open_bench(RATE) as bench:
        for pair in range(PAIRS):
            lazy = two_epochs(
                bench, QUIVER_DIGEST="lazy", QUIVER_MANIFEST_DIR=str(bench.world.folder / f"lazy{pair}")
            )
            wire = bench.rate().wire_per_payload
            digested = two_epochs(bench)
            first.append((lazy[0]["seconds"], digested[0]["seconds"]))
            second.append((lazy[1]["seconds"], digested[1]["seconds"]))
            volumes.append((lazy[0]["wire"] / wire, bench.total))
            say(
                f"  lazy {first[-1][0]:.2f} and {second[-1][0]:.2f} s, "
                f"digested {first[-1][1]:.2f} and {second[-1][1]:.2f} s"
            )
    yield Figure("lazy.first.25", *median_ratio(first), "s", "<= 1.05")
    yield Figure("lazy.second.25", *median_ratio(second), "s", "<= 1.02")
    yield Figure("lazy.bytes.25", *median_ratio(volumes), "B", "<= 1.005")
