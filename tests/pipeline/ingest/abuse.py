"""A server on loopback that says exactly what it is told to, byte for byte, to hundreds of connections at once."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.pipeline.ingest.hostile import HTML, reply

Talk = Callable[[asyncio.StreamWriter], Awaitable[None]]
"""Has the connection to itself; it is closed afterwards."""

Answers = Mapping[str, "bytes | Talk"]


@dataclass
class Abuse:
    """Path → what is sent before the connection is closed; anything else is a 404."""

    answers: Answers
    port: int = 0
    hits: Counter[str] = field(default_factory=Counter)

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            first = await reader.readexactly(1)
            if first == b"\x16":  # TLS, where there is none
                writer.write(reply(HTML, 400, "text/html"))
                writer.close()
                return
            request = first + await reader.readuntil(b"\r\n\r\n")
            path = request.split(b" ")[1].decode("latin-1")
            self.hits[path] += 1
            what = self.answers.get(path, reply(HTML, 404, "text/html"))
            if isinstance(what, bytes):
                writer.write(what)
                await writer.drain()
            else:
                await what(writer)
        writer.close()


@contextlib.contextmanager
def serve(answers: Answers, tls: ssl.SSLContext | None = None) -> Iterator[Abuse]:
    """Served in a thread of its own; what still talks at the end is cut off."""
    abuse, loop = Abuse(answers), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def run(work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(20)

    async def start() -> asyncio.Server:
        return await asyncio.start_server(abuse.connected, "127.0.0.1", 0, backlog=1024, ssl=tls, limit=1 << 17)

    async def stop() -> None:
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    server = run(start())
    abuse.port = server.sockets[0].getsockname()[1]
    try:
        yield abuse
    finally:
        run(stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()


def first_then(first: bytes, piece: bytes, pause_s: float = 0.0) -> Talk:
    """Send `first`, then `piece` again and again, without end."""

    async def talk(writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        while True:
            await writer.drain()
            await asyncio.sleep(pause_s)
            writer.write(piece)

    return talk


def then_silent(first: bytes) -> Talk:
    async def talk(writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        await writer.drain()
        await asyncio.sleep(60)

    return talk


def then_reset(first: bytes) -> Talk:
    """Send `first`, then RST instead of FIN."""

    async def talk(writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    return talk


@dataclass
class Trap:
    """A port that counts who connects to it, by whichever of this machine's addresses."""

    port: int
    caught: list[str] = field(default_factory=list)


@contextlib.contextmanager
def trap() -> Iterator[Trap]:
    """Listens on all addresses of this machine, of IPv4 and, where there is one, of IPv6."""
    with contextlib.ExitStack() as stack:
        four = stack.enter_context(socket.create_server(("", 0)))
        sockets, set_up = [four], Trap(four.getsockname()[1])
        if socket.has_ipv6:
            with contextlib.suppress(OSError):
                six = socket.create_server(("::", set_up.port), family=socket.AF_INET6)
                sockets.append(stack.enter_context(six))
        done = threading.Event()

        def watch(listening: socket.socket) -> None:
            listening.settimeout(0.05)
            while not done.is_set():
                with contextlib.suppress(OSError):
                    connection, address = listening.accept()
                    set_up.caught.append(address[0])
                    connection.close()

        threads = [threading.Thread(target=watch, args=(each,), daemon=True) for each in sockets]
        for thread in threads:
            thread.start()
        try:
            yield set_up
        finally:
            done.set()
            for thread in threads:
                thread.join()
