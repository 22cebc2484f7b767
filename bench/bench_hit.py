"""A hit: Dataset::read of resident items of 110 KB against pread from one page-cached file."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from figures import REPEATS, Figure, median_ratio
from local import BUILD, open_place

ITEMS, SIZE = 6000, 110_000


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def figures() -> Iterator[Figure]:
    with open_place() as place:
        items = place.make_items(ITEMS, SIZE)
        plain = place.folder / "plain"
        with plain.open("wb") as out:
            for item in sorted(items.iterdir()):
                out.write(item.read_bytes())
        manifest = place.digest_and_warm(items)
        daemon = place.status()["pid"]
        plain.read_bytes()  # into the page cache
        time.sleep(6)  # the daemon brings what was filled to the disk: that is no part of a hit
        used, started = cpu_seconds(daemon), time.monotonic()
        command = [str(BUILD / "bench_hit"), str(manifest), str(plain), str(8 * REPEATS)]
        done = subprocess.run(command, env=place.environment, check=True, text=True, stdout=subprocess.PIPE)
        share = (cpu_seconds(daemon) - used) / (time.monotonic() - started)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        ratio, ours, reference = median_ratio((r["ours"], r["reference"]) for r in rows)
        yield Figure("hit.rate.110k", ratio, ours, reference, "items/s", ">= 0.9")
        yield Figure("hit.daemon_cpu.110k", share, share, 1.0, "cores", "<= 0.01")
