"""A real S3 server for the session; a private cache, and a daemon of its own, for each test."""

from __future__ import annotations

import io
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from lab.s3 import Bucket  # noqa: E402

# Variables of the tools, which a daemon would refuse as settings that it does not know.
VENV = os.environ.pop("QUIVER_VENV", sys.prefix)
for _name in [n for n in os.environ if n.startswith("QUIVER_")]:
    del os.environ[_name]
_NETWORK = [n for n in os.environ if n.lower().endswith("_proxy") or n.startswith("AWS_")]
for _name in _NETWORK:
    del os.environ[_name]

BUCKET = "pythontests"
CLASSES = ("ant", "bee", "cat", "dog")


def make_image(seed: int) -> bytes:
    """A PNG that no other seed gives."""
    noise = random.Random(seed)
    width, height = noise.randrange(8, 40), noise.randrange(8, 40)
    image = Image.frombytes("RGB", (width, height), noise.randbytes(width * height * 3))
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def image_tree(count: int) -> dict[str, bytes]:
    """Keys as below a class-folder tree; some nested, some that are no images."""
    files = {}
    for i in range(count):
        folder = CLASSES[i % len(CLASSES)] + ("/more" if i % 7 == 3 else "")
        files[f"{folder}/{i * 37 % 101:03d}-{i}.png"] = make_image(i)
    files["ant/readme.txt"] = b"no image"
    return files


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    folder = tmp_path_factory.mktemp("seaweed")
    tool = [sys.executable, str(ROOT / "tools" / "seaweed")]
    environment = {**os.environ, "QUIVER_VENV": VENV}
    started = subprocess.run(
        [*tool, "start", str(folder), "0"], env=environment, check=True, stdout=subprocess.PIPE
    )
    lines = started.stdout.decode().splitlines()
    values = dict(line.removeprefix("export ").split("=", 1) for line in lines)
    bucket = Bucket(
        values["QUIVER_TEST_S3"], BUCKET, values["QUIVER_TEST_S3_KEY"], values["QUIVER_TEST_S3_SECRET"]
    )
    bucket.create()
    yield bucket
    subprocess.run([*tool, "stop", str(folder)], env=environment, check=True)


@pytest.fixture(scope="session")
def images(server: Bucket) -> dict[str, bytes]:
    """101 images in four classes at s3://pythontests/images."""
    files = image_tree(101)
    server.put_all((f"images/{key}", data) for key, data in files.items())
    return files


@pytest.fixture
def place(tmp_path: Path, server: Bucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache and a manifest folder of this test alone; its daemon ends with it."""
    monkeypatch.setenv("QUIVER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("QUIVER_MANIFEST_DIR", str(tmp_path / "manifests"))
    monkeypatch.setenv("QUIVER_DISK_LIMIT", "64MB")
    monkeypatch.setenv("QUIVER_IDLE_TIMEOUT", "60s")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    yield tmp_path
    for pid in _daemons(lambda command, environment: str(tmp_path) in command + environment):
        os.kill(pid, signal.SIGTERM)


def daemons_of(cache: Path) -> list[int]:
    """The pids of quiverd processes that use this cache directory."""
    return _daemons(lambda command, _: f"--cache-dir\0{cache}\0" in command)


def _daemons(chosen: Callable[[str, str], bool]) -> list[int]:
    """Of quiverd processes, by their command and environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = os.fsdecode((entry / "cmdline").read_bytes())
            environment = os.fsdecode((entry / "environ").read_bytes())
        except OSError:
            continue
        if os.path.basename(command.split("\0")[0]) == "quiverd" and chosen(command, environment):
            found.append(int(entry.name))
    return found


@pytest.fixture
def upload(server: Bucket) -> Callable[[str, dict[str, bytes]], str]:
    """Puts files below a prefix of the bucket; returns its URL."""

    def put(prefix: str, files: dict[str, bytes]) -> str:
        server.put_all((f"{prefix}/{key}", data) for key, data in files.items())
        return f"s3://{BUCKET}/{prefix}"

    return put


def undisturbed(trial: Callable[[], None], tries: int = 3) -> None:
    """For trials that take times: others may disturb one of them, not all."""
    for left in reversed(range(tries)):
        try:
            return trial()
        except AssertionError:
            if left == 0:
                raise


def wait_until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)


@pytest.fixture
def make_numbers(place: Path, tmp_path: Path) -> Callable[[int], Any]:
    """A dataset of so many items that decode to their numbers."""
    import quiver_cache.torch as qt
    from helpers import numbered, numbers

    def build(count: int) -> qt.Dataset:
        root = tmp_path / f"numbers{count}"
        if not root.exists():
            root.mkdir()
            for key, body in numbered(count).items():
                (root / key).write_bytes(body)
        return qt.Dataset(str(root), numbers)

    return build
