"""Map-style datasets over a manifest."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch.utils.data
from torch.utils.data._utils.collate import default_collate_fn_map

from .._core import Sample
from .._source import Source
from ..errors import BadSampleError, InvalidError, QuiverError

if TYPE_CHECKING:
    import numpy as np

Decode = Callable[[Any], Any]


def _collate_samples(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return batch


default_collate_fn_map[Sample] = _collate_samples  # as torch does with bytes: a list


class Dataset(torch.utils.data.Dataset[Any]):
    """The items below a URL, in the manifest's order.

    `url` is s3://bucket/prefix, https://..., a directory, or the path of a manifest (.qvm). The
    manifest is opened where it lies, or made, with a progress bar. `decode` is any function from an
    item's buffer to an object; without it the item is the buffer itself, a `Sample`. Items are
    `(sample, label)` where the manifest has classes, otherwise the sample alone. Further keywords
    are settings (`endpoint=`, `cache_dir=`, ...) and `access_key=`, `secret_key=`, `session_token=`.

    Only plain data is pickled; the manifest and the client are opened per process when first used.
    """

    def __init__(
        self,
        url: str,
        decode: Decode | None = None,
        transform: Decode | None = None,
        target_transform: Decode | None = None,
        *,
        layout: str = "files",
        name: str | None = None,
        allow_empty: bool = False,
        **settings: object,
    ) -> None:
        self.decode = decode
        self.transform = transform
        self.target_transform = target_transform
        self.source = Source.make(url, layout, name, settings)
        self.source.resolve(allow_empty)
        self.classes: list[str] = self.source.manifest.classes
        self.class_to_idx: dict[str, int] = {name: i for i, name in enumerate(self.classes)}

    def __len__(self) -> int:
        return len(self.source.manifest)

    def __getitem__(self, index: int) -> Any:
        n = len(self)
        if not -n <= index < n:
            raise IndexError(f"item {index} of a dataset of {n}")
        item = int(index) % n
        buffer = self.source.client().read(item)
        return self.finish(buffer, item, self.source.manifest.label(item))

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        n = len(self)
        self.source.client().want([int(i) % n for i in indices if -n <= i < n])
        return [self[i] for i in indices]

    def finish(self, buffer: Sample, item: int, label: int) -> Any:
        """From an item's bytes to what the loop gets."""
        try:
            sample = self.decoded(buffer, item)
            if self.transform is not None:
                sample = self.transform(sample)
        except QuiverError:
            raise
        except Exception as problem:
            raise self._bad(item, problem) from problem
        if not self.classes:
            return sample
        return sample, label if self.target_transform is None else self.target_transform(label)

    def decoded(self, buffer: Sample, item: int) -> Any:
        """What `transform` gets."""
        return buffer if self.decode is None else self.decode(buffer)

    def _bad(self, item: int, problem: Exception) -> BadSampleError:
        return BadSampleError(
            f"{self.where(item)} (item {item}) cannot be decoded or transformed: "
            f"{type(problem).__name__}: {problem}; repair or remove it and digest again, or pass "
            "on_bad_sample='skip' or 'substitute' to the DataLoader"
        )

    @property
    def plain(self) -> bool:
        """True when an item is its buffer and no function of the user's is called."""
        return self.decode is None and self.transform is None and self.target_transform is None

    def where(self, item: int) -> str:
        """The address of an item at the origin."""
        manifest = self.source.manifest
        return f"{manifest.origin_url.rstrip('/')}/{manifest.key(item)}"

    @cached_property
    def targets(self) -> np.ndarray[Any, Any]:
        """The labels of all items; -1 where there is none."""
        import numpy

        return numpy.frombuffer(self.source.manifest.packed_labels(), dtype=numpy.int32)

    @property
    def keys(self) -> Sequence[str]:
        """The keys of all items, relative to the URL."""
        return _Lazy(len(self), self.source.manifest.key)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "targets"}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self):,} items in {self.source.url}>"


class ImageFolder(Dataset):
    """torchvision's ImageFolder: the same order, classes, labels and arguments.

    `loader` makes the sample from an item's bytes; the default is a PIL image in RGB.
    """

    def __init__(
        self,
        url: str,
        transform: Decode | None = None,
        target_transform: Decode | None = None,
        loader: Decode | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
        *,
        name: str | None = None,
        **settings: object,
    ) -> None:
        if is_valid_file is not None:
            raise InvalidError(
                "is_valid_file= is not supported, as the manifest decides which files belong to "
                "the dataset; digest a folder without the others"
            )
        if loader is None:
            _require_pil()
            loader = pil_loader
        super().__init__(
            url,
            loader,
            transform,
            target_transform,
            layout="image_folder",
            name=name,
            allow_empty=allow_empty,
            **settings,
        )

    @property
    def loader(self) -> Decode | None:
        return self.decode

    @property
    def samples(self) -> Sequence[tuple[str, int]]:
        """(address, label) of all items."""
        manifest = self.source.manifest
        return _Lazy(len(self), lambda i: (self.where(i), manifest.label(i)))

    imgs = samples


class _Lazy(Sequence[Any]):
    """A list that is computed where it is read: a dataset may have ten million items."""

    def __init__(self, length: int, at: Callable[[int], Any]) -> None:
        self._length = length
        self._at = at

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._at(i) for i in range(*index.indices(self._length))]
        if not -self._length <= index < self._length:
            raise IndexError(index)
        return self._at(int(index) % self._length)


def _require_pil() -> None:
    try:
        import PIL.Image  # noqa: F401
    except ImportError as missing:
        raise InvalidError(
            "ImageFolder decodes images with PIL, which is not installed: pip install pillow, or "
            "pass loader= a function from an image's bytes to a sample"
        ) from missing


def pil_loader(buffer: Any) -> Any:
    """An RGB image from its bytes, as torchvision's pil_loader makes it from a path."""
    from PIL import Image

    with Image.open(io.BytesIO(buffer)) as image:
        return image.convert("RGB")
