"""record= and replay=: the batches that a rank was given, one JSON object a line."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

from .. import _core
from ..errors import InvalidError, NotFoundError

Batches = dict[int, list[list[int]]]  # by epoch, in the order of delivery


class Recorder:
    """Appends each batch when it is delivered. Opened by the first one; flushed at each line."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._file: TextIO | None = None
        self._chain: _core.DeliveryChain | None = None

    @property
    def is_new(self) -> bool:
        return self._chain is None

    def restart(self) -> None:
        """A state was loaded: the chain goes on from there."""
        self._chain = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None, "_chain": None}

    def add(self, epoch: int, step: int, rank: int, ids: list[int], start: str) -> None:
        """`start` is the chain before the first of these batches."""
        if self._file is None:
            self._file = open(self._path, "a", encoding="ascii")  # noqa: SIM115
        if self._chain is None:
            self._chain = _core.DeliveryChain(start)
        self._chain.add(epoch, step, rank, ids)
        line = {"epoch": epoch, "step": step, "rank": rank, "ids": ids, "chain": self._chain.value}
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._file.flush()


def read_replay(source: Any, rank: int) -> Batches:
    """From a file of `record=`, or a list of such objects, or a list of lists (one epoch).

    A run that crashed and went on from an older checkpoint has recorded some steps twice: a step's
    later record replaces the earlier ones from that step on.
    """
    entries: Iterable[Any] = source
    if isinstance(source, (str, os.PathLike)):
        entries = _read_lines(os.fspath(source))
    epochs: dict[int, dict[int, list[int]]] = {}  # by step, in the order of delivery
    for entry in entries:
        if not isinstance(entry, Mapping):
            given = epochs.setdefault(0, {})
            given[len(given)] = [int(i) for i in entry]
        elif entry.get("rank", 0) == rank:
            given = epochs.setdefault(int(entry["epoch"]), {})
            step = int(entry.get("step", len(given)))
            if step in given:
                for undone in [s for s in given if s >= step]:
                    del given[undone]
            given[step] = [int(i) for i in entry["ids"]]
    if not epochs:
        raise InvalidError(f"replay= has no batch of rank {rank} in it: pass what record= wrote")
    return {epoch: list(given.values()) for epoch, given in epochs.items()}


def _read_lines(path: str) -> list[Any]:
    try:
        with open(path, encoding="utf-8") as lines:
            return [json.loads(line) for line in lines if line.strip()]
    except FileNotFoundError as missing:
        raise NotFoundError(f"replay={path}: no such file; pass what record= wrote") from missing
    except ValueError as problem:
        raise InvalidError(f"replay={path}: {problem}; pass what record= wrote") from problem
