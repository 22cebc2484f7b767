"""The logger `quiver_cache`. It writes to stderr until the user gives it handlers of their own.

Silence: logging.getLogger("quiver_cache").setLevel(logging.WARNING).
"""

from __future__ import annotations

import logging
import sys


class _Stderr(logging.Handler):
    """Looks up sys.stderr at each line, as it may be replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("quiver: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), file=sys.stderr, flush=True)
        except Exception:
            self.handleError(record)


def _make() -> logging.Logger:
    made = logging.getLogger("quiver_cache")
    if made.level == logging.NOTSET:
        made.setLevel(logging.INFO)
    if not made.handlers:
        made.addHandler(_Stderr())
        made.propagate = False
    return made


logger = _make()


def human_bytes(count: float) -> str:
    """41 MB, as people write it."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.0f} {unit}" if unit == "bytes" or count >= 9.95 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
