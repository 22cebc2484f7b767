"""Where the programs `quiver` and `quiverd` lie: in the package, else on PATH."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def find_program(name: str) -> str:
    """The absolute path of a program, or "" when there is none."""
    inside = Path(__file__).parent / "bin" / name
    if os.access(inside, os.X_OK):
        return str(inside)
    built = Path(__file__).absolute().parent / "bin" / name
    return str(built) if os.access(built, os.X_OK) else shutil.which(name) or ""
