"""PyTorch on top of Quiver: torch's own names, with batches from the cache.

import quiver_cache.torch as qt

data = qt.ImageFolder("s3://bucket/train", transform=augment)
loader = qt.DataLoader(data, batch_size=256, shuffle=True, num_workers=4)
"""

from __future__ import annotations

from ._state import merge_states
from .dataset import Dataset, ImageFolder, pil_loader
from .loader import DataLoader
from .web_dataset import WebDataset

__all__ = ["DataLoader", "Dataset", "ImageFolder", "WebDataset", "merge_states", "pil_loader"]
