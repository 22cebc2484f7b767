"""The console script `quiver`: becomes the program of that name."""

from __future__ import annotations

import os
import sys

from ._programs import find_program


def main() -> None:
    program = find_program("quiver")
    own = os.path.realpath(sys.argv[0])
    if not program or os.path.realpath(program) == own:
        sys.exit("quiver: the program is missing from the package; install quiver-cache again")
    os.execv(program, ["quiver", *sys.argv[1:]])
