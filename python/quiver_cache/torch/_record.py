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
        return self._file is None

    def add(self, epoch: int, step: int, rank: int, ids: list[int], start: str) -> None:
        """`start` is the chain before the first of these batches."""
        if self._file is None or self._chain is None:
            self._file = open(self._path, "a", encoding="ascii")  # noqa: SIM115
            self._chain = _core.DeliveryChain(start)
        self._chain.add(epoch, step, rank, ids)
        line = {"epoch": epoch, "step": step, "rank": rank, "ids": ids, "chain": self._chain.value}
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._file.flush()


def read_replay(source: Any, rank: int) -> Batches:
    """From a file of `record=`, or a list of such objects, or a list of lists (one epoch)."""
    entries: Iterable[Any] = source
    if isinstance(source, (str, os.PathLike)):
        entries = _read_lines(os.fspath(source))
    batches: Batches = {}
    for entry in entries:
        if isinstance(entry, Mapping):
            if entry.get("rank", 0) == rank:
                batches.setdefault(int(entry["epoch"]), []).append([int(i) for i in entry["ids"]])
        else:
            batches.setdefault(0, []).append([int(i) for i in entry])
    if not batches:
        raise InvalidError(f"replay= has no batch of rank {rank} in it: pass what record= wrote")
    return batches


def _read_lines(path: str) -> list[Any]:
    try:
        with open(path, encoding="utf-8") as lines:
            return [json.loads(line) for line in lines if line.strip()]
    except FileNotFoundError as missing:
        raise NotFoundError(f"replay={path}: no such file; pass what record= wrote") from missing
    except ValueError as problem:
        raise InvalidError(f"replay={path}: {problem}; pass what record= wrote") from problem
