"""Killing: the job, a worker, the daemon. No wrong byte, no lost or repeated sample, no hang."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import quiver_cache.torch as qt
from conftest import daemons_of, wait_until
from helpers import as_list, digest, digests, flat
from quiver_cache._programs import find_program

Upload = Callable[[str, dict[str, bytes]], str]
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def blobs(count: int, size: int = 20_000) -> dict[str, bytes]:
    noise = random.Random(count)
    return {f"{i:04d}.bin": noise.randbytes(noise.randrange(size)) for i in range(count)}


def start_job(url: str, out: Path, *arguments: str) -> subprocess.Popen[bytes]:
    program = Path(__file__).with_name("job.py")
    path = os.pathsep.join([*sys.path, str(program.parent)])
    return subprocess.Popen(
        [sys.executable, str(program), url, str(out), *arguments],
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )


def delivered(out: Path) -> dict[int, Counter[str]]:
    """What the loop was given, by epoch. A line that only the state has counts."""
    lines = out.with_suffix(".log").read_text().splitlines() if out.with_suffix(".log").exists() else []
    state = out.with_suffix(".state")
    if state.exists() and (last := json.loads(state.read_text())["line"]) not in lines[-1:]:
        lines.append(last)
    epochs: dict[int, Counter[str]] = {}
    for line in lines:
        entry = json.loads(line)
        epochs.setdefault(entry["epoch"], Counter()).update(entry["batch"])
    return epochs


def repair(out: Path) -> None:
    """After a kill: the log gets the line that only the state has."""
    state, log = out.with_suffix(".state"), out.with_suffix(".log")
    last = json.loads(state.read_text())["line"]
    if not log.exists() or log.read_text().splitlines()[-1:] != [last]:
        with log.open("a") as file:
            file.write(last + "\n")


@pytest.mark.parametrize("workers", ["0", "2"])
def test_job_killed_and_resumed(place: Path, upload: Upload, tmp_path: Path, workers: str) -> None:
    files = blobs(80)
    url, out = upload("blobs80", files), tmp_path / "run"
    arguments = ("--epochs", "2", "--workers", workers)
    for after in (3, 9):
        job = start_job(url, out, *arguments, "--step-s", "0.05")
        log = out.with_suffix(".log")

        def steps(log: Path = log) -> int:
            return len(log.read_text().splitlines()) if log.exists() else 0

        goal = steps() + after
        wait_until(lambda goal=goal: steps() >= goal, 60)  # type: ignore[misc]
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        repair(out)
    assert start_job(url, out, *arguments).wait(timeout=60) == 0
    assert delivered(out) == {epoch: digests(files, ".bin") for epoch in range(2)}


@pytest.mark.parametrize("workers", [0, 2])
def test_daemon_killed_every_second(place: Path, upload: Upload, workers: int) -> None:
    files = blobs(120)
    loader = qt.DataLoader(
        qt.Dataset(upload("blobs120", files), digest),
        4,
        True,
        num_workers=workers,
        collate_fn=as_list,
    )
    over = threading.Event()
    killed = []

    def kill() -> None:
        while not over.wait(1):
            for pid in daemons_of(place / "cache"):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    killer = threading.Thread(target=kill)
    killer.start()
    longest = 0.0
    try:
        for _ in range(2):
            got: Counter[str] = Counter()
            before = time.monotonic()
            for batch in loader:
                longest = max(longest, time.monotonic() - before)
                got.update(batch)
                time.sleep(0.1)
                before = time.monotonic()
            assert got == digests(files, ".bin")
    finally:
        over.set()
        killer.join()
    assert len(killed) >= 3
    assert longest < 10


def test_worker_killed(place: Path, upload: Upload) -> None:
    files = blobs(60)
    data = qt.Dataset(upload("blobs60", files), digest)
    loader = qt.DataLoader(data, 4, True, num_workers=2, collate_fn=as_list)
    got: list[str] = []
    batches = iter(loader)
    for _ in range(3):
        got += next(batches)
    os.kill(batches._workers[0].pid, signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(RuntimeError, match="worker"):
        for batch in batches:
            got += batch
    assert time.monotonic() - began < 10
    resumed = qt.DataLoader(data, 4, True, collate_fn=as_list)
    resumed.load_state_dict(loader.state_dict())
    assert Counter(got + flat(resumed)) == digests(files, ".bin")


def test_two_jobs_at_once(place: Path, upload: Upload, tmp_path: Path) -> None:
    files = blobs(100)
    url = upload("blobs100", files)
    qt.Dataset(url)
    outs = [tmp_path / "one", tmp_path / "two"]
    jobs = [start_job(url, out, "--epochs", "2", "--workers", "1") for out in outs]
    assert [job.wait(timeout=90) for job in jobs] == [0, 0]
    for out in outs:
        assert delivered(out) == {epoch: digests(files, ".bin") for epoch in range(2)}
    assert len(daemons_of(place / "cache")) <= 1


def test_a_break_does_not_wait_for_the_link(place: Path, upload: Upload) -> None:
    data = qt.Dataset(upload("blobs40", blobs(40, 60_000)), digest, rate_limit="100kB/s", disk_limit="1MB")
    loader = qt.DataLoader(data, 4, True, num_workers=2, collate_fn=as_list)
    for _ in loader:
        began = time.monotonic()
        break
    assert time.monotonic() - began < 3


def test_a_job_that_ends_leaves_no_process(place: Path, upload: Upload, tmp_path: Path) -> None:
    url = upload("blobs20", blobs(20))
    job = start_job(url, tmp_path / "run", "--workers", "2")
    assert job.wait(timeout=60) == 0

    def group() -> list[str]:
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                if int(fields[2]) == job.pid:
                    found.append(entry.name)
        return found

    wait_until(lambda: not group(), 5)


def quiver(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([find_program("quiver"), *arguments], capture_output=True, text=True)


def test_a_large_item_damaged_on_disk(place: Path, upload: Upload, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUIVER_DISK_LIMIT", "400MB")
    source = place / "source"
    source.mkdir()
    (source / "large.bin").write_bytes(random.Random(1).randbytes(1 << 20) * 70)
    want = digest((source / "large.bin").read_bytes())
    assert qt.Dataset(str(source), digest)[0] == want
    damaged = 0
    for segment in (place / "cache" / "segments").glob("*.seg"):
        if segment.stat().st_size > 60 << 20:
            with segment.open("r+b") as file:
                file.seek(30 << 20)
                file.write(b"DAMAGED!")
            damaged += 1
    assert damaged == 1
    data = qt.Dataset(str(source), digest)
    assert [data[0] for _ in range(4)] == [want] * 4
    status = json.loads(quiver("status", "--json").stdout)
    assert status["disk"]["quarantined"] == 1


LIMITED = """
import os, resource, sys
import quiver_cache.torch as qt
sets = [qt.Dataset(url, decode=len) for url in sys.argv[2:]]
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]),) * 2)
loaders = [qt.DataLoader(data, 8, True) for data in sets]
for epoch in range(2):
    for data, loader in zip(sets, loaders):
        assert sum(len(batch) for batch in loader) == len(data), len(data)
print([loader.report()["degraded"] for loader in loaders])
print(len(os.listdir("/proc/self/fd")))
"""


@pytest.mark.parametrize("limit, datasets", [(64, 1), (160, 3)])
def test_a_process_with_few_descriptors(place: Path, limit: int, datasets: int) -> None:
    sources = []
    for number in range(datasets):
        source = place / f"source{number}"
        source.mkdir()
        for name, body in blobs(500 + number, 300).items():
            (source / name).write_bytes(body)
        sources.append(str(source))
        assert quiver("digest", "--layout", "files", str(source)).returncode == 0
    assert len(list((place / "cache" / "segments").glob("*.seg"))) > limit
    done = run_python(LIMITED, str(limit), *sources)
    assert done.returncode == 0, done.stderr
    degraded, open_now = done.stdout.splitlines()
    assert degraded == str([False] * datasets)
    assert int(open_now) < limit * 0.8


def run_python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_daemon_with_few_descriptors(place: Path, upload: Upload) -> None:
    url = upload("blobs90", blobs(90, 3000))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    (place / "cache").mkdir(mode=0o700)
    program = find_program("quiverd")
    cache = str(place / "cache")
    settings = ["--cache-dir", cache, "--socket", cache + "/quiverd.sock", "--disk-limit", "64MB"]
    daemon = subprocess.Popen(
        ["sh", "-c", 'ulimit -n 200; exec "$@"', "sh", program, *settings],
        stderr=(place / "log").open("w"),
    )
    wait_until(lambda: (place / "cache" / "quiverd.sock").exists())
    loader = qt.DataLoader(qt.Dataset(url, digest), 4, True, collate_fn=as_list)
    for _ in range(2):
        assert len(flat(loader)) == 90
    assert loader.report()["hits"] > 0
    strangers = []
    for _ in range(60):
        stranger = socket.socket(socket.AF_UNIX)
        strangers.append(stranger)
        stranger.connect(cache + "/quiverd.sock")
    time.sleep(2)
    assert len((place / "log").read_text().splitlines()) < 15
    for stranger in strangers:
        stranger.close()
    daemon.terminate()
    assert daemon.wait(10) == 0
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


def test_the_directory_removed_below_the_daemon(place: Path, upload: Upload) -> None:
    data = qt.Dataset(upload("blobs50", blobs(50)), digest)
    loader = qt.DataLoader(data, 4, True, collate_fn=as_list)
    assert len(flat(loader)) == 50
    before = daemons_of(place / "cache")
    shutil.rmtree(place / "cache")
    wait_until(lambda: quiver("status").returncode == 0)
    assert len(flat(loader)) == 50
    wait_until(lambda: len(daemons_of(place / "cache")) == 1)
    assert len(before) == 1
    assert quiver("stop").returncode == 0
    assert before[0] not in daemons_of(place / "cache")


MANY = """
import os, sys
import quiver_cache.torch as qt
children = []
for _ in range(64):
    if (child := os.fork()) == 0:
        data = qt.Dataset(sys.argv[1], decode=len)
        for _ in range(2):
            assert sum(data[n] for n in range(len(data))) == int(sys.argv[2])
        source = next(v for v in vars(data).values() if type(v).__name__ == "Source")
        client = source._client[1]
        os._exit(10 * client.degraded + (client.stats().items[3] != 0))
    children.append(child)
print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
"""


def test_sixty_four_processes_at_once(place: Path) -> None:
    source = place / "source"
    source.mkdir()
    files = blobs(60, 3000)
    for name, body in files.items():
        (source / name).write_bytes(body)
    assert quiver("digest", "--layout", "files", str(source)).returncode == 0
    assert quiver("stop").returncode == 0
    done = run_python(MANY, str(source), str(sum(len(body) for body in files.values())))
    assert done.stdout.strip() == str([0] * 64), done.stderr
    assert len(daemons_of(place / "cache")) == 1


def test_what_is_read_past_the_cache_is_no_hit(place: Path, upload: Upload) -> None:
    files = blobs(70)
    data = qt.Dataset(upload("blobs70", files), digest)
    loader = qt.DataLoader(data, 4, True, collate_fn=as_list)
    list(loader)
    batches = iter(loader)
    got = list(next(batches))
    (daemon,) = daemons_of(place / "cache")
    os.kill(daemon, signal.SIGSTOP)
    try:
        # Hits go on; where the daemon's heart stands still, the cache is left.
        time.sleep(1.5)
        for batch in batches:
            got += batch
        report = loader.report()
        assert Counter(got) == digests(files, ".bin")
        assert report["degraded"] and report["origin_bytes"] > 0
        assert 0 < report["hits"] < 70
    finally:
        os.kill(daemon, signal.SIGCONT)


def test_a_stopped_daemon(place: Path, upload: Upload) -> None:
    """Nobody waits long for it, and status says what to do."""
    files = blobs(70)
    url = upload("blobs70", files)
    data = qt.Dataset(url, digest, disk_limit="300kB")
    loader = qt.DataLoader(data, 4, True, collate_fn=as_list)
    batches = iter(loader)
    got = list(next(batches))
    (daemon,) = daemons_of(place / "cache")
    os.kill(daemon, signal.SIGSTOP)
    try:
        longest, before = 0.0, time.monotonic()
        for batch in batches:
            longest = max(longest, time.monotonic() - before)
            got += batch
            before = time.monotonic()
        assert Counter(got) == digests(files, ".bin")
        assert longest < 3
        assert loader.report()["degraded"]
        before = time.monotonic()
        qt.Dataset(url, digest)[0]
        assert time.monotonic() - before < 3
        before = time.monotonic()
        status = quiver("status")
        assert time.monotonic() - before < 3
        assert status.returncode != 0
        assert f"(pid {daemon})" in status.stderr
        assert f"kill -CONT {daemon}" in status.stderr
    finally:
        os.kill(daemon, signal.SIGCONT)


def test_an_item_that_only_the_daemon_cannot_get(
    place: Path, upload: Upload, caplog: pytest.LogCaptureFixture
) -> None:
    data = qt.Dataset(upload("blobs30", blobs(30, 60_000)), digest, disk_limit="20kB")
    with caplog.at_level("WARNING"):
        loader = qt.DataLoader(data, 4, True, collate_fn=as_list)
        assert len(flat(loader)) == 30
    assert loader.report()["degraded"]


def test_a_relative_cache_directory(place: Path, upload: Upload, monkeypatch: pytest.MonkeyPatch) -> None:
    url = upload("blobs10", blobs(10))
    monkeypatch.chdir(place)
    monkeypatch.setenv("QUIVER_CACHE_DIR", "here/cache")
    assert qt.Dataset(url, digest)[0]
    assert len(daemons_of(place / "here" / "cache")) == 1
    assert quiver("stop").returncode == 0
    wait_until(lambda: daemons_of(place / "here" / "cache") == [])


def test_stop_ends_a_daemon_of_another_version(place: Path) -> None:
    cache = place / "cache"
    cache.mkdir()
    daemon = subprocess.Popen([sys.executable, "-c", OTHER_VERSION, str(cache / "quiverd.sock")])
    wait_until(lambda: (cache / "quiverd.sock").exists())
    assert "protocol" in quiver("status").stderr
    reaper = threading.Thread(target=daemon.wait)
    reaper.start()
    stopped = quiver("stop")
    assert stopped.returncode == 0, stopped.stderr
    reaper.join(5)
    assert daemon.returncode == -signal.SIGTERM


OTHER_VERSION = """
import socket, struct, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
while True:
    peer, _ = listener.accept()
    head = peer.recv(24)
    magic, kind, flags, number, size, fds, rest = struct.unpack("<IHHQIHH", head)
    peer.recv(size)
    why = b"this daemon speaks protocol 2"
    payload = struct.pack("<HI", 12, len(why)) + why
    peer.sendall(struct.pack("<IHHQIHH", magic, kind, 1, number, len(payload), 0, 0) + payload)
"""
