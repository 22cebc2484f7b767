"""Quiver: an informed storage cache for deep-learning training.

`quiver_cache.torch` is what a training script uses; `quiver_cache.errors` is what it may catch.
"""

from __future__ import annotations

from .errors import QuiverError

__version__ = "0.1.0"
__all__ = ["QuiverError", "__version__"]
