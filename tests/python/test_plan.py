"""`quiver plan`: what epochs will take, before anything runs, and of jobs that run."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import quiver_cache.torch as qt
from conftest import undisturbed, wait_until
from quiver_cache._programs import find_program

QUIVER = find_program("quiver")
FOUR = """
cache = [{cache}]
link = "20MB/s"
window = "2.6%"
[[dataset]]
name = "A"
bytes = "400MB"
[[dataset]]
name = "B"
bytes = "800MB"
[[dataset]]
name = "C"
bytes = "300MB"
[[dataset]]
name = "D"
bytes = "200MB"
[[job]]
dataset = "A"
speed = "40MB/s"
[[job]]
dataset = "B"
speed = "20MB/s"
[[job]]
dataset = "C"
speed = "5MB/s"
[[job]]
dataset = "D"
speed = "1MB/s"
"""


def plan(*arguments: object) -> Any:
    command = [QUIVER, "plan", "--json", *map(str, arguments)]
    done = subprocess.run(command, timeout=60, text=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def test_four_datasets_over_one_link(tmp_path: Path) -> None:
    file = tmp_path / "four.toml"
    file.write_text(FOUR.format(cache='"170MB", "425MB", "850MB"'))
    plans = plan(file)["plans"]
    assert [p["speed"] for p in plans] == pytest.approx([0.651, 0.901, 1.0], abs=0.004)
    small = {job["name"]: job for job in plans[0]["jobs"]}
    assert small["C"]["epoch_s"] == pytest.approx(60)
    assert small["B"]["epoch_s"] == pytest.approx(800 / 7)
    reasons = {d["name"]: d["share_reason"] for d in plans[0]["datasets"]}
    assert reasons["D"] == "bound by its own compute at 1.00 MB/s: more cache would change nothing"
    assert reasons["A"].startswith("bound by the link: fed at 10.")
    for p in plans:
        assert sum(d["share"] for d in p["datasets"]) <= p["cache"]


def test_one_dataset_is_max_of_compute_and_link() -> None:
    bound = ["--bytes", "150GB", "--link", "100MB/s", "--cache", "53GB"]
    (job,) = plan(*bound, "--speed", "400MB/s")["plans"][0]["jobs"]
    assert job["epoch_s"] == pytest.approx(1000, rel=0.001)  # a third stays beside 2 % of window
    assert job["first_epoch_s"] == pytest.approx(1500)
    (job,) = plan(*bound, "--speed", "120MB/s")["plans"][0]["jobs"]
    assert job["epoch_s"] == pytest.approx(1250)
    assert job["first_epoch_s"] == pytest.approx(1500)
    jobs = plan(*bound, "--jobs", "3")["plans"][0]["jobs"]
    assert [job["epoch_s"] for job in jobs] == pytest.approx([1000] * 3, rel=0.001)
    assert jobs[0]["own_bytes_per_s"] is None


def test_a_plan_says_it_in_words_too() -> None:
    command = [QUIVER, "plan", "--bytes", "400MB", "--speed", "5MB/s", "--link", "20MB/s", "--cache", "100MB"]
    done = subprocess.run(command, timeout=60, text=True, stdout=subprocess.PIPE, check=True)
    assert "with a cache of 100 MB:" in done.stdout
    assert "bound by its own compute at 5.00 MB/s: more cache would change nothing" in done.stdout
    assert "80.0 s an epoch" in done.stdout


GOOD = FOUR.format(cache='"170MB"')


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "cache is missing"),
        ('cache = "1GB"', "has no job"),
        ("cache = [", "is not TOML"),
        ("cache = 5", "a size such as"),
        (GOOD + 'colour = "red"', "job 4 has no 'colour'"),
        ('colour = "red"\n' + GOOD, "'colour' in"),
        (GOOD.replace('dataset = "D"', 'dataset = "E"'), "there is no dataset 'E'"),
        (GOOD.replace('name = "B"', 'name = "A"'), "two datasets 'A'"),
        (GOOD.replace('bytes = "400MB"', ""), "bytes of dataset 1 is missing"),
        (GOOD.replace("40MB/s", "fast"), "speed of job 1 cannot be 'fast'"),
        (GOOD.replace("40MB/s", "0"), "speed of job 1 cannot be '0'"),
        (GOOD.replace('link = "20MB/s"', ""), "link of dataset 1 is missing"),
        (GOOD + "weight = -1", "weight of job 4 cannot be '-1'"),
        (GOOD + "[job.more]", "'more'"),
    ],
)
def test_a_bad_plan_names_what_is_wrong(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text)
    failure = plan(file)["error"]
    assert failure["code"] == "invalid" or failure["code"] == "kInvalid", failure
    assert says in failure["message"], failure


def test_a_plan_of_nothing_says_what_to_give(tmp_path: Path) -> None:
    assert "--bytes, --link and --cache" in plan()["error"]["message"]
    assert "missing.toml" in plan(tmp_path / "missing.toml")["error"]["message"]


# --- jobs that run

ITEMS, BATCH, LENGTH = 1200, 20, 4096
COMPUTE = 0.02  # seconds a step


@pytest.fixture
def folder(place: Path) -> str:
    """A dataset with its manifest, of which nothing is cached. No daemon runs."""
    root = place / "data"
    root.mkdir()
    for i in range(ITEMS):
        (root / f"{i:05d}").write_bytes(str(i).encode().ljust(LENGTH))
    for command in (["digest", "--layout", "files", str(root)], ["evict", "--all"], ["stop"]):
        subprocess.run([QUIVER, *command], check=True, stdout=subprocess.DEVNULL)
    return str(root)


def dataset_id(folder: str) -> str:
    return str(qt.Dataset(folder).source.manifest.public_id)


def run_epoch(loader: Any) -> float:
    """Seconds."""
    began = time.perf_counter()
    for _ in loader:
        time.sleep(COMPUTE)
    return time.perf_counter() - began


def test_a_running_job_takes_what_its_plan_says(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RATE_LIMIT": "1200kB/s", "DISK_LIMIT": "3MB", "WINDOW": "10%"}.items():
        monkeypatch.setenv(f"QUIVER_{name}", value)
    monkeypatch.setenv("QUIVER_SHARES", f"{dataset_id(folder)[:12]} weight=3 limit=20MB")
    loader = qt.DataLoader(qt.Dataset(folder), BATCH, True, num_workers=0, seed=1)
    run_epoch(loader)
    plans: list[Any] = []

    def trial() -> None:
        seconds = [run_epoch(loader) for _ in range(2)]
        assert loader.report()["waited_link_s"] > 0.5
        plans[:] = plan("--running", "--cache", "64MB")["plans"]
        now, larger = plans
        assert now["jobs"][0]["epoch_s"] == pytest.approx(sum(seconds) / 2, rel=0.15)
        assert now["jobs"][0]["first_epoch_s"] == pytest.approx(ITEMS * LENGTH / 1.2e6, rel=0.15)
        assert larger["jobs"][0]["epoch_s"] == pytest.approx(COMPUTE * ITEMS / BATCH, rel=0.15)

    undisturbed(trial)
    now, larger = plans
    assert (now["now"], now["cache"], larger["now"], larger["cache"]) == (True, 3e6, False, 64e6)
    assert now["datasets"][0]["share_reason"].startswith("bound by the link: fed at ")
    # As the model has it for the same figures, written down.
    (same,) = plan("--bytes", ITEMS * LENGTH, "--link", "1200kB/s", "--cache", "64MB")["plans"]
    assert larger["datasets"][0]["cached_part"] == same["datasets"][0]["cached_part"] == 1
    (limited,) = plan("--running", "--cache", "2MB")["plans"][1:]
    assert now["jobs"][0]["epoch_s"] < limited["jobs"][0]["epoch_s"] < now["jobs"][0]["first_epoch_s"]


def test_a_job_that_is_not_known_yet_is_named(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUIVER_SHARES", f"{dataset_id(folder)[:12]} limit=3MB")
    loader = qt.DataLoader(qt.Dataset(folder), BATCH, True, num_workers=0, seed=1)
    batches = iter(loader)
    next(batches)
    (now,) = plan("--running")["plans"]
    assert now["jobs"][0]["epoch_s"] is None
    assert now["jobs"][0]["own_bytes_per_s"] is None
    said = subprocess.run([QUIVER, "plan", "--running"], check=True, text=True, stdout=subprocess.PIPE)
    assert f"{now['jobs'][0]['name']}: how fast it computes is not known yet" in said.stdout
    assert "ask again when it has run some epochs" in said.stdout

    # Now it is, but nothing has waited for the link, so that what it gives is not known.
    for _ in batches:
        time.sleep(COMPUTE)
    run_epoch(loader)
    wait_until(lambda: plan("--running")["plans"][0]["jobs"][0]["epoch_s"] is not None)
    now, smaller = plan("--running", "--cache", "1MB")["plans"]
    assert now["datasets"][0]["share"] == 3e6
    assert now["jobs"][0]["epoch_s"] == pytest.approx(COMPUTE * ITEMS / BATCH, rel=0.15)
    assert now["jobs"][0]["first_epoch_s"] is None
    assert smaller["jobs"][0]["epoch_s"] is None
    assert "what its link gives is not known yet" in smaller["jobs"][0]["unknown"]


def test_the_paces_of_ranks_add_up(make_numbers: Callable[[int], qt.Dataset]) -> None:
    def ranks() -> list[dict[str, Any]]:
        told = subprocess.run([QUIVER, "status", "--json"], check=True, stdout=subprocess.PIPE)
        return [rank for dataset in json.loads(told.stdout)["datasets"] for rank in dataset["jobs"]]

    data = make_numbers(200)
    loaders = [qt.DataLoader(data, 2, True, seed=1, rank=rank, world_size=2) for rank in range(2)]
    for _ in range(2):
        for _ in zip(*loaders, strict=True):
            time.sleep(0.005)
    wait_until(lambda: len(ranks()) == 2 and all(rank["pace"]["items_per_s"] > 0 for rank in ranks()))
    length = sum(len(str(i)) for i in range(200)) / 200
    bytes_per_s = length * sum(rank["pace"]["items_per_s"] for rank in ranks())
    (job,) = plan("--running")["plans"][0]["jobs"]
    assert job["own_bytes_per_s"] == pytest.approx(bytes_per_s, rel=0.01)
    assert job["epoch_s"] == pytest.approx(200 * length / bytes_per_s, rel=0.01), "of all ranks together"


def test_without_running_jobs_it_says_what_to_do(
    place: Path, make_numbers: Callable[[int], qt.Dataset]
) -> None:
    def failed(*arguments: str) -> tuple[int, str]:
        done = subprocess.run([QUIVER, "plan", *arguments], capture_output=True, text=True, timeout=60)
        return done.returncode, done.stderr

    status, says = failed("--running")
    assert status == 13 and "no daemon is running" in says
    url = make_numbers(20).source.url
    subprocess.run([QUIVER, "warm", url], check=True, capture_output=True)
    status, says = failed("--running")
    assert status == 3 and "no job is running over this cache; start one, or describe it" in says
    status, says = failed("--running", "--cache", "much")
    assert status == 2 and "cache cannot be 'much'" in says
    status, says = failed("--running", "--link", "5MB/s")
    assert status == 2 and "--link excludes --running" in says
