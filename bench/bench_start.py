"""From after `import torch` to the first batch: a digested dataset, no daemon running."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from figures import REPEATS, Figure, median_ratio
from local import Place, open_place

GOAL_S = 2.0
PROGRAM = """
import sys, time
import torch
started = time.monotonic()
import quiver_cache.torch as qt
loader = qt.DataLoader(qt.Dataset(sys.argv[1]), batch_size=64, shuffle=True, num_workers=2,
                       collate_fn=list)
next(iter(loader))
print(time.monotonic() - started)
"""


def first_batch(place: Place, manifest: str) -> float:
    place.quiver("stop")
    command = [sys.executable, "-c", PROGRAM, manifest]
    done = subprocess.run(command, env=place.environment, check=True, text=True, stdout=subprocess.PIPE)
    return float(done.stdout.split()[-1])


def figures() -> Iterator[Figure]:
    with open_place() as place:
        manifest = str(place.digest_and_warm(place.make_items(20_000, 10_000)))
        ratio, ours, reference = median_ratio((first_batch(place, manifest), GOAL_S) for _ in range(REPEATS))
        yield Figure("start.first_batch.20k", ratio * GOAL_S, ours, reference, "s", f"<= {GOAL_S:g}")
