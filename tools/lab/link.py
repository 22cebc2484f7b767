"""A link of limited rate to a server that this process starts.

As root: a network namespace of its own behind a veth pair, limited by `tc tbf`, so that the kernel
counts every byte on the wire. For anybody else: a relay on the loopback that counts payload bytes.
Either is gone when the context ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class Link(Protocol):
    """Where the server is to listen, where clients find it, and what has passed."""

    server_host: str
    kind: str

    def wrap(self, command: list[str]) -> list[str]:
        """The command, run on the server's side of the link."""
        ...

    def endpoint(self, port: int) -> str: ...
    def bytes_received(self) -> int: ...
    def limit(self, bytes_per_second: int) -> None: ...


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


@dataclass
class NamespaceLink:
    name: str
    device: str
    server_host: str
    kind: str = "tc tbf in a network namespace"

    def wrap(self, command: list[str]) -> list[str]:
        return ["ip", "netns", "exec", self.name, *command]

    def endpoint(self, port: int) -> str:
        return f"http://{self.server_host}:{port}"

    def bytes_received(self) -> int:
        """Bytes from the server to the clients, headers of all layers included."""
        return int(Path(f"/sys/class/net/{self.device}/statistics/rx_bytes").read_text())

    def limit(self, bytes_per_second: int) -> None:
        tbf = ["rate", f"{bytes_per_second * 8}bit", "burst", "32kb", "latency", "400ms"]
        _run("ip", "netns", "exec", self.name, "tc", "qdisc", "replace", "dev", "server", "root",
             "tbf", *tbf)  # fmt: skip


@contextlib.contextmanager
def _namespace(index: int) -> Iterator[NamespaceLink]:
    name, device = f"quiver-{os.getpid()}-{index}", f"qv{os.getpid() % 100000}-{index}"
    subnet = f"10.231.{(os.getpid() + index) % 250}"
    _run("ip", "netns", "add", name)
    try:
        _run("ip", "link", "add", device, "type", "veth", "peer", "name", "server", "netns", name)
        _run("ip", "addr", "add", f"{subnet}.1/24", "dev", device)
        _run("ip", "link", "set", device, "up")
        inside = ["ip", "netns", "exec", name, "ip"]
        _run(*inside, "addr", "add", f"{subnet}.2/24", "dev", "server")
        _run(*inside, "link", "set", "server", "up")
        _run(*inside, "link", "set", "lo", "up")
        yield NamespaceLink(name, device, f"{subnet}.2")
    finally:
        subprocess.run(["ip", "link", "del", device], capture_output=True)
        subprocess.run(["ip", "netns", "del", name], capture_output=True)


class RelayLink:
    """Forwards each connection to the same port + nothing else; answers are paced by a bucket."""

    server_host = "127.0.0.1"
    kind = "a relay on the loopback"

    def __init__(self) -> None:
        self._rate: int | None = None
        self._passed = 0
        self._due = time.monotonic()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def wrap(self, command: list[str]) -> list[str]:
        return command

    def endpoint(self, port: int) -> str:
        async def listen() -> int:
            server = await asyncio.start_server(lambda r, w: self._serve(port, r, w), "127.0.0.1", 0)
            return int(server.sockets[0].getsockname()[1])

        listening = asyncio.run_coroutine_threadsafe(listen(), self._loop).result(10)
        return f"http://127.0.0.1:{listening}"

    def bytes_received(self) -> int:
        return self._passed

    def limit(self, bytes_per_second: int) -> None:
        self._rate = bytes_per_second

    def close(self) -> None:
        async def cancel_all() -> None:
            for task in asyncio.all_tasks():
                if task is not asyncio.current_task():
                    task.cancel()

        asyncio.run_coroutine_threadsafe(cancel_all(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _serve(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(
            self._pump(reader, far_writer, paced=False),
            self._pump(far_reader, writer, paced=True),
            return_exceptions=True,
        )

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, paced: bool) -> None:
        try:
            while data := await reader.read(16384):
                if paced:
                    self._passed += len(data)
                    await self._pace(len(data))
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()

    async def _pace(self, size: int) -> None:
        if self._rate is None:
            return
        now = time.monotonic()
        self._due = max(self._due, now - 0.01) + size / self._rate
        if self._due > now:
            await asyncio.sleep(self._due - now)


@contextlib.contextmanager
def open_link(index: int = 0) -> Iterator[Link]:
    """The best link that this user may make."""
    if os.geteuid() == 0:
        with contextlib.ExitStack() as stack:
            try:
                link = stack.enter_context(_namespace(index))
            except subprocess.CalledProcessError:
                pass  # root of a container may not make one
            else:
                yield link
                return
    relay = RelayLink()
    try:
        yield relay
    finally:
        relay.close()
