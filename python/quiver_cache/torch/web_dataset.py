"""Samples in tar archives, as the webdataset package makes them, in any order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InvalidError
from .dataset import Dataset, Decode


class WebDataset(Dataset):
    """The samples of tar archives: dicts with the keys, extensions and bytes of `webdataset`.

    `url` is a folder or prefix that has archives (.tar), one archive, or a range of them as in
    s3://bucket/shards/train-{000..099}.tar. A sample is `{"__key__": stem, "__url__": archive,
    extension: bytes, ...}`: the files of one stem that follow one another, extensions in lower case.
    `decode` has for any of these extensions a function from bytes to an object. `transform` gets the
    whole dict. The rest is as in `Dataset`; unshuffled, samples come in the archives' order.
    """

    def __init__(
        self,
        url: str,
        decode: Mapping[str, Decode] | None = None,
        transform: Decode | None = None,
        *,
        name: str | None = None,
        **settings: object,
    ) -> None:
        if decode is not None and not isinstance(decode, Mapping):
            raise InvalidError(
                "decode= of a WebDataset is a dict from extensions to functions, as in "
                "{'jpg': pil_loader, 'cls': int}; a function of the whole sample is transform="
            )
        self.decoders = {extension.lower(): made for extension, made in (decode or {}).items()}
        super().__init__(
            url, None, transform, None, layout="webdataset", name=name, allow_empty=False, **settings
        )

    @property
    def plain(self) -> bool:
        return False  # an item is a piece of an archive, which nobody asked for

    def decoded(self, buffer: Any, item: int) -> dict[str, Any]:
        manifest = self.source.manifest
        stem, files = manifest.take_apart(item, buffer)
        address = f"{manifest.origin_url.rstrip('/')}/{manifest.object_key(item)}"
        sample: dict[str, Any] = {"__key__": stem, "__url__": address}
        for name, body in files:
            extension = name.lower()
            if extension in sample:
                raise ValueError(f"the archive has two files {stem}.{extension} in a row")
            decode = self.decoders.get(extension)
            sample[extension] = body if decode is None else decode(body)
        return sample
