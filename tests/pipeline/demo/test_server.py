"""The server, over real sockets: what it answers, how it keeps a connection, what it refuses."""

from __future__ import annotations

import http.client
import json
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from pipeline.demo.server import serve
from pipeline.errors import SourceError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    www = tmp_path / "www"
    (www / "pictures").mkdir(parents=True)
    (www / "index.html").write_text("<h1>hello</h1>")
    (www / "pictures" / "a.jpg").write_bytes(b"\xff\xd8 not really")
    (www / "pictures" / "gone.webp").write_bytes(b"RIFF")
    (tmp_path / "secret.txt").write_text("not served")
    behaviour = {
        "delays": {"/index.html": 0.3},
        "headers": {"/pictures/a.jpg": {"X-Robots-Tag": "noai"}},
        "statuses": {"/pictures/gone.webp": 410},
    }
    (tmp_path / "behaviour.json").write_text(json.dumps(behaviour))
    return tmp_path


def connection(base: str) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(base).netloc, timeout=10)


def ask(client: http.client.HTTPConnection, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    client.request(method, path)
    answer = client.getresponse()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()


def test_files_types_headers_and_statuses_over_one_connection(folder: Path) -> None:
    with serve(str(folder), port=0) as base:
        client = connection(base)
        status, headers, body = ask(client, "/pictures/a.jpg")
        assert (status, headers["content-type"], body) == (200, "image/jpeg", b"\xff\xd8 not really")
        assert headers["x-robots-tag"] == "noai"
        first_socket = client.sock
        assert ask(client, "/pictures/gone.webp")[0] == 410
        assert ask(client, "/pictures/never.png")[0] == 404
        status, headers, body = ask(client, "/pictures/a.jpg", "HEAD")
        assert (status, headers["content-length"], body) == (200, "13", b"")
        assert client.sock is first_socket  # HTTP/1.1 keeps it
        client.close()


def test_planted_delays_are_kept_and_hold_up_nobody_else(folder: Path) -> None:
    with serve(str(folder), port=0) as base:
        slow, quick = connection(base), connection(base)
        start = time.monotonic()
        slow.request("GET", "/")
        assert ask(quick, "/pictures/a.jpg")[0] == 200
        assert time.monotonic() - start < 0.29
        assert slow.getresponse().read() == b"<h1>hello</h1>"
        assert time.monotonic() - start >= 0.3
        slow.close()
        quick.close()


@pytest.mark.parametrize("path", ["/../secret.txt", "/pictures/../../secret.txt", "/%2e%2e/secret.txt", "/pictures/"])
def test_nothing_outside_the_site_is_served(folder: Path, path: str) -> None:
    with serve(str(folder), port=0) as base:
        client = connection(base)
        assert ask(client, path)[0] == 404
        client.close()


def test_a_taken_port_is_one_clear_line_with_a_hint(folder: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(SourceError, match=str(port)) as caught, serve(str(folder), port=port):
            pass
        assert str(port) in caught.value.hint


def test_the_port_is_free_again_at_once(folder: Path) -> None:
    with serve(str(folder), port=0) as base:
        port = urlsplit(base).port
        client = connection(base)
        ask(client, "/pictures/a.jpg")
        client.close()
    assert port is not None
    with serve(str(folder), port=port) as again:
        assert again == base


def test_a_missing_site_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no demo website"), serve(str(tmp_path), port=0):
        pass


def test_a_damaged_behaviour_file_is_refused(folder: Path) -> None:
    (folder / "behaviour.json").write_text("{")
    with pytest.raises(SourceError, match="cannot be read"), serve(str(folder), port=0):
        pass
