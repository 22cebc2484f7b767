"""One job over a limited link, as cold and epoch measure it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lab import clipart, reference
from lab.world import World, open_world
from local import QUIVER

RATE = 4_000_000  # bytes/s on the wire
BATCH = 4
# Set, for the default's "5 s of the link" is a third of a dataset as small as this one; 1.6 %
# of it are 20 steps. The link of the bench does not wander.
WINDOW = "1.6%"

# One JSON object per epoch: the loader's report, its seconds and those of its compute, the bytes
# on the wire.
JOB = """
import json, sys, time
from pathlib import Path
import quiver_cache.torch as qt
url, epochs, compute, counter = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
wire = lambda: int(Path(counter).read_text())
data = getattr(qt, sys.argv[6])(url)
loader = qt.DataLoader(data, batch_size=int(sys.argv[5]), shuffle=True, seed=1, collate_fn=list)
for epoch in range(epochs):
    before, started, computed = wire(), time.monotonic(), 0.0
    for batch in loader:
        if compute:
            began = time.monotonic()
            time.sleep(compute * len(batch))
            computed += time.monotonic() - began
    print(json.dumps({**loader.report(), "seconds": time.monotonic() - started,
                      "computed": computed, "wire": wire() - before}), flush=True)
"""


@dataclass(eq=False)
class Bench:
    world: World
    keys: list[str]
    total: int

    def rate(self) -> reference.LinkRate:
        return reference.measure(self.world.link, self.world.bucket, self.keys)

    def environment(self, share: float, window: str) -> dict[str, str]:
        limit = str(int(self.total * share))
        return self.world.environment("cache", QUIVER_DISK_LIMIT=limit, QUIVER_WINDOW=window)

    @contextlib.contextmanager
    def daemon(self, share: float, window: str = WINDOW) -> Iterator[dict[str, str]]:
        """An empty cache of this share of the data; the environment that leads to it."""
        environment = self.environment(share, window)
        try:
            yield environment
        finally:
            subprocess.run([QUIVER, "stop"], env=environment, capture_output=True, check=False)
            subprocess.run(["rm", "-rf", environment["QUIVER_CACHE_DIR"]], check=True)

    def epochs(
        self, environment: dict[str, str], count: int, compute: float, url: str = "", kind: str = "Dataset"
    ) -> list[dict]:
        """`url`: of another dataset in the bucket; `kind`: its class."""
        counter = f"/sys/class/net/{self.world.link.device}/statistics/rx_bytes"
        url = url or f"{self.world.bucket.url}/data"
        command = [sys.executable, "-c", JOB, url, str(count), str(compute), counter, str(BATCH), kind]
        done = subprocess.run(command, env=environment, check=True, text=True, stdout=subprocess.PIPE)
        return [json.loads(line) for line in done.stdout.splitlines()]


@dataclass(frozen=True)
class Pinned:
    of_bytes: float  # p: sets the time of an epoch
    of_items: float  # what hits, counted in samples, can be


def pinned_share(environment: dict[str, str]) -> Pinned:
    done = subprocess.run(
        [QUIVER, "status", "--json"], env=environment, text=True, stdout=subprocess.PIPE, check=False
    )
    dataset = json.loads(done.stdout)["datasets"][0]
    return Pinned(
        float(dataset["pinned_bytes"]) / float(dataset["bytes"]),
        float(dataset["pinned_items"]) / float(dataset["items"]),
    )


def even_objects(count: int = 5000, size: int = 10_000) -> Iterator[tuple[str, bytes]]:
    """Of one length: the time of a step is that of its bytes, and waits of steps can be compared."""
    source = random.Random(1)
    for i in range(count):
        yield f"{i:06}", source.randbytes(size)


@contextlib.contextmanager
def open_bench(rate: int = RATE, objects: Iterable[tuple[str, bytes]] | None = None) -> Iterator[Bench]:
    """The objects, all distinct, behind a limited link, and digested; clipart where none are given."""
    if os.geteuid() != 0:
        sys.exit("bench: run as root: the wire's bytes are counted in a network namespace")
    with open_world("bench") as world:
        objects = list(clipart.objects(distinct=True) if objects is None else objects)
        world.bucket.put_all((f"data/{key}", data) for key, data in objects)
        world.link.limit(rate)
        bench = Bench(world, [f"data/{k}" for k, _ in objects], sum(len(d) for _, d in objects))
        digest = [QUIVER, "digest", f"{world.bucket.url}/data", "--layout", "files", "--json"]
        with bench.daemon(0.01) as environment:
            subprocess.run(digest, env=environment, check=True, stdout=subprocess.DEVNULL)
        yield bench
