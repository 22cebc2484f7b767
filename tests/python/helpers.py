"""What several test files share; importable by spawned workers."""

from __future__ import annotations

import hashlib
import io
import random
import tarfile
from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch


def digest(buffer: Any) -> str:
    """A sample stands for its content."""
    return hashlib.sha256(buffer).hexdigest()


def digests(files: dict[str, bytes], suffix: str = ".png") -> Counter[str]:
    return Counter(digest(body) for key, body in files.items() if key.endswith(suffix))


def numbers(buffer: Any) -> int:
    return int(bytes(buffer))


def augment(buffer: Any) -> tuple[str, float, float]:
    """Depends on the random states that user code has."""
    return digest(buffer), float(torch.rand(())), random.random()


def as_list(samples: list[Any]) -> list[Any]:
    return samples


def flat(batches: Iterable[Iterable[Any]]) -> list[Any]:
    return [sample for batch in batches for sample in batch]


def numbered(count: int) -> dict[str, bytes]:
    """Items whose content is their number in the manifest's order."""
    return {f"{i:05d}.txt": str(i).encode() for i in range(count)}


def tar_of(files: Iterable[tuple[str, bytes]], form: int = tarfile.PAX_FORMAT) -> bytes:
    return tar_of_members(((name, body, tarfile.REGTYPE) for name, body in files), form)


def tar_of_members(members: Iterable[tuple[str, bytes, bytes]], form: int = tarfile.PAX_FORMAT) -> bytes:
    """An archive of (name, content, type)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for name, body, kind in members:
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname = kind, len(body), "elsewhere"
            tar.addfile(info, io.BytesIO(body))
    return out.getvalue()


def run_rank(rank: int, url: str, begun: Any, go_on: Any) -> None:
    """One of two ranks, in a process of its own: stands after its first batch until it may go on."""
    import quiver_cache.torch as qt

    loader = qt.DataLoader(qt.Dataset(url, numbers), 2, True, seed=1, rank=rank, world_size=2)
    batches = iter(loader)
    next(batches)
    begun.put(rank)
    go_on.wait(60)
    list(batches)
