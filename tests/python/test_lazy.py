"""A dataset without a manifest is trained on at once, and digested as it passes."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import quiver_cache.torch as qt
from conftest import daemons_of, wait_until
from helpers import digest, flat, numbered, numbers
from quiver_cache import _core
from quiver_cache._programs import find_program
from quiver_cache.errors import ChangedError

Upload = Callable[[str, dict[str, bytes]], str]


def blobs(count: int, size: int, seed: int) -> dict[str, bytes]:
    noise = random.Random(seed)
    return {f"{i:05d}.bin": noise.randbytes(size) for i in range(count)}


def status() -> Any:
    command = [find_program("quiver"), "status", "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def reads() -> int:
    """That the daemon has made of the origin, for all datasets."""
    return sum(dataset.get("origin_reads", 0) for dataset in status()["datasets"])


def test_it_becomes_the_digested_dataset_without_another_read(place: Path, upload: Upload) -> None:
    files = {**numbered(200), **{f"9{i:04d}.txt": b"7" for i in range(20)}, "empty.txt": b"0"}
    url = upload("lazy", files)
    data = qt.Dataset(url, numbers, digest="lazy")
    assert data.source.manifest.provisional
    assert not (place / "cache").exists(), "nothing has been read yet"
    loader = qt.DataLoader(data, 10, shuffle=True, seed=1)
    wanted = Counter(int(body) for body in files.values())
    assert Counter(int(n) for n in flat(loader)) == wanted
    assert reads() == len(files)

    assert Counter(int(n) for n in flat(loader)) == wanted  # the epoch's beginning made it complete
    assert reads() == len(files)
    assert loader.report()["hits"] == len(files)
    again = qt.Dataset(url, numbers)
    assert not again.source.manifest.provisional
    digested = qt.Dataset(url, numbers, manifest_dir=str(place / "others"))
    assert again.source.manifest.public_id == digested.source.manifest.public_id
    assert Counter(int(n) for n in flat(qt.DataLoader(again, 10, shuffle=True))) == wanted
    assert not list((place / "cache" / "provisional").iterdir())


@pytest.mark.parametrize("workers", [0, 2])
def test_with_a_cache_of_a_quarter(place: Path, upload: Upload, workers: int) -> None:
    files = blobs(800, 40_000, seed=workers)
    url = upload(f"lazyquarter{workers}", files)
    data = qt.Dataset(url, digest_bytes, digest="lazy", disk_limit="8MB", window="1MB")
    loader = qt.DataLoader(data, 8, shuffle=True, num_workers=workers, collate_fn=list)
    wanted = Counter(digest(body) for body in files.values())
    total = []
    for _ in range(4):
        assert Counter(flat(loader)) == wanted
        total.append(reads())
    assert total[0] <= 1.01 * len(files)
    # The second too: what was pinned while nobody knew the hashes is what the complete manifest pins.
    later = [b - a for a, b in itertools.pairwise(total)]
    assert all(0.72 * len(files) <= n <= 0.86 * len(files) for n in later), total


def digest_bytes(buffer: Any) -> str:
    return digest(buffer)


def test_an_interrupted_first_epoch_goes_on(place: Path, upload: Upload) -> None:
    files = blobs(300, 5_000, seed=5)
    url = upload("lazykilled", files)
    options: dict[str, Any] = {"digest": "lazy", "idle_timeout": "600s"}
    loader = qt.DataLoader(qt.Dataset(url, digest_bytes, **options), 10, True, seed=3, collate_fn=list)
    seen = []
    for step, batch in enumerate(loader):
        seen += batch
        if step == 14:
            break
    state = loader.state_dict()
    del loader
    before = status()["datasets"][0]["origin_reads"]
    (daemon,) = daemons_of(place / "cache")
    os.kill(daemon, signal.SIGKILL)
    wait_until(lambda: not daemons_of(place / "cache"))

    resumed = qt.DataLoader(qt.Dataset(url, digest_bytes, **options), 10, True, seed=3, collate_fn=list)
    resumed.load_state_dict(state)
    seen += flat(resumed)
    assert Counter(seen) == Counter(digest(body) for body in files.values())
    assert before + reads() <= len(files) + 20, "what was on its way is read again, and no more"
    assert sum(1 for _ in resumed) == 30
    whole = qt.Dataset(url, digest_bytes, **options)
    assert not whole.source.manifest.provisional
    # A state of the first epoch is one of the complete dataset.
    later = qt.DataLoader(whole, 10, True, seed=3, collate_fn=list)
    later.load_state_dict(state)
    assert len(flat(later)) == 150


def test_an_object_that_changes_before_it_is_read_is_named(place: Path, upload: Upload) -> None:
    url = upload("lazychanged", numbered(30))
    data = qt.Dataset(url, numbers, digest="lazy")
    upload("lazychanged", {"00004.txt": b"4444"})
    loader = qt.DataLoader(data, 5, True, on_bad_sample="skip")
    assert sorted(int(n) for n in flat(loader)) == [n for n in range(30) if n != 4]
    assert sorted(int(n) for n in flat(loader)) == [n for n in range(30) if n != 4]
    assert qt.Dataset(url, numbers, digest="lazy").source.manifest.provisional
    with pytest.raises(ChangedError, match=r"00004\.txt"):
        data[4]


def test_without_a_daemon_it_is_read_directly(
    place: Path, upload: Upload, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = upload("lazyoff", numbered(40))
    monkeypatch.setenv("QUIVER", "off")
    loader = qt.DataLoader(qt.Dataset(url, numbers, digest="lazy"), 8, True)
    for _ in range(2):
        assert sorted(int(n) for n in flat(loader)) == list(range(40))


def test_names_are_private_to_the_user(place: Path, upload: Upload, tmp_path: Path) -> None:
    url = upload("lazyprivate", numbered(10))
    ids = set()
    for folder in ("a", "b"):
        settings = _core.Settings.load({"manifest_dir": str(tmp_path / folder)})
        path = str(tmp_path / f"{folder}.qvm")
        report = _core.digest(
            url,
            layout="files",
            path=path,
            settings=settings,
            credentials=_core.Credentials(),
            daemon_program="",
            allow_empty=False,
            lazy=True,
            progress=lambda _: None,
        )
        ids.add(report.public_id)
    assert len(ids) == 2
