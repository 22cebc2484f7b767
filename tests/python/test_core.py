"""The extension: its stub, and pure functions of it that must never change."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT
from quiver_cache import _core
from quiver_cache._log import human_bytes


def test_the_stub_is_current(tmp_path: Path) -> None:
    """Renew it with python/make_stub.py."""
    pytest.importorskip("nanobind")
    made = tmp_path / "_core.pyi"
    subprocess.run([sys.executable, str(ROOT / "python" / "make_stub.py"), str(made)], check=True)
    assert made.read_text() == (ROOT / "python" / "quiver_cache" / "_core.pyi").read_text()


def test_item_seeds_never_change() -> None:
    seeds = [_core.item_seed(*arguments) for arguments in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]]
    assert len(set(seeds)) == 4
    assert seeds == [
        252648761208674693,
        4857011813272147828,
        14892378022930189131,
        10376138858624189784,
    ]


def test_human_bytes() -> None:
    written = [human_bytes(n) for n in (0, 999, 1500, 12_345, 41_200_000, 3.2e9, 5e13)]
    assert written == ["0 bytes", "999 bytes", "1.5 kB", "12 kB", "41 MB", "3.2 GB", "50.0 TB"]
