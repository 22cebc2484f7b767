"""b: what a limited link gives to eight plain keep-alive connections, for the same objects."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from .link import Link
from .s3 import Bucket

CONNECTIONS = 8


@dataclass(frozen=True)
class LinkRate:
    payload_per_second: float  # b
    wire_per_payload: float  # bytes on the wire for each byte of payload


def measure(link: Link, bucket: Bucket, keys: list[str], *, most_seconds: float = 3.0) -> LinkRate:
    """Reads objects, each once, until they are all read or the time is over."""
    waiting = iter(keys)
    lock = threading.Lock()
    wire, started = link.bytes_received(), time.monotonic()

    def read_some() -> int:
        received = 0
        while time.monotonic() - started < most_seconds:
            with lock:
                key = next(waiting, None)
            if key is None:
                break
            received += len(bucket.get(key))
        return received

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        payload = sum(f.result() for f in [pool.submit(read_some) for _ in range(CONNECTIONS)])
    seconds = time.monotonic() - started
    return LinkRate(payload / seconds, (link.bytes_received() - wire) / payload)
