"""A training job as a program: writes each sample that its loop was given, and its state.

python job.py URL OUT [--epochs N] [--workers N] [--batch N] [--step-s S] [--resume]
OUT.log has one line per step: epoch and the samples' digests; OUT.state the state after it.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import quiver_cache.torch as qt
from helpers import as_list, digest


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("out")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--step-s", type=float, default=0.0)
    arguments = parser.parse_args()
    state_file = Path(arguments.out + ".state")
    data = qt.Dataset(arguments.url, digest)
    loader = qt.DataLoader(data, arguments.batch, True, num_workers=arguments.workers, collate_fn=as_list)
    epoch = 0
    if state_file.exists():
        state = json.loads(state_file.read_text())
        loader.load_state_dict(state)
        epoch = state["epoch"]
    for number in range(epoch, arguments.epochs):
        for batch in loader:
            save(arguments.out, number, batch, loader.state_dict())
            time.sleep(arguments.step_s)


def save(out: str, epoch: int, batch: list[str], state: object) -> None:
    """The state first, with the line in it: killed in between, neither counts twice."""
    line = json.dumps({"epoch": epoch, "batch": batch})
    temporary = Path(out + ".state.new")
    temporary.write_text(json.dumps({**state, "line": line}))  # type: ignore[dict-item]
    os.replace(temporary, out + ".state")
    with open(out + ".log", "a") as log:
        log.write(line + "\n")


if __name__ == "__main__":
    main()
