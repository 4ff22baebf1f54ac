"""Serve a built demo website over real HTTP/1.1 on loopback: threads, keep-alive, planted delays and headers."""

from __future__ import annotations

import errno
import json
import mimetypes
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

from pipeline.errors import SourceError

from .address import DEFAULT_PORT, HOST

TYPES = {".html": "text/html; charset=utf-8", ".webp": "image/webp", ".txt": "text/plain; charset=utf-8"}


@contextmanager
def serve(folder: str, port: int = DEFAULT_PORT) -> Iterator[str]:
    """Serve `<folder>/www` as `<folder>/behaviour.json` says, on 127.0.0.1; yields the base URL without a slash.

    Port 0 takes any free one. Row ids hang on the address, so the demo recipe keeps to one port.
    Raises SourceError when the port is taken or there is no site in the folder.
    """
    www = os.path.realpath(os.path.join(folder, "www"))
    if not os.path.isdir(www):
        raise SourceError(f"no demo website in {folder}", hint="build it first: `make curate` does")
    handler = _handler(www, _behaviour(folder))
    try:
        server = _Server((HOST, port), handler)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        raise SourceError(
            f"port {port} on {HOST} is taken, and the demo website's addresses depend on it",
            hint=f"stop what listens there (`ss -ltnp 'sport = :{port}'` names it) or set another port in the recipe",
        ) from error
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _behaviour(folder: str) -> Mapping[str, Mapping[str, Any]]:
    path = os.path.join(folder, "behaviour.json")
    if not os.path.exists(path):
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            loaded: dict[str, dict[str, Any]] = json.load(file)
            return loaded
    except (OSError, ValueError) as error:
        raise SourceError(f"{path} cannot be read ({error})", hint=f"delete {folder} and run again") from error


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    # A port in its wait time after a close may be taken again; one that another process listens on may not.
    allow_reuse_address = True
    allow_reuse_port = False

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is not worth a traceback."""


class _Handler(BaseHTTPRequestHandler):
    www: ClassVar[str]
    delays: ClassVar[Mapping[str, float]]
    headers_of: ClassVar[Mapping[str, Mapping[str, str]]]
    statuses: ClassVar[Mapping[str, int]]

    protocol_version = "HTTP/1.1"
    server_version = "GristmillDemo"
    sys_version = ""
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave in one piece
    timeout = 60

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        if path.endswith("/"):
            path += "index.html"
        if delay := self.delays.get(path):
            time.sleep(delay)
        status, body, kind = self._find(path)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in self.headers_of.get(path, {}).items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)
        self.wfile.flush()

    def _find(self, path: str) -> tuple[int, bytes, str]:
        """Status, body and content type; the type goes by the name, right or wrong, as on many servers."""
        file_path = os.path.realpath(self.www + path)
        status = self.statuses.get(path, 200)
        if status == 200 and file_path.startswith(self.www + os.sep) and os.path.isfile(file_path):
            with open(file_path, "rb") as file:
                suffix = os.path.splitext(file_path)[1]
                kind = TYPES.get(suffix) or mimetypes.guess_type(file_path)[0] or "application/octet-stream"
                return 200, file.read(), kind
        status = 404 if status == 200 else status
        return status, b"<!DOCTYPE html><title>Not here</title><h1>Not here</h1>\n", TYPES[".html"]

    def log_message(self, format: str, *arguments: object) -> None:
        """Keep stderr for the pipeline's own progress."""


def _handler(www: str, behaviour: Mapping[str, Mapping[str, Any]]) -> type[_Handler]:
    members = {
        "www": www,
        "delays": behaviour.get("delays", {}),
        "headers_of": behaviour.get("headers", {}),
        "statuses": behaviour.get("statuses", {}),
    }
    return type("SiteHandler", (_Handler,), members)
