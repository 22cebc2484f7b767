"""tools/dev bench NAME [--json]: one benchmark, nothing else running on the machine.

hit     a hit of the C++ client against pread from one page-cached file
loader  qt.DataLoader over a warm cache against torch's over page-cached files, raw bytes
cold    the first epoch through a limited link against what eight connections get from it
epoch   steady epochs at four cache sizes against max(compute, (1-p)D/b)
lazy    a dataset digested while it is trained on for the first time, against one digested before
mixed   four datasets behind one link: what each job gets of its speed, and what follows a change
plan    what `quiver plan` says of an epoch against what it takes
policy  one division of the cache between 200 datasets, and between ten times as many
share   jobs over one dataset: speed, hits, bytes; speeds, joiners, a leader that is killed
start   from after `import torch` to the first batch, no daemon running
tar     epochs over tar archives against the same samples as files
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from figures import show

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

NAMES = ("hit", "loader", "cold", "epoch", "lazy", "mixed", "plan", "policy", "share", "start", "tar")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    arguments = parser.parse_args()
    bench = importlib.import_module(f"bench_{arguments.name}")
    return 0 if show(bench.figures(), as_json=arguments.json) else 1


if __name__ == "__main__":
    sys.exit(main())
