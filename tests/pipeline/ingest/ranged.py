"""A file server on loopback that answers for parts of files, as nginx does; tests switch what it gives and when."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Ranged:
    """`files` by path; `headers` go with every answer. From request number `ends_after` on it answers 503."""

    files: dict[str, bytes]
    headers: dict[str, str] = field(default_factory=dict)
    ends_after: int | None = None
    ranges: bool = True
    base: str = ""
    asked: int = 0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    ranged: Ranged

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        ranged = self.ranged
        ranged.asked += 1
        data, status, headers = ranged.files.get(self.path, b""), 200, dict(ranged.headers)
        part = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if ranged.ends_after is not None and ranged.asked > ranged.ends_after:
            data, status = b"", 503
        elif self.path not in ranged.files:
            status = 404
        elif part is not None and ranged.ranges:
            first, last = int(part[1]), int(part[2] or len(data) - 1)
            headers["Content-Range"] = f"bytes {first}-{min(last, len(data) - 1)}/{len(data)}"
            data, status = data[first:last + 1], 206
        if ranged.ranges:
            headers["Accept-Ranges"] = "bytes"
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def serve(files: dict[str, bytes], **how: object) -> Iterator[Ranged]:
    ranged = Ranged(files, **how)  # type: ignore[arg-type]
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"ranged": ranged}))
    server.daemon_threads = True
    ranged.base = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield ranged
    finally:
        server.shutdown()
        server.server_close()
