"""A web server on loopback that misbehaves in every way a row must survive: real sockets, raw bytes."""

from __future__ import annotations

import contextlib
import gzip
import socket
import socketserver
import struct
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


def png(width: int = 1, grey: int = 128) -> bytes:
    """A valid grey PNG of `width` by 1, written by the PNG specification (section 11.2)."""

    def part(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, 1, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"\0" + bytes([grey]) * width, 9)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", header) + part(b"IDAT", pixels) + part(b"IEND", b"")


PICTURE = png()
HTML = b"<!DOCTYPE html><title>no picture</title><p>sorry</p>"


def reply(body: bytes = b"", status: int = 200, kind: str = "image/png", **headers: str) -> bytes:
    """A whole, honest answer; header names with _ for -."""
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


Send = Callable[[bytes], None]
Behaviour = Callable[["Hostile", socket.socket, str], None]


@dataclass
class Hostile:
    """What is served: path → bytes, or a function that has the socket to itself and closes it."""

    port: int = 0
    paths: dict[str, bytes | Behaviour] = field(default_factory=dict)
    hits: Counter[str] = field(default_factory=Counter)
    agents: set[str] = field(default_factory=set)
    done: threading.Event = field(default_factory=threading.Event)

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 256
    hostile: Hostile

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that hang up are the point of the exercise."""


class _Handler(socketserver.StreamRequestHandler):
    server: _Server
    timeout = 10
    disable_nagle_algorithm = True

    def handle(self) -> None:
        while True:
            line = self.rfile.readline(65536).decode("latin-1").split()
            if len(line) < 2:
                return
            for header in iter(lambda: self.rfile.readline(65536), b"\r\n"):
                if not header:
                    return
                name, _, value = header.decode("latin-1").partition(":")
                if name.lower() == "user-agent":
                    self.server.hostile.agents.add(value.strip())
            path = line[1]
            self.server.hostile.hits[path] += 1
            what = self.server.hostile.paths.get(path, reply(HTML, 404, "text/html"))
            if callable(what):
                what(self.server.hostile, self.connection, path)
                return
            self.wfile.write(what)


@contextlib.contextmanager
def serve(paths: dict[str, bytes | Behaviour]) -> Iterator[Hostile]:
    hostile = Hostile(paths=dict(paths))
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.hostile = hostile
        hostile.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield hostile
        finally:
            hostile.done.set()
            server.shutdown()
            thread.join()


def redirect(target: str) -> bytes:
    return reply(b"", 302, "text/html", Location=target)


def drip(first: bytes, pause_s: float = 0.05) -> Behaviour:
    """Send `first`, then a byte now and then, for ever."""

    def behave(hostile: Hostile, connection: socket.socket, path: str) -> None:
        connection.sendall(first)
        while not hostile.done.wait(pause_s):
            connection.sendall(b"x")

    return behave


def silent(hostile: Hostile, connection: socket.socket, path: str) -> None:
    """Take the request and say nothing."""
    hostile.done.wait(20)


def cut(data: bytes) -> Behaviour:
    """Send `data` and close the connection."""

    def behave(hostile: Hostile, connection: socket.socket, path: str) -> None:
        connection.sendall(data)

    return behave


def reset(data: bytes) -> Behaviour:
    """Send `data`, then reset the connection (RST instead of FIN)."""

    def behave(hostile: Hostile, connection: socket.socket, path: str) -> None:
        connection.sendall(data)
        time.sleep(0.05)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()

    return behave


def endless(hostile: Hostile, connection: socket.socket, path: str) -> None:
    """A chunked body without end, as fast as the reader takes it."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    piece = PICTURE + b"\0" * (4096 - len(PICTURE))
    while not hostile.done.is_set():
        connection.sendall(b"1000\r\n" + piece + b"\r\n")


def first_then(first: bytes, then: bytes) -> Behaviour:
    """One answer the first time, another one from then on."""

    def behave(hostile: Hostile, connection: socket.socket, path: str) -> None:
        connection.sendall(first if hostile.hits[path] == 1 else then)

    return behave


def bomb(size: int) -> bytes:
    """A small gzip body that unpacks to a picture's start and `size` zeros."""
    return gzip.compress(PICTURE + b"\0" * size, 9, mtime=0)


def chunked(*pieces: bytes) -> bytes:
    """An answer whose chunks are sent as they are given."""
    return b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(pieces)


@contextlib.contextmanager
def talk_first(line: bytes) -> Iterator[int]:
    """A server that speaks before it is spoken to, and not TLS; yields its port."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall(line)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
