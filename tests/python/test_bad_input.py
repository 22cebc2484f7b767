"""Bad input: a typed exception whose one sentence names the thing, the reason and the cure."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import quiver_cache.torch as qt
from conftest import BUCKET, make_image
from helpers import digest, flat
from lab.s3 import Bucket
from quiver_cache import errors

Upload = Callable[[str, dict[str, bytes]], str]


def sentence(caught: pytest.ExceptionInfo[Any]) -> str:
    text = str(caught.value)
    assert len(text) < 500
    assert "Traceback" not in text
    return text


def test_wrong_credentials(place: Path, images: dict[str, bytes]) -> None:
    with pytest.raises(errors.DeniedError) as caught:
        qt.ImageFolder(f"s3://{BUCKET}/images", access_key="nobody", secret_key="wrong")
    assert BUCKET in sentence(caught)
    assert "wrong" not in sentence(caught)


def test_missing_bucket(place: Path) -> None:
    with pytest.raises(errors.NotFoundError, match="nosuchbucket"):
        qt.Dataset("s3://nosuchbucket/x")


def test_empty_prefix(place: Path, images: dict[str, bytes]) -> None:
    with pytest.raises((errors.InvalidError, errors.NotFoundError), match="nothing-here"):
        qt.Dataset(f"s3://{BUCKET}/nothing-here")
    with pytest.raises((errors.InvalidError, errors.NotFoundError), match="nothing-here"):
        qt.ImageFolder(f"s3://{BUCKET}/nothing-here")


def test_folder_without_classes(place: Path, tmp_path: Path) -> None:
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat" / "a.png").write_bytes(make_image(1))
    with pytest.raises(errors.InvalidError, match="flat"):
        qt.ImageFolder(str(tmp_path / "flat"))


def test_unreachable(place: Path) -> None:
    with pytest.raises(errors.UnreachableError, match=r"127\.0\.0\.1:9"):
        qt.Dataset("s3://bucket/x", endpoint="http://127.0.0.1:9")


def test_manifests_that_are_none(place: Path, tmp_path: Path) -> None:
    with pytest.raises(errors.NotFoundError, match=r"missing\.qvm"):
        qt.Dataset(str(tmp_path / "missing.qvm"))
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "x").write_bytes(b"x" * 1000)
    whole = Path(qt.Dataset(str(tmp_path / "f")).source.manifest_path).read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 1):
        cut = tmp_path / f"cut{length}.qvm"
        cut.write_bytes(whole[:length])
        with pytest.raises((errors.CorruptError, errors.InvalidError), match=f"cut{length}.qvm"):
            qt.Dataset(str(cut))


@pytest.mark.parametrize("workers", [0, 2])
def test_object_changed_or_deleted(
    place: Path, upload: Upload, server: Bucket, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = f"moving{workers}"
    url = upload(prefix, {f"{i}.txt": f"{i}{i}".encode() for i in range(4)})
    data = qt.Dataset(url, digest)
    server.put(f"{prefix}/2.txt", b"XX")
    monkeypatch.setenv("QUIVER_CACHE_DIR", str(place / "cache" / "other"))  # not what was kept
    data = qt.Dataset(url, digest)
    with pytest.raises(errors.ChangedError, match=r"2\.txt"):
        list(qt.DataLoader(data, 4, num_workers=workers))
    good = list(qt.DataLoader(data, 4, num_workers=workers, on_bad_sample="skip"))
    assert len(flat(good)) == 3
    server.delete(f"{prefix}/2.txt")
    with pytest.raises((errors.NotFoundError, errors.ChangedError), match=r"2\.txt"):
        data[2]


def test_zero_byte_objects(place: Path, upload: Upload) -> None:
    url = upload("zero", {"a": b"", "b": b"b", "c": b""})
    data = qt.Dataset(url, bytes)
    assert [data[i] for i in range(3)] == [b"", b"b", b""]
    for workers in (0, 1):
        loader = qt.DataLoader(data, 2, num_workers=workers)
        assert flat(loader) == [b"", b"b", b""]


@pytest.mark.parametrize("workers", [0, 2])
def test_image_that_does_not_decode(place: Path, tmp_path: Path, workers: int) -> None:
    root = tmp_path / "tree" / "ant"
    root.mkdir(parents=True)
    (root / "good.png").write_bytes(make_image(1))
    (root / "torn.png").write_bytes(make_image(2)[:60])
    (root / "void.png").write_bytes(b"")
    data = qt.ImageFolder(str(tmp_path / "tree"), transform=lambda image: image.size[0])
    assert len(list(qt.DataLoader(data, num_workers=workers, on_bad_sample="skip"))) == 1
    for bad in ("torn", "void"):
        item = next(i for i, key in enumerate(data.keys) if bad in key)
        with pytest.raises(errors.BadSampleError, match=f"ant/{bad}.png") as caught:
            data[item]
        assert "on_bad_sample" in sentence(caught)
    with pytest.raises(errors.BadSampleError, match=r"torn\.png"):
        list(qt.DataLoader(data, 3, num_workers=workers))


def test_budget_below_one_item(place: Path, upload: Upload) -> None:
    """The cache holds nothing; everything is read all the same."""
    files = {f"{i}": os.urandom(300_000) for i in range(3)}
    data = qt.Dataset(upload("large", files), digest, disk_limit="64KB")
    assert sorted(flat(qt.DataLoader(data, 2, True))) == sorted(map(digest, files.values()))


def test_settings(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(tmp_path)
    with pytest.raises(errors.InvalidError, match="disk_limit"):
        qt.Dataset(root, disk_limits="1GB")
    with pytest.raises(errors.InvalidError, match=r"disk_limit.*lots"):
        qt.Dataset(root, disk_limit="lots")
    monkeypatch.setenv("QUIVER_DISK_LIMITT", "1GB")
    with pytest.raises(errors.InvalidError, match="QUIVER_DISK_LIMIT"):
        qt.Dataset(root)
    monkeypatch.delenv("QUIVER_DISK_LIMITT")
    (tmp_path / "quiver.toml").write_text("disk_limit = [")
    monkeypatch.setenv("QUIVER_CONFIG", str(tmp_path / "quiver.toml"))
    with pytest.raises(errors.InvalidError, match=r"quiver\.toml"):
        qt.Dataset(root)
    monkeypatch.setenv("QUIVER_CONFIG", str(tmp_path / "none.toml"))
    with pytest.raises(errors.NotFoundError, match=r"none\.toml"):
        qt.Dataset(root)


def test_folder_for_manifests_that_cannot_be_made(place: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "x").write_bytes(b"x")
    with pytest.raises(errors.InvalidError, match="manifest_dir="):
        qt.Dataset(str(tmp_path / "f"), manifest_dir=str(tmp_path / "file" / "below"))


def test_cache_that_cannot_be_written(place: Path, upload: Upload, tmp_path: Path) -> None:
    """No cache, and a warning; the samples come all the same."""
    (tmp_path / "file").write_text("")
    data = qt.Dataset(
        upload("readonly", {"a": b"a", "b": b"b"}), bytes, cache_dir=str(tmp_path / "file" / "c")
    )
    assert flat(qt.DataLoader(data, 2)) == [b"a", b"b"]


def test_codes() -> None:
    assert errors.InvalidError("x").code == "invalid"
    for name, builtin in [
        ("NotFoundError", FileNotFoundError),
        ("DeniedError", PermissionError),
        ("DeadlineError", TimeoutError),
        ("InvalidError", ValueError),
    ]:
        made = getattr(errors, name)("one sentence")
        assert isinstance(made, builtin)
        assert str(made) == "one sentence"
