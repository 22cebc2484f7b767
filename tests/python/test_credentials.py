"""Credentials: who holds them, and that a job outlives them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import quiver_cache.torch as qt
import torch
from conftest import daemons_of, wait_until
from expiring import Front, write_keys
from helpers import as_list, digest, digests, flat
from lab.s3 import Bucket
from quiver_cache import _credentials, errors
from quiver_cache._programs import find_program

Upload = Callable[[str, dict[str, bytes]], str]


def blobs(prefix: str, count: int) -> dict[str, bytes]:
    return {f"{i:04d}.bin": f"{prefix}{i}".encode() * 500 for i in range(count)}


def test_a_daemon_inherits_no_credentials(
    place: Path, server: Bucket, upload: Upload, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads as the session that brought some, whoever started it."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", "")
    monkeypatch.setenv("SOME_TOKEN", server.secret_key)
    monkeypatch.setenv("HTTP_PROXY", f"http://me:{server.secret_key}@127.0.0.1:9")
    files = blobs("inherited", 30)
    data = qt.Dataset(upload("inherited", files), digest)
    loader = qt.DataLoader(data, 5, True, collate_fn=as_list)
    assert Counter(flat(loader)) == digests(files, ".bin")
    assert not loader.report()["degraded"]
    (pid,) = daemons_of(place / "cache")
    held = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    names = {variable.split(b"=")[0].decode() for variable in held if variable}
    assert {"PATH", "HOME", "QUIVER_DISK_LIMIT"} <= names
    assert not [name for name in names if name.startswith("AWS_")]
    assert server.secret_key.encode() not in b"\0".join(held)


@pytest.fixture
def front(place: Path, server: Bucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[Front]:
    """Temporary credentials are needed, and the environment's variables hold none."""
    made = Front(server)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", made.url)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", made.url)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    _credentials._begin_anew()
    yield made
    _credentials._end()
    _credentials._begin_anew()
    made.end()


def by_process(place: Path, token: str, minutes: float = 60) -> Path:
    """The default profile gets its credentials from a program, which prints this file."""
    (place / ".aws").mkdir()
    keys = place / "keys.json"
    write_keys(keys, token, minutes)
    (place / ".aws" / "config").write_text(f"[default]\ncredential_process = cat '{keys}'\n")
    return keys


def by_web_identity(place: Path, front: Front, monkeypatch: pytest.MonkeyPatch) -> Path:
    identity = place / "identity"
    identity.write_text("monday")
    front.identity = "monday"
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(identity))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/trainer")
    return identity


def write_file(path: Path, token: str) -> None:
    keys = f"aws_access_key_id = key\naws_secret_access_key = secret\naws_session_token = {token}\n"
    new = path.with_suffix(".new")
    new.write_text("[default]\n" + keys)
    new.replace(path)


@pytest.mark.parametrize("way", ["file", "process", "web identity"])
def test_a_token_that_expires_in_mid_epoch(
    place: Path,
    front: Front,
    upload: Upload,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    way: str,
) -> None:
    """It costs some refusals, and no sample, no second one, no past-the-daemon."""
    files = blobs(way, 90)
    url = upload(way.replace(" ", "-"), files)
    if way == "web identity":
        source = by_web_identity(place, front, monkeypatch)
    elif way == "process":
        source = by_process(place, "first")
    else:
        source = place / ".aws" / "credentials"
        source.parent.mkdir()
        write_file(source, "first")

    def next_token(token: str) -> None:
        front.tokens = {token}
        if way == "process":
            write_keys(source, token)
        elif way == "file":
            write_file(source, token)
        else:
            front.identity = token
            source.write_text(token)

    data = qt.Dataset(url, digest, digest="lazy")
    front.at = {30: lambda: next_token("second"), 60: lambda: next_token("third")}
    loader = qt.DataLoader(data, 5, True, collate_fn=as_list)
    took, began = 0.0, time.monotonic()
    got: Counter[str] = Counter()
    for batch in loader:
        got.update(batch)
        took, began = max(took, time.monotonic() - began), time.monotonic()
    assert got == digests(files, ".bin")
    assert sorted(front.served) == ["first", "second", "third"]
    assert sum(front.served.values()) <= 95
    assert front.refused > 0
    assert took < 10
    report = loader.report()
    assert not report["degraded"]
    assert report["origin_bytes"] <= sum(map(len, files.values()))
    assert "past the daemon" not in caplog.text


def test_a_digest_outlives_its_token(place: Path, front: Front, server: Bucket) -> None:
    files = blobs("digest", 60)
    server.put_all(((f"digested/{key}", body) for key, body in files.items()), checksum=False)
    url = f"{server.url}/digested"
    keys = by_process(place, "first")

    def renewed() -> None:
        front.tokens = {"second"}
        write_keys(keys, "second")

    front.at = {20: renewed}
    data = qt.Dataset(url, digest)
    assert len(data) == 60
    assert front.refused > 0
    assert Counter(flat(qt.DataLoader(data, 5, True, collate_fn=as_list))) == digests(files, ".bin")


def test_the_programs_run_the_process_of_the_profile(place: Path, front: Front, server: Bucket) -> None:
    files = blobs("programs", 60)
    server.put_all(((f"programs/{key}", body) for key, body in files.items()), checksum=False)
    url = f"{server.url}/programs"
    keys = by_process(place, "first")

    def renewed() -> None:
        front.tokens = {"second"}
        write_keys(keys, "second")

    front.at = {20: renewed}
    quiver = find_program("quiver")
    subprocess.run([quiver, "digest", "--layout", "files", url], check=True)
    assert front.refused > 0
    subprocess.run([quiver, "evict", "--all"], check=True)
    subprocess.run([quiver, "warm", "--verify", url], check=True)
    (place / ".aws" / "config").write_text(
        "[default]\ncredential_process = sh -c 'echo log in >&2; exit 9'\n"
    )
    failed = subprocess.run([quiver, "warm", url], stderr=subprocess.PIPE, text=True)
    assert failed.returncode == 2
    assert "credential_process" in failed.stderr
    assert "log in" in failed.stderr


def test_renewed_before_it_expires(
    place: Path, front: Front, upload: Upload, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon reads with the next one before the store refuses the last."""
    monkeypatch.setattr(_credentials, "_LOOK_EVERY", 0.05)
    files = blobs("early", 60)
    url = upload("early", files)
    keys = by_process(place, "first", minutes=5)  # botocore renews when 15 are left
    data = qt.Dataset(url, digest, digest="lazy")
    assert data[0] == digest(files["0000.bin"])
    write_keys(keys, "second")
    front.tokens.add("second")
    rest = iter(range(1, 60))
    wait_until(lambda: data[i := next(rest)] == digest(files[f"{i:04d}.bin"]) and front.served["second"] > 0)
    front.tokens.remove("first")
    assert all(data[i] == digest(files[f"{i:04d}.bin"]) for i in rest)
    assert front.refused == 0


def test_no_others_are_an_error_that_says_so(place: Path, front: Front, upload: Upload) -> None:
    url = upload("over", blobs("over", 5))
    by_process(place, "first")
    data = qt.Dataset(url, digest, digest="lazy")
    front.tokens = {"second"}
    with pytest.raises(errors.ExpiredError, match=r"0003\.bin.*expired"):
        data[3]


def test_a_forks_child_renews_for_itself(place: Path, front: Front, upload: Upload) -> None:
    files = blobs("fork", 6)
    url = upload("fork", files)
    keys = by_process(place, "first")
    data = qt.Dataset(url, digest, digest="lazy")
    assert data[0] == digest(files["0000.bin"])
    front.tokens = {"second"}
    write_keys(keys, "second")
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if data[1] == digest(files["0001.bin"]) else 2)
        except BaseException:
            os._exit(3)
    assert os.waitpid(child, 0)[1] == 0
    assert data[2] == digest(files["0002.bin"])


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_many_workers_before_a_store_that_throttles(place: Path, front: Front, upload: Upload) -> None:
    """Each with credentials of its own, and objects are read once for all; nobody sees a SlowDown."""
    files = blobs("throttled", 60)
    url = upload("throttled", files)
    by_process(place, "first")
    data = qt.Dataset(url, digest, digest="lazy")
    front.most_at_once = 2
    front.objects.clear()
    loader = torch.utils.data.DataLoader(Thrice(data), 6, num_workers=12, collate_fn=as_list)
    assert Counter(flat(loader)) == Counter({name: 3 for name in digests(files, ".bin")})
    assert front.slowed > 0
    read = {path: times for path, times in front.objects.items() if "?" not in path}
    assert len(read) == 60
    # 180 if each read for itself; a daemon that gets no CPU for a second is passed by.
    assert sum(read.values()) <= 75


class Thrice(torch.utils.data.Dataset[str]):
    def __init__(self, data: qt.Dataset) -> None:
        self.data = data

    def __len__(self) -> int:
        return 3 * len(self.data)

    def __getitem__(self, index: int) -> str:
        return self.data[index % len(self.data)]


def test_a_process_and_its_fork_end_as_if_nothing_were(place: Path, front: Front) -> None:
    """The thread that renews is waited for by nobody, and torn down with nothing said."""
    by_process(place, "first")
    script = """
import os, warnings, quiver_cache._credentials as credentials
warnings.simplefilter("ignore")  # of forks beside threads
assert credentials.keeper()._thread.is_alive()
child = os.fork()
assert credentials.keeper()._thread.is_alive()
raise SystemExit(child and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run_python(script) == ""


def run_python(script: str) -> str:
    """What it said."""
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", script], env=environment, stderr=subprocess.PIPE, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stderr


def test_botocore_is_imported_only_where_it_is_needed(place: Path, images: dict[str, bytes]) -> None:
    script = """
import sys, quiver_cache.torch as qt
assert len(qt.Dataset("s3://pythontests/images", bytes, digest="lazy")) > 0
assert "botocore" not in sys.modules
"""
    run_python(script)
