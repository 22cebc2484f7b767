"""`quiver plan`: what epochs will take, before anything runs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
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
