"""Every way in which a command fails: its exit status, and the words that a user needs.

A message is one line that names the thing, the reason and the cure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from conftest import BUCKET, make_image
from test_cli import QUIVER, Ran, good, quiver, write_tree

# What a root user may do all the same would hide what others meet.
AS_ANYBODY = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()


@dataclass(frozen=True)
class Case:
    command: str  # {} is the folder of the test
    status: int
    words: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join([*self.environment, self.command]).replace("{}", "")


def case(command: str, status: int, *words: str, **environment: str) -> Case:
    return Case(command, status, words, environment)


DIGEST = "digest --layout files"
CASES = [
    # the address
    case("digest {}/nonexistent", 3, "no directory", "/nonexistent", "name one that exists"),
    case("digest nonexistent", 3, "no directory", "/nonexistent", "name one that exists"),
    case("digest {}/file", 2, "/file is not a directory", "name the one that it lies in"),
    case("digest {}/locked", 4, "/locked/", "Permission denied", "make it readable"),
    case("digest {}/unreadable", 4, "/a.png", "Permission denied", "make it readable"),
    case("digest {}/void", 3, "nothing at", "/void", "name a directory that has files"),
    case("digest {}/flat", 2, "no class folder", "/flat", "--layout files"),
    case("digest {}/texts", 2, "no valid file", "/texts", "--allow-empty", ".png"),
    case("digest --layout tar {}/flat", 2, "no layout 'tar'", "image_folder, files or webdataset"),
    case("digest ftp://host/x", 2, "ftp://host/x", "s3://"),
    case("digest s3://", 2, "no bucket", "write s3://bucket/prefix"),
    case("digest http://127.0.0.1:9/x", 7, "127.0.0.1:9", "check the address"),
    case("digest s3://nosuchbucket/x", 3, "nosuchbucket", "bucket"),
    case(f"digest s3://{BUCKET}/nothing-here", 3, "nothing-here", "check the bucket and the prefix"),
    case(f"digest s3://{BUCKET}/images", 4, BUCKET, "key", AWS_SECRET_ACCESS_KEY="sEcReT"),
    case(f"digest s3://{BUCKET}/images", 4, BUCKET, "key", AWS_ACCESS_KEY_ID="nobody"),
    case(f"digest s3://{BUCKET}/x", 7, "127.0.0.1:9", "endpoint", QUIVER_ENDPOINT="http://127.0.0.1:9"),
    # the manifest
    case(f"{DIGEST} {{}}/flat", 3, "manifest cannot be kept", "/file/m", "manifest_dir",
         QUIVER_MANIFEST_DIR="{}/file/m"),
    case(f"{DIGEST} {{}}/flat", 4, "manifest cannot be kept", "/shut/", "--manifest",
         QUIVER_MANIFEST_DIR="{}/shut"),
    case(f"{DIGEST} --manifest {{}}/void {{}}/flat", 2, "/void is a directory", "--manifest"),
    case("warm {}/none.qvm", 3, "no manifest", "none.qvm", "quiver digest --manifest"),
    case("warm {}/cut.qvm", 11, "cut.qvm", "damaged", "digest the dataset again"),
    case("warm {}/torn.qvm", 11, "torn.qvm", "damaged", "digest the dataset again"),
    case("warm {}/flat", 3, "no manifest yet", "quiver digest"),
    case("evict {}/cut.qvm", 11, "cut.qvm", "damaged"),
    case("evict {}/flat", 3, "has not been digested here", "quiver status"),
    case("evict", 2, "--all", "quiver status"),
    case("evict --all x", 2, "--all"),
    # the settings
    case("status", 3, "none.toml", "No such file", "QUIVER_CONFIG", QUIVER_CONFIG="{}/none.toml"),
    case("status", 4, "locked.toml", "Permission denied", "QUIVER_CONFIG",
         QUIVER_CONFIG="{}/locked.toml"),
    case("status", 15, "/void", "Is a directory", "QUIVER_CONFIG", QUIVER_CONFIG="{}/void"),
    case("status", 2, "bad.toml", "line 1", "mend it", QUIVER_CONFIG="{}/bad.toml"),
    case("status", 2, "disk_limt", "typo.toml", "did you mean 'disk_limit'", QUIVER_CONFIG="{}/typo.toml"),
    case("status", 2, "disk_limit", "'lots'", "QUIVER_DISK_LIMIT", "such as 20GB", QUIVER_DISK_LIMIT="lots"),
    case("status", 2, "QUIVER_DISK_LIMT", "did you mean", QUIVER_DISK_LIMT="1GB"),
    # the cache
    case("status", 13, "no daemon is running", "/cache", "starts by itself"),
    case("stop", 13, "no daemon is running", "/cache"),
    case("evict NOSUCH", 3, "no dataset NOSUCH is cached here", "/cache"),
    case("warm {}/good.qvm", 2, "/flat", "is no cache", "set cache_dir", QUIVER_CACHE_DIR="{}/flat"),
    case("warm {}/good.qvm", 3, "/file", "set cache_dir", QUIVER_CACHE_DIR="{}/file"),
    case("warm {}/good.qvm", 4, "/shut/c", "Permission denied", "set cache_dir",
         QUIVER_CACHE_DIR="{}/shut/c"),
    case("warm {}/good.qvm", 2, "longer than", "`socket`", QUIVER_CACHE_DIR="{}/" + "x" * 120),
    case("warm {}/large.qvm", 12, "fits", "raise disk_limit", QUIVER_DISK_LIMIT="200KB"),
    case("warm --verify {}/mixed.qvm", 12, "1 of 2 items are not in the cache", "raise disk_limit",
         QUIVER_DISK_LIMIT="400KB"),
    case("warm {}/gone.qvm", 15, "1 of 1 item did not come", "/gone/1", "No such file"),
    # the command line
    case("", 2, "digest", "quiver --help"),
    case("digset x", 2, "digset", "did you mean 'digest'", "quiver --help"),
    case("digest", 2, "url is required", "quiver digest --help"),
    case("warm --frsh x", 2, "--frsh", "quiver warm --help"),
]  # fmt: skip


@pytest.fixture
def corner(place: Path) -> Path:
    """Everything that may be wrong with a folder or file."""
    write_tree(place, {
        "file": b"", "flat/a.png": make_image(1), "texts/a/x.txt": b"x", "locked/a/a.png": b"x",
        "unreadable/a/a.png": b"x", "large/1": os.urandom(400_000), "gone/1": b"1",
        "mixed/1": os.urandom(600_000), "mixed/2": b"2",
        "bad.toml": b"disk_limit = [", "typo.toml": b'disk_limt = "3GB"', "locked.toml": b"",
    })  # fmt: skip
    (place / "void").mkdir()
    (place / "shut").mkdir(0o500)
    for name in ("large", "gone", "mixed"):
        good(*DIGEST.split(), "--manifest", place / f"{name}.qvm", place / name, QUIVER="off")
    good(*DIGEST.split(), "--manifest", place / "good.qvm", place / "flat", QUIVER="off")
    (place / "gone/1").unlink()
    whole = (place / "good.qvm").read_bytes()
    (place / "cut.qvm").write_bytes(whole[:100])
    (place / "torn.qvm").write_bytes(whole[:300] + b"torn" + whole[304:])
    for locked in ("locked/a", "unreadable/a/a.png", "locked.toml"):
        (place / locked).chmod(0)
    return place


@pytest.mark.parametrize("case", CASES, ids=str)
def test_failures(
    case: Case, corner: Path, images: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(corner)
    place = str(corner)
    arguments = [a.replace("{}", place) for a in case.command.split()]
    environment = {k: v.replace("{}", place) for k, v in case.environment.items()}
    try:
        ran = quiver(*arguments, by=AS_ANYBODY, **environment)
        told = quiver(*arguments, "--json", by=AS_ANYBODY, **environment) if arguments else None
    finally:
        (corner / "locked/a").chmod(0o700)
    check(ran, case)
    if told is not None:
        assert told.status == case.status
        message = told.json["error"]["message"]
        assert all(word in message for word in case.words if word != "--help"), message


def check(ran: Ran, case: Case) -> None:
    assert ran.status == case.status, ran
    lines = [line for line in ran.err.splitlines() if line.startswith("quiver: ")]
    assert len(lines) == 1, ran
    for word in case.words:
        assert word in lines[0]
    assert len(lines[0]) < 500
    assert "sEcReT" not in lines[0]


def on_a_disk_of(size: str, options: str, folder: Path, script: str) -> Ran:
    """Runs it where {folder} is a disk of that size, which goes with it."""
    mount = f"mount -t tmpfs -o size={size},mode=700{options} tmpfs '{folder}'"
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("only root can mount a disk")
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True).returncode != 0:
        pytest.skip("nothing can be mounted here")
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f"{mount} && {script}"], text=True, capture_output=True, timeout=60
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def test_a_read_only_disk(corner: Path) -> None:
    (corner / "disk").mkdir()
    script = f"QUIVER_CACHE_DIR='{corner}/disk/c' {QUIVER} warm '{corner}/good.qvm'"
    ran = on_a_disk_of("8m", ",ro", corner / "disk", script)
    check(ran, Case("", 4, ("/disk/c", "Read-only file system", "set cache_dir")))


def test_a_full_disk(corner: Path) -> None:
    """What others fill is no room: warm says so, in its status too."""
    (corner / "disk").mkdir()
    limits = f"QUIVER_CACHE_DIR='{corner}/disk/c' QUIVER_DISK_LIMIT=6MB"
    script = (
        f"head -c 7900000 /dev/zero > '{corner}/disk/others'; "
        f"{limits} {QUIVER} warm '{corner}/large.qvm'; s=$?; {limits} {QUIVER} stop >&2; exit $s"
    )
    ran = on_a_disk_of("8m", "", corner / "disk", script)
    assert ran.status in (12, 15), ran
    [line] = [line for line in ran.err.splitlines() if line.startswith("quiver: ")]
    assert "disk" in line
