# Made by python/make_stub.py.
# ruff: noqa
# fmt: off
"""
The C++ core of quiver_cache. Private: use quiver_cache and quiver_cache.torch.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import final


@final
class Sample:
    """Bytes of one item: a read-only buffer, not copied."""
    id: int
    def __len__(self) -> int: ...
    def __eq__(self, other: object) -> bool: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Settings:
    """All settings, with where each came from."""

    @staticmethod
    def load(arguments: Mapping[str, str] = {}) -> Settings:
        """Argument > environment (QUIVER_...) > file > default."""

    @property
    def enabled(self) -> bool: ...

    @property
    def digest_lazily(self) -> bool: ...

    @property
    def memory_limit(self) -> int: ...

    def explain(self) -> str: ...

class Credentials:
    """Of an origin; in memory only."""

    def __init__(self, access_key: str = '', secret_key: str = '', session_token: str = '') -> None: ...

    def renewed_by_somebody(self, is_: bool) -> None:
        """Whether somebody waits in wanted(), and answers by renew()."""

    def wanted(self, seconds: float) -> bool:
        """Waits until they were refused as expired: True."""

    def renew(self, access_key: str, secret_key: str, session_token: str) -> None: ...

class Manifest:
    """What a dataset is; immutable, read in place."""

    @staticmethod
    def open(path: str, verify: bool = False) -> Manifest: ...

    @staticmethod
    def from_descriptor(fd: int) -> Manifest: ...

    def __len__(self) -> int: ...

    def key(self, id: int) -> str: ...

    def label(self, id: int) -> int: ...

    def length(self, id: int) -> int: ...

    def object_key(self, id: int) -> str:
        """Of the object that an item lies in."""

    def take_apart(self, id: int, item: Sample) -> tuple[str, list[tuple[str, bytes]]]:
        """
        The stem and the files, by extension, of an item that is a sample in an archive.
        """

    def labels_of(self, ids: Sequence[int]) -> list[int]: ...

    def packed_labels(self) -> bytes: ...

    @property
    def classes(self) -> list[str]: ...

    @property
    def origin_url(self) -> str: ...

    @property
    def public_id(self) -> str: ...

    @property
    def listing_id(self) -> str: ...

    @property
    def provisional(self) -> bool: ...

    @property
    def total_bytes(self) -> int: ...

    @property
    def longest_item(self) -> int: ...

    @property
    def descriptor(self) -> int: ...

class RankState:
    """The part of one rank in a checkpoint."""

    @staticmethod
    def decode(data: bytes) -> RankState: ...

    def encode(self) -> bytes: ...

    @property
    def dataset(self) -> str: ...

    @property
    def items(self) -> int: ...

    @property
    def seed(self) -> int: ...

    @property
    def epoch(self) -> int: ...

    @property
    def step(self) -> int: ...

    @property
    def world(self) -> int: ...

    @property
    def rank(self) -> int: ...

    @property
    def batch_size(self) -> int: ...

    @property
    def mode(self) -> str: ...

    @property
    def pads(self) -> int: ...

    @property
    def delivered(self) -> int: ...

    @property
    def delivered_before(self) -> int: ...

    def delivered_ids(self) -> list[int]: ...

    def ids_before(self) -> list[int]: ...

    @property
    def chain(self) -> str: ...

class DeliveryChain:
    """SHA-256 over what was delivered."""

    def __init__(self, start: str = '') -> None: ...

    def add(self, epoch: int, step: int, rank: int, ids: Sequence[int]) -> None: ...

    @property
    def value(self) -> str: ...

def item_seed(seed: int, epoch: int, id: int) -> int: ...

def batches_of_rank(items: int, world: int, rank: int, batch_size: int, drop_last: bool, uneven: str) -> int: ...

def check_states(parts: Sequence[RankState]) -> None:
    """Raises InvalidError unless the parts are one state of a whole job."""

class ReadStats:
    """Counters of this process for a dataset, by tier."""

    @property
    def items(self) -> list[int]: ...

    @property
    def bytes(self) -> list[int]: ...

    @property
    def stale(self) -> int: ...

    @property
    def corrupt(self) -> int: ...

    @property
    def direct_origin_bytes(self) -> int: ...

class Dataset:
    """What a process holds to read items."""

    @staticmethod
    def open(*, manifest_path: str, url: str, settings: Settings, credentials: Credentials, daemon_program: str, name: str) -> Dataset: ...

    def read(self, id: int) -> Sample: ...

    def want(self, ids: Sequence[int]) -> None: ...

    def connect(self) -> bool:
        """Joins or starts a daemon; False while there is none."""

    def credentials_renewed(self) -> None:
        """Tells the daemon."""

    def stats(self) -> ReadStats: ...

    @property
    def generation(self) -> int: ...

    @property
    def degraded(self) -> bool: ...

class DigestProgress:
    @property
    def objects_listed(self) -> int: ...

    @property
    def items_done(self) -> int: ...

    @property
    def items_total(self) -> int: ...

    @property
    def bytes_done(self) -> int: ...

    @property
    def bytes_total(self) -> int: ...

    @property
    def listing(self) -> bool: ...

    @property
    def archives(self) -> bool: ...

class DigestReport:
    @property
    def manifest_path(self) -> str: ...

    @property
    def public_id(self) -> str: ...

    @property
    def items(self) -> int: ...

    @property
    def classes(self) -> int: ...

    @property
    def left_out(self) -> int: ...

    @property
    def downloaded(self) -> int: ...

    @property
    def kept(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    @property
    def downloaded_bytes(self) -> int: ...

def digest(url: str, *, layout: str, path: str, settings: Settings, credentials: Credentials, daemon_program: str, allow_empty: bool, lazy: bool, progress: Callable[[DigestProgress], object]) -> DigestReport: ...

def lazy_manifest_path(path: str) -> str: ...

def manifest_path_for(url: str, layout: str, settings: Settings, credentials: Credentials) -> str: ...

class ByReference:
    """While it lives, a batch is pickled by reference."""

    def __reduce__(self) -> tuple[object, ...]: ...

class Batch:
    """A batch in this process; keeps its memory."""

    def __init__(self, feed: int, ticket: int) -> None: ...

    def __reduce__(self) -> tuple[object, ...]: ...

    def by_reference(self) -> ByReference:
        """
        Until it has been pickled this thread pickles the batch's samples by reference.
        """

    @property
    def ticket(self) -> int: ...

    @property
    def epoch(self) -> int: ...

    @property
    def step(self) -> int: ...

    @property
    def abandoned(self) -> bool: ...

    def __len__(self) -> int: ...

    @property
    def ids(self) -> list[int]: ...

    def contents(self) -> list[Sample | Exception]: ...

class FeedReader:
    """Reads tickets, in the owner's process or in a worker."""

    @staticmethod
    def attach(fd: int) -> FeedReader: ...

    def wait(self, ticket: int, timeout: float) -> Batch | None: ...

    def release(self) -> None:
        """At a worker's end: lets go of all batches, whoever holds them still."""

class EpochReport:
    """Where the time and the bytes of an epoch went."""

    @property
    def epoch(self) -> int: ...

    @property
    def seconds(self) -> float: ...

    @property
    def waited_link_s(self) -> float: ...

    @property
    def waited_decode_s(self) -> float: ...

    @property
    def samples(self) -> int: ...

    @property
    def batches(self) -> int: ...

    @property
    def repeats(self) -> int: ...

    @property
    def skipped(self) -> int: ...

    @property
    def tiers(self) -> list[int]: ...

    @property
    def settled(self) -> int: ...

    @property
    def origin_bytes(self) -> int: ...

    @property
    def degraded(self) -> bool: ...

class Feed:
    """The batches of one rank, drawn and read ahead."""

    def __init__(self, dataset: Dataset, *, batch_size: int, shuffle: bool, drop_last: bool, mode: str, seed: int, world: int, rank: int, uneven: str, subset: Sequence[int], read_ahead: int = 4, max_tickets: int = 64, reader_threads: int = 2, memory_limit: int = 1073741824, job: bytes = ...) -> None: ...

    @property
    def shared_fd(self) -> int: ...

    def reader(self) -> FeedReader: ...

    @property
    def batches(self) -> int: ...

    def begin_epoch(self) -> None: ...

    def abandon(self) -> None: ...

    def issue(self) -> int | None: ...

    def delivered(self, ticket: int, skipped: int, waited: float = 0.0, decoding: float = 0.0, since_decoded: float = 0.0, workers: int = 0) -> None:
        """Times in seconds; workers decode beside the loop."""

    @property
    def epoch(self) -> int: ...

    def set_epoch(self, epoch: int) -> None: ...

    def state(self) -> RankState: ...

    def load_state(self, parts: Sequence[RankState]) -> None: ...

    def replay(self, batches: Sequence[Sequence[int]]) -> None: ...

    def report(self) -> EpochReport: ...

    def close(self) -> None: ...
