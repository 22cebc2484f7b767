"""Tar archives, unconverted: the samples of the webdataset package, whatever is in an archive."""

from __future__ import annotations

import gzip
import itertools
import json
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
import quiver_cache.torch as qt
from conftest import ROOT
from helpers import flat, tar_of, tar_of_members
from quiver_cache._programs import find_program
from quiver_cache.errors import BadSampleError, CorruptError, InvalidError, QuiverError
from webdataset.tariterators import tarfile_samples

Upload = Callable[[str, dict[str, bytes]], str]
Member = tuple[str, bytes, bytes]  # name, content, type


def files(count: int, shard: int) -> list[tuple[str, bytes]]:
    return [
        (f"{i:03d}.{extension}", f"{shard} {i} {extension}".encode() * 50)
        for i in range(count)
        for extension in ("jpg", "cls")
    ]


def samples_by_webdataset(paths: Iterable[Path]) -> list[dict[str, Any]]:
    return list(tarfile_samples([{"url": str(path)} for path in paths]))


def alone(folder: Path) -> dict[str, Any]:
    """Without a cache, and with the manifest beside the data."""
    return {"enabled": False, "manifest_dir": str(folder / "manifests")}


def content(samples: Iterable[Any]) -> list[Any]:
    return sorted((s["__key__"], s["jpg"], s["cls"]) for s in samples)


# --- which files are a sample

ODD = "a.b/1.1.png|./x|./x.png|x.|.hidden|d/.hidden.png|caf\u00e9.jpg|cafe\u0301.jpg|\udce9.jpg|x.JPG|x.jpg"
ODD += "|x.Jpg|__meta__/x.jpg|Track 2.0 (Clean Version).mp3|/some/path/22.0/1.1.png|some/path/22.0/1.2.png"
NAMES = st.one_of(
    st.text("ab./_ \n", min_size=1, max_size=12), st.sampled_from([*ODD.split("|"), "n" * 200 + ".jpg"])
)
KINDS = st.sampled_from(
    [tarfile.REGTYPE] * 6
    + [
        tarfile.AREGTYPE,
        tarfile.CONTTYPE,
        tarfile.DIRTYPE,
        tarfile.SYMTYPE,
        tarfile.LNKTYPE,
        tarfile.FIFOTYPE,
    ]
)
BODIES = st.one_of(st.binary(max_size=9), st.sampled_from([b"", b"x" * 511, b"y" * 512, b"z" * 513]))


def has_content(name: str, kind: bytes) -> bool:
    folder = kind == tarfile.AREGTYPE and name.endswith("/")  # as before ustar
    return kind in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE) and not folder


def is_writable(name: str, form: int) -> bool:
    if form != tarfile.USTAR_FORMAT:
        return True
    return len(name.encode(errors="surrogateescape")) <= 100


FORMS = st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
MEMBERS = st.lists(st.tuples(NAMES, BODIES, KINDS), max_size=8)


def compare_with_webdataset(archive: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "t.tar"
        path.write_bytes(archive)
        try:
            expected = samples_by_webdataset([path])
        except ValueError:  # a name twice in a row
            data = qt.WebDataset(name, **alone(Path(name)))
            with pytest.raises(BadSampleError, match="two files"):
                for i in range(len(data)):
                    data[i]
            return
        if not expected:
            with pytest.raises(InvalidError, match="no sample"):
                qt.WebDataset(name, **alone(Path(name)))
            return
        data = qt.WebDataset(name, **alone(Path(name)))
        assert [data[i] for i in range(len(data))] == expected


@hypothesis.given(FORMS, MEMBERS)
@hypothesis.settings(max_examples=100, deadline=None, database=None, derandomize=True)
def test_samples_are_those_of_webdataset(form: int, members: list[Member]) -> None:
    writable = [
        (name, body if has_content(name, kind) else b"", kind)
        for name, body, kind in members
        if is_writable(name, form)
    ]
    compare_with_webdataset(tar_of_members(writable, form))


@pytest.mark.parametrize("path", sorted((ROOT / "tests/vectors/tar").glob("tar*.tar")), ids=lambda p: p.stem)
def test_samples_of_archives_of_other_programs(path: Path) -> None:
    compare_with_webdataset(path.read_bytes())


# Another number after the first dot is no other sample, and a stem ends at the first dot of its own name.
def test_names_with_dots_and_folders(tmp_path: Path) -> None:
    names = ["a.b/1.1.png", "./x", "x.", ".hidden", "k" * 200 + ".jpg", "Track 2.0 (Clean Version).mp3"]
    names += ["caf\u00e9.jpg", "cafe\u0301.jpg", "/some/path/22.0/1.1.png"]
    archive = tar_of([(name, name.encode()) for name in names])
    compare_with_webdataset(archive)
    (tmp_path / "t.tar").write_bytes(archive)
    keys = [s["__key__"] for s in samples_by_webdataset([tmp_path / "t.tar"])]
    assert keys == ["a.b/1", "x", "k" * 200, "Track 2", "caf\u00e9", "cafe\u0301", "/some/path/22.0/1"]


# --- from a bucket to batches


@pytest.fixture
def shards(upload: Upload, request: pytest.FixtureRequest) -> Iterator[tuple[str, list[Any]]]:
    """The URL of four archives of 25 samples each, and what is in them."""
    bodies = {f"train-{i:03d}.tar": tar_of(files(25, i)) for i in range(4)}
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for name, body in bodies.items():
            paths.append(Path(folder) / name)
            paths[-1].write_bytes(body)
        yield upload("wds", bodies), content(samples_by_webdataset(paths))


@pytest.mark.parametrize(("digest", "workers"), [("first", 2), ("lazy", 0), ("lazy", 2)])
def test_epochs_over_archives(place: Path, shards: tuple[str, list[Any]], digest: str, workers: int) -> None:
    url, expected = shards
    data = qt.WebDataset(url, digest=digest)
    assert data.source.manifest.provisional == (digest == "lazy")
    loader = qt.DataLoader(data, 8, shuffle=True, num_workers=workers, collate_fn=list, seed=3)
    orders = []
    for _ in range(2):
        epoch = flat(loader)
        assert content(epoch) == expected
        orders.append([(s["__url__"], s["__key__"]) for s in epoch])
    assert orders[0] != orders[1]
    assert loader.report()["hits"] == 100
    assert {address for address, _ in orders[0]} == {f"{url}/train-{i:03d}.tar" for i in range(4)}


def test_a_state_goes_on(place: Path, shards: tuple[str, list[Any]]) -> None:
    url, expected = shards
    loader = qt.DataLoader(qt.WebDataset(url), 10, shuffle=True, collate_fn=list)
    seen = flat(itertools.islice(loader, 4))
    state = loader.state_dict()
    again = qt.DataLoader(qt.WebDataset(url), 10, shuffle=True, collate_fn=list)
    again.load_state_dict(state)
    assert content(seen + flat(again)) == expected


def test_functions_by_extension(place: Path, shards: tuple[str, list[Any]]) -> None:
    data = qt.WebDataset(shards[0], {"CLS": len, "png": len}, lambda s: (s["__key__"], s["cls"]))
    assert data[0] == ("000", 7 * 50)
    keys, lengths = next(iter(qt.DataLoader(data, 4)))
    assert list(keys) == ["000", "001", "002", "003"]
    assert lengths.tolist() == [350] * 4
    with pytest.raises(InvalidError, match="transform="):
        qt.WebDataset(shards[0], len)  # type: ignore[arg-type]


def test_a_range_of_archives(place: Path, shards: tuple[str, list[Any]]) -> None:
    url, _ = shards
    some = qt.WebDataset(url + "/train-{001..002}.tar")
    assert content(flat(qt.DataLoader(some, 5, collate_fn=list))) == content(
        s for s in (qt.WebDataset(url)[i] for i in range(25, 75))
    )
    assert len(qt.WebDataset(url + "/train-003.tar")) == 25
    with pytest.raises(InvalidError, match="range of numbers"):
        qt.WebDataset(url + "/train-{a,b}.tar")
    with pytest.raises(QuiverError, match=r"train-004\.tar"):
        qt.WebDataset(url + "/train-{003..004}.tar")


# Another archive of the same last name, another name behind a '?', are other archives.
def test_archives_of_one_name_are_told_apart(place: Path, upload: Upload) -> None:
    names = ["a/000.tar", "b/000.tar", "c/0.tar?x", "c/0?x.tar", "c/0?y.tar", "c/0%3Fx.tar"]
    bodies = {name: tar_of(files(5, shard)) for shard, name in enumerate(names)}
    url = upload("samenames", bodies)
    data = qt.WebDataset(url)
    assert len(data) == 25, "what does not end in .tar is none"
    wanted = {name: content(samples_of(body)) for name, body in bodies.items() if name.endswith(".tar")}
    loader = qt.DataLoader(data, 4, shuffle=True, collate_fn=list)
    for _ in range(2):
        read: dict[str, list[Any]] = {}
        for sample in flat(loader):
            read.setdefault(sample["__url__"].removeprefix(url + "/"), []).append(sample)
        assert {name: content(samples) for name, samples in read.items()} == wanted
    assert loader.report()["hits"] == 25


def samples_of(archive: bytes) -> list[dict[str, Any]]:
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        file.write(archive)
        file.flush()
        return samples_by_webdataset([Path(file.name)])


def test_sources_of_one_first_word_are_told_apart(place: Path, upload: Upload) -> None:
    prefix = "a-long-prefix-that-three-sources-have-in-common/shards-of-the-dataset"
    seen = []
    for shard in range(3):
        url = upload(f"{prefix}-{shard}", {"0.tar": tar_of(files(5, shard))})
        seen.append(content(flat(qt.DataLoader(qt.WebDataset(url), 2, True, collate_fn=list))))
        assert seen[-1] == content(samples_of(tar_of(files(5, shard))))
    assert len({str(samples) for samples in seen}) == 3
    with pytest.raises(QuiverError, match="s3://"):
        qt.WebDataset("pipe:s3cmd get s3://bucket/train-000.tar -")


# --- digest


def cli(*arguments: str) -> Any:
    command = [find_program("quiver"), "digest", "--json", "--layout", "webdataset", *arguments]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def test_only_archives_that_have_changed_are_read_again(place: Path, upload: Upload) -> None:
    bodies = {f"{i}.tar": tar_of(files(10, i)) for i in range(3)}
    url = upload("renewed", bodies | {"readme.txt": b"no archive"})
    first = cli(url)
    assert (first["items"], first["downloaded"], first["left_out"]) == (30, 30, 1)
    assert first["downloaded_bytes"] <= sum(map(len, bodies.values()))
    assert first["kept"] == 30
    same = cli(url)
    assert (same["downloaded"], same["downloaded_bytes"], same["unchanged"]) == (0, 0, 30)
    assert same["id"] == first["id"]
    upload("renewed", {"1.tar": tar_of(files(11, 1))})
    news = cli(url)
    assert (news["unchanged"], news["added"], news["changed"], news["removed"]) == (20, 1, 0, 0)
    assert news["id"] == cli(url, "--fresh")["id"]


def test_a_lazy_dataset_becomes_the_digested_one(place: Path, shards: tuple[str, list[Any]]) -> None:
    loader = qt.DataLoader(qt.WebDataset(shards[0], digest="lazy"), 10, True, collate_fn=list)
    assert content(flat(loader)) == shards[1]
    next(iter(loader))  # the second epoch begins
    whole = qt.WebDataset(shards[0])
    other = qt.WebDataset(shards[0], manifest_dir=str(place / "other"))
    assert not whole.source.manifest.provisional
    assert whole.source.manifest.public_id == other.source.manifest.public_id


@pytest.mark.parametrize("digest", ["first", "lazy"])
def test_an_archive_that_is_cut_off_is_named(place: Path, upload: Upload, digest: str) -> None:
    whole = tar_of(files(10, 0))
    url = upload("cut", {"good.tar": whole, "short.tar": whole[:2700]})
    with pytest.raises(CorruptError) as failed:
        qt.WebDataset(url, digest=digest)
    text = str(failed.value)
    assert "short.tar" in text
    assert "ends at byte 2700" in text
    assert "copy or make it again" in text


def test_a_compressed_archive_names_the_cure(tmp_path: Path) -> None:
    (tmp_path / "t.tar").write_bytes(gzip.compress(tar_of(files(3, 0))))
    with pytest.raises(InvalidError, match="gunzip"):
        qt.WebDataset(str(tmp_path), **alone(tmp_path))
    (tmp_path / "t.tar").rename(tmp_path / "t.tar.gz")
    with pytest.raises(InvalidError, match="no archive"):
        qt.WebDataset(str(tmp_path), **alone(tmp_path))
