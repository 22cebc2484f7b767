"""Jobs in company: over the same content, with other credentials, over other versions of it."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import quiver_cache.torch as qt
from conftest import daemons_of, wait_until
from helpers import as_list, digest, digests, flat
from lab.s3 import Bucket
from quiver_cache import errors
from quiver_cache._programs import find_program

Upload = Callable[[str, dict[str, bytes]], str]


def blobs(count: int, size: int, seed: int, first: int = 0) -> dict[str, bytes]:
    noise = random.Random(seed)
    return {f"{i:05d}.bin": noise.randbytes(size) for i in range(first, first + count)}


def status() -> Any:
    command = [find_program("quiver"), "status", "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def loader_of(data: qt.Dataset, batch: int = 5) -> Any:
    return qt.DataLoader(data, batch, True, collate_fn=as_list)


@pytest.fixture
def digested(upload: Upload, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Uploads files and makes their manifest without a daemon: the cache has nothing of them yet."""

    def make(prefix: str, files: dict[str, bytes], **settings: object) -> str:
        url = upload(prefix, files)
        with monkeypatch.context() as without:
            without.setenv("QUIVER", "off")
            qt.Dataset(url, **settings)  # type: ignore[arg-type]
        return url

    return make


def warnings_of(place: Path, what: str) -> list[str]:
    return [line for line in (place / "cache" / "quiverd.log").read_text().splitlines() if what in line]


@pytest.mark.parametrize("batch, small", [(8, False), (60, True)])
def test_a_cache_smaller_than_the_window(place: Path, upload: Upload, batch: int, small: bool) -> None:
    files = blobs(400, 20_000, seed=1)
    url = upload("blobs400", files)
    data = qt.Dataset(url, digest, disk_limit="2MB", window="200kB")
    loader = loader_of(data, batch)
    began = time.monotonic()
    for _ in range(2):
        assert Counter(flat(loader)) == digests(files, ".bin")
    assert time.monotonic() - began < 12
    told = warnings_of(place, "fewer than two steps of its jobs")
    assert len(told) == (1 if small else 0)
    assert not small or "raise disk_limit or lower batch_size" in told[0]


@pytest.mark.parametrize("at_once", [True, False])
def test_datasets_that_share_content(place: Path, digested: Callable[..., str], at_once: bool) -> None:
    """60 of the 100 items of each are the other's too, under other keys."""
    common = list(blobs(60, 10_000, seed=2).values())
    mine, yours = (
        {**{f"{name}{i}.bin": body for i, body in enumerate(common)}, **blobs(40, 10_000, seed)}
        for name, seed in (("a", 3), ("b", 4))
    )
    sets = [
        qt.Dataset(digested(f"overlap{at_once}{name}", files), digest, rate_limit="3MB/s")
        for name, files in (("a", mine), ("b", yours))
    ]
    loaders = [loader_of(data) for data in sets]
    steps = zip(*loaders, strict=True) if at_once else itertools.zip_longest(loaders[0], [])
    got: list[list[str]] = [[], []]
    for pair in steps:
        for side, batch in enumerate(pair):
            got[side] += batch or []
    got[1] += [] if at_once else flat(loaders[1])
    assert [Counter(side) for side in got] == [digests(mine, ".bin"), digests(yours, ".bin")]

    def served() -> list[int]:
        return [job["served"]["items"] for its in status()["datasets"] for job in its["jobs"]]

    wait_until(lambda: served() == [100, 100])
    now = status()
    assert now["disk"]["items"] == 140
    ids = [data.source.manifest.public_id for data in sets]
    of = {dataset["id"]: dataset for dataset in now["datasets"]}
    assert sorted(of) == sorted(ids)
    for its in of.values():
        assert (its["items"], its["items_here"], its["bytes_here"]) == (100, 100, 1_000_000)
        assert sum(its["read_again"].values()) == 0
    assert sum(its["origin_reads"] for its in of.values()) == 140
    assert sum(its["origin_bytes"] for its in of.values()) == 1_400_000
    if not at_once:
        assert [of[i]["origin_reads"] for i in ids] == [100, 40]
    (first,), (second,) = (of[i]["jobs"] for i in ids)
    for job in (first, second):
        assert job["served"]["direct"] == 0
    if at_once:
        assert first["served"]["shared"] + second["served"]["shared"] >= 1
    said = json.dumps(now)
    assert not any(secret in said for secret in ("a0.bin", "b0.bin", "overlap", "pythontests"))
    for _ in range(2):  # and are hits for both from now on
        assert [len(flat(loader)) for loader in loaders] == [100, 100]
    assert sum(its["origin_reads"] for its in status()["datasets"]) == 140


class Accounts:
    """The S3 server's identities; the server reads them anew when it is told to."""

    def __init__(self, folder: Path, server: Bucket) -> None:
        self._folder, self._server = folder, server
        self._first = json.loads((folder / "s3.json").read_text())
        self._now: dict[str, bool] = {}

    def set(self, **readers: bool) -> None:
        """Each may read the bucket, or not."""
        self._now.update(readers)
        others = [
            {
                "name": name,
                "credentials": [{"accessKey": name, "secretKey": f"{name}-secret"}],
                "actions": [f"{what}:{self._server.name if may else 'another'}" for what in ("Read", "List")],
            }
            for name, may in self._now.items()
        ]
        self._write({"identities": [*self._first["identities"], *others]})
        wait_until(lambda: all(self._may(name) == may for name, may in self._now.items()))

    def _write(self, config: object) -> None:
        new = self._folder / "s3.json.new"
        new.write_text(json.dumps(config))
        new.replace(self._folder / "s3.json")
        os.kill(int((self._folder / "weed.pid").read_text()), signal.SIGHUP)

    def _may(self, name: str) -> bool:
        bucket = Bucket(self._server.endpoint, self._server.name, name, f"{name}-secret")
        try:
            bucket.get("accounts")
        except OSError as refusal:
            assert "403" in str(refusal) or "404" in str(refusal), refusal
            return "403" not in str(refusal)
        return True

    def reset(self) -> None:
        self._write(self._first)


def keys(name: str) -> dict[str, str]:
    return {"access_key": name, "secret_key": f"{name}-secret"}


@pytest.fixture
def accounts(server: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Accounts]:
    (folder,) = (p.parent for p in tmp_path_factory.getbasetemp().glob("seaweed[0-9]*/s3.json"))
    server.put("accounts", b"of whoever may read this")
    made = Accounts(folder, server)
    yield made
    made.reset()


def test_credentials_that_are_revoked(
    place: Path, digested: Callable[..., str], accounts: Accounts, caplog: pytest.LogCaptureFixture
) -> None:
    accounts.set(alice=True, bob=True)
    files = blobs(120, 10_000, seed=5)
    url = digested("revoked", files)
    alice, bob = (loader_of(qt.Dataset(url, digest, **keys(name), name=name)) for name in ("alice", "bob"))
    batches = zip(alice, bob, strict=False)
    got: list[list[str]] = [[], []]
    for _ in range(4):
        for side, batch in enumerate(next(batches)):
            got[side] += batch
    accounts.set(alice=False)
    for pair in batches:
        for side, batch in enumerate(pair):
            got[side] += batch
    # Bob pays for what both want; Alice holds the manifest and gets what he brings.
    assert [Counter(side) for side in got] == [digests(files, ".bin")] * 2
    assert not bob.report()["degraded"]
    assert bob.report()["origin_bytes"] <= 1_200_000
    assert "past the daemon" not in caplog.text
    assert len(flat(alice)) == 120
    assert sum(dataset["origin_reads"] for dataset in status()["datasets"]) <= 120 + 16


def test_revoked_and_alone(place: Path, digested: Callable[..., str], accounts: Accounts) -> None:
    """What the cache has, and no more; not even as somebody who wants it no more."""
    accounts.set(carol=True, dave=True)
    files = blobs(40, 10_000, seed=6)
    url = digested("alone", files)
    carol, dave = (qt.Dataset(url, digest, **keys(name), name=name) for name in ("carol", "dave"))
    cached = {carol[i] for i in range(10)}
    assert len(cached) == 10
    assert dave[0] in cached  # he has it open, and wants nothing else
    accounts.set(carol=False)
    assert {carol[i] for i in range(10)} == cached
    with pytest.raises(errors.DeniedError, match=r"00020\.bin"):
        carol[20]
    assert dave[20] == digest(files["00020.bin"])
    assert carol[20] == dave[20]
    assert Counter(flat(loader_of(dave))) == digests(files, ".bin")
    assert Counter(flat(loader_of(carol))) == digests(files, ".bin")


def test_who_may_not_read_and_has_no_manifest(
    place: Path, digested: Callable[..., str], accounts: Accounts
) -> None:
    accounts.set(erin=True, frank=False)
    url = digested("closed", blobs(10, 1_000, seed=7))
    assert len(flat(loader_of(qt.Dataset(url, digest, **keys("erin"))))) == 10
    for lazily in ("lazy", "first"):
        with pytest.raises(errors.DeniedError, match="denied"):
            qt.Dataset(url, digest, **keys("frank"), manifest_dir=str(place / "franks"), digest=lazily)
    assert not list((place / "franks").glob("*.qvm"))


def test_the_same_content_where_only_one_may_read(
    place: Path, digested: Callable[..., str], accounts: Accounts
) -> None:
    """Of two datasets with the same items one has lost its credentials: the other's serve both."""
    accounts.set(grace=True, heidi=True)
    common = blobs(60, 10_000, seed=8)
    of = {"grace": common, "heidi": {**common, "own.bin": b"heidi"}}
    sets = [qt.Dataset(digested(f"copy{name}", of[name]), digest, **keys(name)) for name in of]
    accounts.set(grace=False)
    grace, heidi = (loader_of(data) for data in sets)
    theirs = iter(heidi)
    got: list[list[str]] = [[], next(theirs)]
    for pair in itertools.zip_longest(grace, theirs, fillvalue=[]):
        for side, batch in enumerate(pair):
            got[side] += batch
    assert [Counter(side) for side in got] == [digests(files, ".bin") for files in of.values()]
    assert not heidi.report()["degraded"]
    assert not grace.report()["degraded"]


def test_two_versions_of_one_dataset(place: Path, digested: Callable[..., str], upload: Upload) -> None:
    before = blobs(40, 5_000, seed=9)
    url = digested("versions", before)
    old = qt.Dataset(url, digest)
    kept = old[3]
    after = {**before, **blobs(5, 5_000, seed=10)}
    upload("versions", dict(itertools.islice(after.items(), 5)))
    newer = {"manifest_dir": str(place / "newer")}
    digested("versions", {}, **newer)
    new = qt.Dataset(url, digest, **newer)
    loaders = [qt.DataLoader(old, 5, True, collate_fn=as_list, on_bad_sample="skip"), loader_of(new)]
    got: list[list[str]] = [[], []]
    for pair in itertools.zip_longest(*loaders, fillvalue=[]):
        for side, batch in enumerate(pair):
            got[side] += batch
    assert Counter(got[1]) == digests(after, ".bin")
    # The old ones: what had been read before the change is in the cache.
    still = {**{k: v for k, v in before.items() if before[k] == after[k]}, "00003.bin": before["00003.bin"]}
    assert Counter(got[0]) == digests(still, ".bin")
    assert old[3] == kept
    with pytest.raises(errors.ChangedError, match=r"00004\.bin.*digest"):
        old[4]
    assert new[4] == digest(after["00004.bin"])
    assert not loaders[1].report()["degraded"]


def test_a_manifest_of_another_bucket(
    place: Path, digested: Callable[..., str], server: Bucket, upload: Upload
) -> None:
    files = blobs(12, 2_000, seed=11)
    data = qt.Dataset(digested("moved", files), digest)
    for key in files:
        server.delete(f"moved/{key}")
    upload("moved", {"00007.bin": b"another"})
    for item, kind in ((2, errors.NotFoundError), (7, errors.ChangedError)):
        began = time.monotonic()
        with pytest.raises(kind, match=rf"0000{item}\.bin.*digest") as caught:
            data[item]
        assert len(str(caught.value)) < 500
        assert time.monotonic() - began < 3
    assert flat(qt.DataLoader(data, 4, True, on_bad_sample="skip")) == []
    assert len(daemons_of(place / "cache")) == 1
