"""One division of the cache: what it takes, how that grows, and what it gains over simple rules."""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Iterator

from figures import Figure
from local import BUILD

GOAL_S = 0.020
REPEATS = 15


def divisions(datasets: int, jobs: int) -> list[dict[str, float]]:
    command = [str(BUILD / "bench_policy"), str(datasets), str(jobs), str(REPEATS)]
    done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE)
    return [json.loads(line) for line in done.stdout.splitlines()]


def figures() -> Iterator[Figure]:
    small, large = divisions(200, 2_000), divisions(2_000, 20_000)
    ours, ten_times = (statistics.median(row["seconds"] for row in rows) for rows in (small, large))
    yield Figure("policy.allocate.200x2000", ours / GOAL_S, ours, GOAL_S, "s", "<= 1")
    # Shown, not promised: n log n would be about 14.
    yield Figure("policy.allocate.growth_10x", ten_times / ours, ten_times, ours, "s", "<= 100")
    for rule in ("equal", "proportional"):
        worst = min(small, key=lambda row: row["speed"] / row[rule])
        yield Figure(
            f"policy.over_{rule}", worst["speed"] / worst[rule], worst["speed"], worst[rule], "of own", ">= 1"
        )
