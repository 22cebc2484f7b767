"""The command line as people and scripts meet it: what it says, prints, leaves behind, ends with."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import BUCKET, daemons_of, image_tree, make_image, wait_until
from lab.s3 import Bucket
from quiver_cache._programs import find_program

QUIVER = find_program("quiver")
COMMANDS = ("digest", "warm", "evict", "plan", "status", "stop", "explain", "version")
Upload = Callable[[str, dict[str, bytes]], str]


@dataclass(frozen=True)
class Ran:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        lines = self.out.splitlines()
        assert len(lines) == 1, f"not one line: {self.out!r} {self.err!r}"
        return json.loads(lines[0])


def quiver(*arguments: object, by: tuple[str, ...] = (), **environment: str) -> Ran:
    done = subprocess.run(
        [*by, QUIVER, *map(str, arguments)], env={**os.environ, **environment}, timeout=60, text=True,
        capture_output=True,
    )  # fmt: skip
    return Ran(done.returncode, done.stdout, done.stderr)


def good(*arguments: object, **environment: str) -> str:
    ran = quiver(*arguments, **environment)
    assert ran.status == 0, ran
    return ran.out


def status() -> Any:
    return quiver("status", "--json").json


def write_tree(root: Path, files: dict[str, bytes], age: float = 3600) -> Path:
    """Files that are older than any digest of them."""
    for key, data in files.items():
        path = root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, (time.time() - age, time.time() - age))
    return root


@pytest.fixture
def tree(place: Path) -> Path:
    return write_tree(place / "tree", image_tree(60))


# --- evict


def test_evicting_what_is_not_cached(place: Path, tree: Path) -> None:
    ran = quiver("evict", "NOSUCH")
    assert ran.status == 3
    assert "no dataset NOSUCH is cached here" in ran.err
    assert not daemons_of(place / "cache"), "a daemon was started for nothing"
    good("digest", tree)
    assert quiver("evict", "NOSUCH").status == 3
    good("warm", tree)
    ran = quiver("evict", "NOSUCH")
    assert ran.status == 3
    assert status()["datasets"][0]["id"] in ran.err
    assert quiver("evict", "NOSUCH", "--json").json["error"]["code"] == "not_found"
    assert "has not been digested" in quiver("evict", "s3://bucket/never").err
    assert status()["disk"]["items"] == 60


def test_evicting_by_id_and_by_address(place: Path, tree: Path) -> None:
    good("digest", tree)
    good("warm", tree)
    by_id = quiver("evict", status()["datasets"][0]["id"], "--json")
    assert by_id.json["bytes"] > 0
    assert "nothing of it was here" in good("evict", tree)
    good("warm", tree)
    assert quiver("evict", tree, "--json").json["bytes"] > 0


def test_evicting_what_only_a_digest_brought(place: Path, tree: Path) -> None:
    good("digest", tree)
    other = write_tree(place / "other", {f"x/{i}.png": make_image(1000 + i) for i in range(10)})
    good("digest", other, "--manifest", place / "other.qvm", QUIVER="off")  # nothing of it is cached
    assert quiver("evict", place / "other.qvm").status == 3
    assert status()["disk"]["items"] == 60
    assert quiver("evict", tree, "--json").json["bytes"] > 0
    assert status()["disk"]["items"] == 0


def test_evicting_everything_needs_no_daemon(place: Path, tree: Path) -> None:
    ran = quiver("evict", "--all")
    assert ran.status == 0
    assert "there is no cache in" in ran.out
    assert not daemons_of(place / "cache"), "a daemon was started for nothing"
    good("digest", tree)
    good("stop")
    assert quiver("evict", "--all", "--json").json["bytes"] > 0
    assert status()["disk"]["items"] == 0


# --- status


def test_status_tells_of_what_belongs_to_no_dataset_yet(place: Path, tree: Path) -> None:
    good("digest", tree)
    total = sum(p.stat().st_size for p in tree.rglob("*.png"))
    now = status()
    assert now["unclaimed"] == {"items": 60, "bytes": total}
    assert now["datasets"] == []
    text = good("status")
    assert "not yet of a dataset" in text
    assert "60 items" in text
    assert "incoming" not in text
    assert "from the origin" not in text

    good("warm", tree)
    now = status()
    assert now["unclaimed"] == {"items": 0, "bytes": 0}
    assert len(now["datasets"]) == 1
    text = good("status")
    assert "not yet of a dataset" not in text
    assert "60 of 60 items here" in text
    assert "nothing had to be fetched" in text


def test_status_tells_what_is_here_of_what_is_pinned(place: Path, tree: Path) -> None:
    good("digest", tree, QUIVER="off")
    good("warm", tree)
    [dataset] = status()["datasets"]
    assert dataset["pinned_items"] == dataset["pinned_items_here"] == 60
    assert dataset["pinned_bytes"] == dataset["pinned_bytes_here"] == dataset["bytes"]
    assert "pinned: 60 of 60 items here" in good("status")
    assert re.search(r"fetched since it was opened: .* in 60 reads, 0 errors", good("status"))
    good("evict", tree)
    [dataset] = status()["datasets"]
    assert (dataset["pinned_items"], dataset["pinned_items_here"]) == (60, 0)
    assert dataset["pinned_bytes_here"] == 0
    assert "pinned: 0 of 60 items here, 0 B of" in good("status")


# --- digest again


def test_digesting_again_reads_what_has_changed(place: Path, tree: Path) -> None:
    first = quiver("digest", tree, "--json").json
    assert (first["downloaded"], first["renewed"]) == (60, False)
    again = quiver("digest", tree, "--json").json
    assert (again["downloaded"], again["unchanged"], again["renewed"]) == (0, 60, True)
    assert "0 added, 0 changed, 0 removed" in good("digest", tree)

    gone, silent, loud = sorted(tree.rglob("*.png"))[:3]
    gone.unlink()
    write_tree(tree, {"ant/new.png": make_image(500)})
    write_tree(tree, {str(loud.relative_to(tree)): make_image(501)}, age=1800)
    then = silent.stat()
    silent.write_bytes(bytes(then.st_size))
    os.utime(silent, ns=(then.st_atime_ns, then.st_mtime_ns))  # who does that has to say --fresh
    news = quiver("digest", tree, "--json").json
    assert {k: news[k] for k in ("downloaded", "unchanged", "added", "changed", "removed")} == {
        "downloaded": 2, "unchanged": 58, "added": 1, "changed": 1, "removed": 1,
    }  # fmt: skip
    fresh = quiver("digest", tree, "--fresh", "--json").json
    assert (fresh["downloaded"], fresh["unchanged"], fresh["changed"]) == (60, 0, 1)
    good("digest", tree)
    full = quiver("digest", tree, "--manifest", place / "full.qvm", "--json").json
    assert full["downloaded"] == 60
    assert (place / "full.qvm").read_bytes() == Path(fresh["manifest"]).read_bytes()


@pytest.mark.parametrize("checksum", [True, False])
def test_digesting_a_bucket_again(place: Path, server: Bucket, checksum: bool) -> None:
    """By ETag: neither a GET nor a HEAD for what has not changed."""
    prefix = f"again{checksum}"
    files = {f"{i}": f"object {i}".encode() for i in range(40)}
    server.put_all(((f"{prefix}/{k}", v) for k, v in files.items()), checksum=checksum)
    url = f"s3://{BUCKET}/{prefix}"

    def digest(*options: object) -> dict[str, Any]:
        return quiver("digest", url, "--layout", "files", "--json", *options).json

    assert digest()["downloaded"] == (0 if checksum else 40)
    assert digest()["unchanged"] == 40
    server.put(f"{prefix}/7", b"OBJECT 7", checksum=checksum)
    server.put(f"{prefix}/new", b"new", checksum=checksum)
    server.delete(f"{prefix}/8")
    news = digest()
    assert [news[k] for k in ("unchanged", "added", "changed", "removed")] == [38, 1, 1, 1]
    digest("--manifest", place / "full.qvm")
    assert (place / "full.qvm").read_bytes() == Path(news["manifest"]).read_bytes()


# --- warm


def test_warm_that_ends_short_says_how_much_and_why(place: Path, tree: Path) -> None:
    good("digest", tree, QUIVER="off")
    lost = sorted(tree.rglob("*.png"))[:7]
    for path in lost:
        path.unlink()
    ran = quiver("warm", tree)
    assert ran.status == 15
    assert "7 of 60 items did not come; the first: " in ran.err
    assert "No such file" in ran.err
    assert "here: 53 of 60 items" in ran.out
    told = quiver("warm", tree, "--json")
    assert told.status == 15
    assert told.json["items_failed"] == 7
    assert told.json["error"]["code"] == "io"


def test_warm_without_permission(place: Path, images: dict[str, bytes]) -> None:
    """It must not say that it is done with nothing there."""
    url = f"s3://{BUCKET}/images"
    good("digest", url, QUIVER="off")
    ran = quiver("warm", url, AWS_SECRET_ACCESS_KEY="wrong")
    assert ran.status == 15
    assert "101 of 101 items did not come" in ran.err
    assert BUCKET in ran.err


def test_warm_shows_no_more_than_there_is(place: Path) -> None:
    """With content that is there twice, in a cache of a part of it, through a slow link."""
    files = {f"{i % 2}/{i}": os.urandom(40_000) for i in range(60)}
    files |= {f"2/{i}": files[f"{i % 2}/{i}"] for i in range(0, 60, 2)}
    tree = write_tree(place / "twice", files)
    good("digest", tree, "--layout", "files", QUIVER="off")
    limits = {"QUIVER_DISK_LIMIT": "2MB", "QUIVER_RATE_LIMIT": "600KB/s"}
    ran = quiver("warm", tree, **limits)
    assert ran.status == 0, ran
    shown = [int(part) for part in re.findall(r"warm: (\d+) % ", ran.err)]
    assert shown == sorted(shown)
    assert shown[-1] == 100
    assert len(shown) > 1
    assert "raise disk_limit for more" in ran.out
    [dataset] = status()["datasets"]
    assert 0 < dataset["pinned_items_here"] == dataset["pinned_items"] < 90


# --- explain


def test_explain_tells_what_holds_here(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("QUIVER_CACHE_DIR", "QUIVER_MANIFEST_DIR", "QUIVER_DISK_LIMIT"):
        monkeypatch.delenv(name)
    (place / "scratch").mkdir()
    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.setenv("TMPDIR", str(place / "scratch"))
    told = quiver("explain", "--json").json
    cache = str(place / "scratch" / f"quiver-{os.getuid()}")
    assert told["cache_dir"]["resolved"] == cache
    assert told["cache_dir"]["source"] == "default"
    assert told["socket"]["resolved"] == f"{cache}/quiverd.sock"
    assert told["manifest_dir"]["resolved"] == "/nonexistent/.local/share/quiver/manifests"
    assert re.fullmatch(r"[\d.]+ [kMGT]B", told["disk_limit"]["resolved"])
    assert re.search(rf"^cache_dir = {cache}\n    from: default \(", good("explain"), re.MULTILINE)
    monkeypatch.setenv("QUIVER_DISK_LIMIT", "33MB")
    assert quiver("explain", "--json").json["disk_limit"]["source"].endswith("QUIVER_DISK_LIMIT")
    assert not Path(cache).exists()


def test_explain_tells_of_the_daemon_that_runs(place: Path, tree: Path) -> None:
    good("digest", tree)
    assert "the running daemon" not in good("explain")
    mine = good("explain", QUIVER_DISK_LIMIT="99MB")
    assert "disk_limit = 64.0 MB\n    from: the running daemon" in mine
    assert "99MB" in mine


# --- what scripts and terminals see


KEYS = {
    "digest": "added bytes changed classes directory_markers downloaded downloaded_bytes id items kept "
    "left_out manifest removed renewed unchanged",
    "warm": "bytes_here bytes_wanted first_error id items items_failed items_here items_wanted",
    "status": "cache_directory connections datasets disk fetches memory pid reason sessions state unclaimed "
    "uptime_s version",
    "explain": None,
    "evict": "bytes datasets",
    "version": "version",
    "stop": "stopped",
}


def test_json_is_one_object_with_stable_names(place: Path, tree: Path) -> None:
    for command, keys in KEYS.items():
        target = [tree] if command in ("digest", "warm", "evict") else []
        ran = quiver(command, *target, "--json")
        assert (ran.status, ran.err) == (0, ""), (command, ran)
        if keys is not None:
            assert sorted(ran.json) == keys.split(), command
    for command in ("status", "stop"):
        assert quiver(command, "--json").json["error"].keys() == {"code", "message"}
    assert quiver("digest", "--json").json["error"]["code"] == "invalid"


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_ends_with_examples(command: str) -> None:
    ran = quiver(*command.split(), "--help")
    assert (ran.status, ran.err) == (0, "")
    _, _, examples = ran.out.partition("\nExamples:\n")
    assert f"  quiver {command}" in examples
    assert "\n  quiver" not in examples.rpartition("\n\n")[2] or examples.count("\n\n") <= 1
    assert all(len(line) <= 110 for line in ran.out.splitlines())


def test_slips_of_the_fingers(place: Path) -> None:
    ran = quiver("stats")
    assert (ran.status, ran.out) == (2, "")
    assert "did you mean 'status'" in ran.err
    assert "digest, warm, evict" in quiver().err
    assert "quiver digest --help" in quiver("digest").err


def slow_tree(place: Path) -> Path:
    return write_tree(place / "slow", {f"a/{i}.png": os.urandom(50_000) for i in range(80)})


def test_progress_is_plain_lines_in_a_file_and_a_bar_on_a_terminal(place: Path) -> None:
    tree = slow_tree(place)
    ran = quiver("digest", tree, QUIVER_RATE_LIMIT="2MB/s")
    assert ran.status == 0
    lines = ran.err.splitlines()
    assert 2 <= len(lines) <= 6
    assert all(re.fullmatch(r"digest: \d+ % \d+ of 80 items, .*", line) for line in lines), lines

    ours, theirs = pty.openpty()
    process = subprocess.Popen([QUIVER, "digest", "--fresh", tree], stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    drawn = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # the other side has closed
            break
        if not piece:
            break
        drawn += piece
    os.close(ours)
    assert process.wait() == 0
    assert b"\rdigest [" in drawn
    assert b"100 %" in drawn
    assert drawn.count(b"\n") == 1
    assert process.stdout is not None
    assert b"\r" not in process.stdout.read()


@pytest.mark.parametrize("command", ["digest", "digest --json", "warm", "warm --json"])
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_interrupting_ends_with_one_line(place: Path, command: str, sent: signal.Signals) -> None:
    tree = slow_tree(place)
    good("digest", tree, QUIVER="off")
    before = sorted((place / "manifests").iterdir())
    manifest = before[0].read_bytes()
    name, *options = command.split()
    if name == "digest":
        options += ["--fresh"]
    environment = {**os.environ, "QUIVER_RATE_LIMIT": "200KB/s"}
    process = subprocess.Popen(
        [QUIVER, name, tree, *options], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    wait_until(lambda: daemons_of(place / "cache") != [])
    time.sleep(0.7)
    began = time.monotonic()
    process.send_signal(sent)
    out, err = process.communicate(timeout=20)
    assert time.monotonic() - began < 3
    assert process.returncode == 130, (out, err)
    assert sorted((place / "manifests").iterdir()) == before
    assert before[0].read_bytes() == manifest
    if "--json" in options:
        assert json.loads(out)["error"]["code"] == "cancelled"
        assert err == ""
    else:
        assert out == ""
        assert err.splitlines()[-1].startswith("quiver: interrupted")
        assert err.count("quiver: ") == 1


def test_a_daemon_that_hangs_keeps_nobody(place: Path) -> None:
    """Here it is one that listens and says nothing."""
    (place / "cache").mkdir(0o700)
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(place / "cache" / "quiverd.sock"))
        daemon.listen()
        process = subprocess.Popen([QUIVER, "status"], stderr=subprocess.PIPE, text=True)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=5)
    assert (process.returncode, err) == (130, "quiver: interrupted\n")
