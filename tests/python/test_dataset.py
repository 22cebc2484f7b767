"""Dataset and ImageFolder: torchvision's order, buffers without copies, plain torch loaders."""

from __future__ import annotations

import copy
import io
import multiprocessing
import os
import pickle
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
import quiver_cache.torch as qt
import torch
import torch.utils.data
from conftest import BUCKET, CLASSES
from helpers import digest, digests, flat, numbered, numbers
from PIL import Image
from quiver_cache._core import Sample
from quiver_cache.errors import InvalidError


def write_tree(root: Path, files: dict[str, bytes]) -> str:
    for key, body in files.items():
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        (root / key).write_bytes(body)
    return str(root)


def torchvision_order(root: str) -> list[tuple[str, int]]:
    """The documented rules of torchvision's make_dataset, followed again."""
    extensions = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
    classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    found = []
    for label, name in enumerate(classes):
        for folder, _, names in sorted(os.walk(os.path.join(root, name), followlinks=True)):
            found += [
                (os.path.join(folder, n), label) for n in sorted(names) if n.lower().endswith(extensions)
            ]
    return found


def test_image_folder_is_torchvisions(place: Path, images: dict[str, bytes], tmp_path: Path) -> None:
    expected = torchvision_order(write_tree(tmp_path / "tree", images))
    data = qt.ImageFolder(f"s3://{BUCKET}/images", transform=numpy.asarray)
    assert data.classes == list(CLASSES)
    assert data.class_to_idx == {name: i for i, name in enumerate(CLASSES)}
    assert len(data) == len(expected)
    assert data.targets.tolist() == [label for _, label in expected]
    prefix = str(tmp_path / "tree") + "/"
    assert list(data.keys) == [path.removeprefix(prefix) for path, _ in expected]
    assert data.samples[-1] == (f"s3://{BUCKET}/images/{data.keys[-1]}", 3)
    for i in (0, 1, 50, -1):
        image, label = data[i]
        path, expected_label = expected[i]
        assert label == expected_label
        assert (image == numpy.asarray(Image.open(path).convert("RGB"))).all()


def test_a_second_opening_needs_no_digest(
    place: Path, images: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = qt.ImageFolder(f"s3://{BUCKET}/images")
    monkeypatch.setattr("quiver_cache._core.digest", None)
    again = qt.ImageFolder(f"s3://{BUCKET}/images")
    by_path = qt.ImageFolder(first.source.manifest_path)
    assert len(again) == len(by_path) == len(first)
    assert numpy.asarray(by_path[3][0]).shape[2] == 3


def test_samples_are_buffers(place: Path, tmp_path: Path) -> None:
    data = qt.Dataset(write_tree(tmp_path / "files", numbered(5)))
    sample = data[3]
    assert isinstance(sample, Sample)
    assert (len(sample), bytes(sample), sample.id) == (1, b"3", 3)
    assert sample == b"3"
    assert sample != b"4"
    view = memoryview(sample)
    assert view.readonly
    with pytest.raises(TypeError):
        view[0] = 0
    assert pickle.loads(pickle.dumps(sample)) == b"3"
    assert type(pickle.loads(pickle.dumps(sample))) is bytes
    del data, sample
    assert bytes(view) == b"3"  # the memory lives as long as a view of it
    with pytest.raises(TypeError):
        Sample()


def test_label_less_items_are_samples_alone(place: Path, tmp_path: Path) -> None:
    data = qt.Dataset(write_tree(tmp_path / "files", numbered(4)), decode=numbers)
    assert data.classes == []
    assert [data[i] for i in range(4)] == [0, 1, 2, 3]
    assert data.__getitems__([3, 1]) == [3, 1]
    assert data.targets.tolist() == [-1] * 4
    with pytest.raises(IndexError, match="item 4 of a dataset of 4"):
        data[4]


def test_transforms_and_labels(place: Path, images: dict[str, bytes]) -> None:
    data = qt.ImageFolder(
        f"s3://{BUCKET}/images",
        loader=digest,
        transform=str.upper,
        target_transform=lambda label: label * 10,
    )
    expected = {digest(body).upper(): key for key, body in images.items()}
    for i in (0, 60):
        sample, label = data[i]
        assert expected[sample] == data.keys[i]
        assert label == 10 * int(data.targets[i])


@pytest.mark.parametrize("workers", [0, 1, 2, 4])
@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_plain_torch_loader(place: Path, images: dict[str, bytes], workers: int, method: str) -> None:
    if method == "spawn" and workers not in (0, 2):
        pytest.skip("spawning is slow")
    data = qt.ImageFolder(f"s3://{BUCKET}/images", loader=digest)
    assert data[0]  # the parent has read before the workers are forked
    loader = torch.utils.data.DataLoader(
        data,
        batch_size=8,
        num_workers=workers,
        shuffle=True,
        multiprocessing_context=method if workers else None,
    )
    assert Counter(flat(names for names, _ in loader)) == digests(images)


def test_only_plain_data_is_pickled(place: Path, tmp_path: Path) -> None:
    data = qt.Dataset(write_tree(tmp_path / "files", numbered(9)), decode=numbers)
    assert data[2] == 2
    assert data.targets.size == 9
    pickled = pickle.dumps(data)
    assert len(pickled) < 2000
    assert pickle.loads(pickled)[7] == 7
    assert copy.deepcopy(data)[7] == 7


def test_default_collate_keeps_samples(place: Path, tmp_path: Path) -> None:
    data = qt.Dataset(write_tree(tmp_path / "files", numbered(6)))
    assert torch.utils.data.default_collate([data[1], data[2]]) == [b"1", b"2"]


def _read_in_child(data: qt.Dataset, results: multiprocessing.Queue) -> None:  # type: ignore[type-arg]
    results.put([data[i] for i in range(20)])


def test_forked_after_reading(place: Path, tmp_path: Path) -> None:
    data = qt.Dataset(write_tree(tmp_path / "files", numbered(20)), decode=numbers)
    assert data[0] == 0
    fork = multiprocessing.get_context("fork")
    results = fork.Queue()
    children = [fork.Process(target=_read_in_child, args=(data, results)) for _ in range(8)]
    for child in children:
        child.start()
    assert [results.get(timeout=30) for _ in children] == [list(range(20))] * 8
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * 8


def test_off_reads_the_origin(place: Path, images: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUIVER", "off")
    data = qt.ImageFolder(f"s3://{BUCKET}/images", loader=digest)
    loader = qt.DataLoader(data, batch_size=16, shuffle=True)
    assert Counter(flat(names for names, _ in loader)) == digests(images)
    assert not (place / "cache" / "quiverd.sock").exists()


def test_without_pil(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(InvalidError, match="pip install pillow"):
        qt.ImageFolder(f"s3://{BUCKET}/images")


def test_is_valid_file_is_refused() -> None:
    with pytest.raises(InvalidError, match="is_valid_file"):
        qt.ImageFolder("s3://x/y", is_valid_file=bool)


def test_progress_of_a_digest(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from quiver_cache._source import Progress

    class News:
        listing = archives = False
        objects_listed, items_done, items_total = 10, 1, 4
        bytes_done, bytes_total = 250, 1000

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with Progress("s3://b/p") as progress:
        progress.show(News)  # type: ignore[arg-type]
    assert "[######                  ] 25%, 1 of 4 items" in screen.getvalue()


def test_several_processes_digest_once(place: Path, upload: Callable[[str, dict[str, bytes]], str]) -> None:
    url = upload("once", numbered(30))
    fork = multiprocessing.get_context("fork")
    results = fork.Queue()
    children = [fork.Process(target=_open_in_child, args=(url, results)) for _ in range(4)]
    for child in children:
        child.start()
    assert [results.get(timeout=60) for _ in children] == [30] * 4
    for child in children:
        child.join()
    assert not list((place / "manifests").glob("*.lock"))


def _open_in_child(url: str, results: multiprocessing.Queue) -> None:  # type: ignore[type-arg]
    results.put(len(qt.Dataset(url)))
