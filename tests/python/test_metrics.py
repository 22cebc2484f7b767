"""The daemon's figures as Prometheus scrapes them: a real daemon, and Prometheus' own parser."""

from __future__ import annotations

import http.client
import json
import socket
import stat
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import quiver_cache.torch as qt
from conftest import wait_until
from prometheus_client.parser import text_string_to_metric_families
from quiver_cache._programs import find_program

ITEMS = 200


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def scrape(text: str) -> dict[str, Any]:
    """By sample name; a sample is (labels, value)."""
    samples: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    return samples


def status() -> Any:
    command = [find_program("quiver"), "status", "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> str:
    address = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("QUIVER_METRICS", address)
    return address


@pytest.fixture
def job(address: str, make_numbers: Any) -> Iterator[Any]:
    loader = qt.DataLoader(make_numbers(ITEMS), 10, True, num_workers=0, seed=1)
    for _ in range(2):
        list(loader)
    wait_until(lambda: status()["datasets"][0]["jobs"][0]["served"]["items"] == 2 * ITEMS)
    yield loader


def get(address: str, path: str = "/metrics") -> str:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as reply:
        assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return str(reply.read().decode())


def test_what_is_scraped_is_what_the_status_says(job: Any, address: str, place: Path) -> None:
    samples = scrape(get(address))
    told = status()["datasets"][0]
    served = {labels["kind"]: value for labels, value in samples["quiver_job_served_items_total"]}
    assert sum(served.values()) == 2 * ITEMS
    assert served["pinned"] >= ITEMS
    ((labels, value),) = samples["quiver_dataset_cached_items"]
    assert (labels, value) == ({"dataset": told["id"]}, ITEMS)
    assert samples["quiver_job_info"][0][0]["world"] == "1"
    assert samples["quiver_degraded"] == [({}, 0)]
    assert {labels["reason"] for labels, _ in samples["quiver_dataset_read_again_bytes_total"]} == set(
        told["read_again"]
    )
    text = get(address)
    assert str(place) not in text, "no address of an origin"


def test_counters_only_rise(job: Any, address: str) -> None:
    before = scrape(get(address))
    list(job)
    wait_until(lambda: status()["datasets"][0]["jobs"][0]["served"]["items"] == 3 * ITEMS)
    after = scrape(get(address))
    for name, samples in before.items():
        if not name.endswith("_total"):
            continue
        later = {tuple(sorted(labels.items())): value for labels, value in after[name]}
        for labels, value in samples:
            assert later[tuple(sorted(labels.items()))] >= value, name


def test_other_requests_are_refused(job: Any, address: str) -> None:
    for path, code in (("/", 404), ("/metrics/x", 404)):
        with pytest.raises(urllib.error.HTTPError) as refused:
            get(address, path)
        assert refused.value.code == code
    request = urllib.request.Request(f"http://{address}/metrics", headers={"Host": "rebound.example"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=10)
    assert refused.value.code == 403


def test_those_who_say_nothing_hinder_no_job(job: Any, address: str) -> None:
    host, _, port = address.partition(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(100)]
    assert len(list(job)) == ITEMS // 10
    for connection in silent:
        connection.close()
    assert "quiver_uptime_seconds" in get(address)


def test_a_unix_socket_is_of_its_user_alone(
    place: Path, make_numbers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = place / "metrics.sock"
    monkeypatch.setenv("QUIVER_METRICS", str(path))
    list(qt.DataLoader(make_numbers(20), 10, True, seed=1))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(path))
    connection.request("GET", "/metrics")
    assert scrape(connection.getresponse().read().decode())["quiver_degraded"] == [({}, 0)]
    subprocess.run([find_program("quiver"), "stop"], check=True)
    assert not path.exists()


def test_without_the_setting_nothing_listens(place: Path, make_numbers: Any) -> None:
    list(qt.DataLoader(make_numbers(20), 10, True, seed=1))
    pid = status()["pid"]
    threads = [p.read_text().strip() for p in Path(f"/proc/{pid}/task").glob("*/comm")]
    assert not [name for name in threads if name.startswith("metrics")]


def test_a_port_that_is_taken_keeps_no_job_from_its_cache(
    address: str, place: Path, make_numbers: Any
) -> None:
    host, _, port = address.partition(":")
    with socket.create_server((host, int(port))):
        loader = qt.DataLoader(make_numbers(20), 10, True, seed=1)
        list(loader)
        assert loader.report()["degraded"] == 0
    assert "no metrics: cannot listen on 127.0.0.1" in (place / "cache" / "quiverd.log").read_text()


@pytest.mark.parametrize("address", ["0.0.0.0:9100", "192.168.0.1:9100", ":9100", "127.0.0.1:0", "[::]:9100"])
def test_other_machines_are_never_served(address: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUIVER_METRICS", address)
    done = subprocess.run([find_program("quiver"), "explain"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "127.0.0.1:PORT" in done.stderr
