"""The first epoch of an empty cache through a limited link, against D/b; bytes from the origin."""

from __future__ import annotations

from collections.abc import Iterator

from figures import REPEATS, Figure, median_ratio, say
from limited import open_bench


def figures() -> Iterator[Figure]:
    times, volumes = [], []
    with open_bench() as bench:
        for _ in range(REPEATS):
            rate = bench.rate()
            with bench.daemon(0.25) as environment:
                (epoch,) = bench.epochs(environment, 1, 0)
            ideal = bench.total / rate.payload_per_second
            times.append((epoch["seconds"], ideal))
            volumes.append((epoch["wire"] / rate.wire_per_payload, bench.total))
            say(f"  {epoch['seconds']:.2f} s against {ideal:.2f} s")
    yield Figure("cold.epoch_time.25", *median_ratio(times), "s", "<= 1.05")
    yield Figure("cold.origin_bytes.25", *median_ratio(volumes), "B", "<= 1.005")
