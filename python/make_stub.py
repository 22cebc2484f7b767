"""Writes the stub of the extension: python python/make_stub.py [OUT], with _core importable."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
HEADER = "# Made by python/make_stub.py.\n# ruff: noqa\n# fmt: off\n"


def main(out: Path) -> None:
    patterns = HERE / "src" / "stub_patterns.txt"
    stubgen = [sys.executable, "-m", "nanobind.stubgen", "-q", "-p", str(patterns)]
    subprocess.run([*stubgen, "-m", "quiver_cache._core", "-o", str(out)], check=True)
    out.write_text(HEADER + out.read_text())


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "quiver_cache" / "_core.pyi")
