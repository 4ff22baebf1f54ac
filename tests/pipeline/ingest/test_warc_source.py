"""Web archives written by hand after the specification (ISO 28500): pages, pictures, and all that may be wrong."""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import brotli
import pytest
from warcio.statusandheaders import StatusAndHeaders  # type: ignore[import-untyped]
from warcio.warcwriter import WARCWriter  # type: ignore[import-untyped]

from pipeline import storage
from pipeline.errors import SourceError
from pipeline.ingest.addresses import row_id
from pipeline.ingest.sources._archive import plain
from tests.pipeline.ingest import hostile, ranged
from tests.pipeline.ingest.hostile import reply
from tests.pipeline.ingest.test_ingest_stage import ingest

png = hostile.png
SITE = "http://a.example"
PAGE = """<figure><img src="1.png" alt="one"><figcaption>The first</figcaption></figure><img src="/2.png" alt="two">
<a rel="license" href="https://l.example/by">by</a>"""


def record(kind: str, url: str, block: bytes, version: str = "1.0", **more: str) -> bytes:
    fields = {"WARC-Type": kind, "WARC-Target-URI": f"<{url}>" if version == "1.0" else url,
              "WARC-Record-ID": "<urn:uuid:12345678-1234-1234-1234-123456789012>", "WARC-Date": "2026-01-01T00:00:00Z",
              "Content-Type": "application/http; msgtype=response",
              **{name.replace("_", "-"): value for name, value in more.items()}, "Content-Length": str(len(block))}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"WARC/{version}\r\n{head}\r\n".encode() + block + b"\r\n\r\n"


def http(body: bytes, kind: str = "image/png", status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{headers}\r\n".encode() + body


def page(name: str = "/", html: str = PAGE, **how: str) -> bytes:
    return record("response", SITE + name, http(html.encode(), "text/html; charset=utf-8", **how))


def picture(name: str, data: bytes, **how: str) -> bytes:
    return record("response", SITE + name, http(data, **how))


INFO = record("warcinfo", "", b"software: by hand\r\n", Content_Type="application/warc-fields")
REQUEST = record("request", f"{SITE}/", b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")


def settings(path: Path | str, **source: Any) -> dict[str, Any]:
    return {"sources": [{"kind": "warc", "name": "w", "path": str(path), **source}]}


def outcomes(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(row["url"].removeprefix(SITE), row["fetch_outcome"]) for row in rows]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("remote", [False, True])
def test_pages_and_pictures_become_rows(tmp_path: Path, packed: bool, remote: bool) -> None:
    parts = [INFO, REQUEST, page(), picture("/1.png", png(1)), picture("/3.png", png(3)), picture("/2.png", png(2))]
    whole = b"".join(gzip.compress(each) if packed else each for each in parts)
    name = "a.warc.gz" if packed else "a.warc"
    (tmp_path / name).write_bytes(whole)
    with ranged.serve({f"/{name}": whole}, headers={"ETag": "1"}) as server:
        path = f"{server.base}/{name}" if remote else str(tmp_path / name)
        rows, _ = ingest(tmp_path / "run", settings(path))
        assert ingest(tmp_path / "run", settings(path)) == (rows, False)
    assert outcomes(rows) == [("/1.png", "ok"), ("/2.png", "ok"), ("/3.png", "ok")]
    assert [(row["captions"], row["page_url"]) for row in rows] == [
        (["one", "The first"], f"{SITE}/"), (["two"], f"{SITE}/"), ([], None)]
    assert {row["license_url"] for row in rows[:2]} == {"https://l.example/by"}
    assert [row["id"] for row in rows] == [row_id("w", "warc", f"{SITE}/{n}.png", 0) for n in (1, 2, 3)]
    for row, number in zip(rows, (1, 2, 3), strict=True):
        place = storage.join(str(tmp_path / "run" / "data"), row["container"])
        assert storage.read_range(place, row["offset"], row["length"]) == png(number)
        assert row["sha256"] == hashlib.sha256(png(number)).digest()


def test_what_another_program_writes_is_read(tmp_path: Path) -> None:
    with open(tmp_path / "a.warc.gz", "wb") as file:
        writer = WARCWriter(file, gzip=True)
        for name, kind, body in (("/", "text/html", PAGE.encode()), ("/1.png", "image/png", png(1)),
                                 ("/2.png", "image/png", png(2))):
            headers = StatusAndHeaders("200 OK", [("Content-Type", kind)], protocol="HTTP/1.0")
            writer.write_record(writer.create_warc_record(SITE + name, "response", payload=io.BytesIO(body),
                                                          http_headers=headers))
    rows, _ = ingest(tmp_path / "run", settings(tmp_path))
    assert outcomes(rows) == [("/1.png", "ok"), ("/2.png", "ok")]
    assert rows[0]["sha256"] == hashlib.sha256(png(1)).digest()


def test_what_the_archive_does_not_hold(tmp_path: Path) -> None:
    shown = ("gone", "away", "cut", "moved", "nowhere", "page", "html", "no")
    html = "".join(f'<img src="/{name}" alt="{name}">' for name in shown)
    (tmp_path / "a.warc").write_bytes(b"".join([
        page("/", html), picture("/gone", b"", status="404 Not Found", kind="text/html"),
        picture("/away", b"", status="503 Busy", kind="text/html"),
        record("response", f"{SITE}/cut", http(png(1)[:50]), WARC_Truncated="length"),
        picture("/moved", b"", status="301 Moved", headers="Location: /there.png\r\n"), picture("/there.png", png(2)),
        page("/html", "<p>no picture"), picture("/page", b"GIF no more", kind="image/gif")]))
    rows, _ = ingest(tmp_path / "run", settings(tmp_path))
    assert outcomes(rows) == [
        ("/gone", "not_found"), ("/away", "http_error"), ("/cut", "not_in_archive"), ("/moved", "ok"),
        ("/nowhere", "not_in_archive"), ("/page", "not_an_image"), ("/html", "not_an_image"), ("/no", "not_in_archive")]
    assert rows[3]["sha256"] == hashlib.sha256(png(2)).digest()
    assert "WARC-Truncated: length" in rows[2]["fetch_detail"]


def test_opt_outs_in_the_archive(tmp_path: Path) -> None:
    (tmp_path / "a.warc").write_bytes(b"".join([
        page("/", '<img src="1.png"><img src="2.png">'), picture("/1.png", png(1), headers="X-Robots-Tag: noai\r\n"),
        picture("/2.png", png(2)), page("/closed", '<meta name="robots" content="noai"><img src="3.png">'),
        picture("/3.png", png(3)), page("/too", '<img src="4.png">', headers="TDM-Reservation: 1\r\n"),
        picture("/4.png", png(4))]))
    rows, _ = ingest(tmp_path / "run", settings(tmp_path))
    assert outcomes(rows) == [("/1.png", "opt_out"), ("/2.png", "ok"), ("/3.png", "opt_out"), ("/4.png", "opt_out")]
    assert [row["sha256"] is None for row in rows] == [True, False, True, True]
    free, _ = ingest(tmp_path / "run", {**settings(tmp_path), "fetch": {"opt_outs": [], "respect_tdm": False}})
    assert [outcome for _, outcome in outcomes(free)] == ["ok"] * 4


def test_revisits(tmp_path: Path) -> None:
    digest = "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ"
    revisit = http(b"", status="304 Not Modified")
    (tmp_path / "a.warc").write_bytes(b"".join([
        page("/", '<img src="new.png"><img src="same.png"><img src="lost.png">'),
        record("response", f"{SITE}/old.png", http(png(1)), "1.1", WARC_Payload_Digest=digest),
        record("revisit", f"{SITE}/new.png", revisit, "1.1", WARC_Refers_To_Target_URI=f"{SITE}/old.png"),
        record("revisit", f"{SITE}/same.png", b"", "1.1", WARC_Payload_Digest=digest),
        record("revisit", f"{SITE}/lost.png", revisit, "1.1", WARC_Refers_To_Target_URI=f"{SITE}/else.png")]))
    rows, _ = ingest(tmp_path / "run", settings(tmp_path))
    assert outcomes(rows) == [("/new.png", "ok"), ("/same.png", "ok"), ("/lost.png", "not_in_archive")]
    assert {row["sha256"] for row in rows[:2]} == {hashlib.sha256(png(1)).digest()}


def chunked(data: bytes) -> bytes:
    half = len(data) // 2
    return b"".join(b"%x;x=y\r\n%b\r\n" % (len(each), each) for each in (data[:half], data[half:])) + b"0\r\n\r\n"


@pytest.mark.parametrize(("headers", "coded"), [
    ("Transfer-Encoding: chunked", chunked(png(1))), ("Transfer-Encoding: chunked", png(1)),
    ("Content-Encoding: gzip", gzip.compress(png(1))), ("Content-Encoding: gzip", png(1)),
    ("Content-Encoding: br", brotli.compress(png(1))), ("Content-Encoding: br", png(1)),
    ("Content-Encoding: deflate", zlib.compress(png(1))),
    ("Transfer-Encoding: chunked\r\nContent-Encoding: gzip", chunked(gzip.compress(png(1)))),
], ids=range(8))
def test_coded_bodies(tmp_path: Path, headers: str, coded: bytes) -> None:
    (tmp_path / "a.warc.gz").write_bytes(gzip.compress(picture("/1.png", coded, headers=f"{headers}\r\n")))
    [row], _ = ingest(tmp_path / "run", settings(tmp_path))
    assert row["sha256"] == hashlib.sha256(png(1)).digest()


@pytest.mark.parametrize("coding", ["gzip", "br"])
def test_a_bomb_is_unpacked_no_further_than_allowed(tmp_path: Path, coding: str) -> None:
    bomb = png(1) + bytes(50_000_000)
    packed = gzip.compress(bomb) if coding == "gzip" else brotli.compress(bomb, quality=1)
    assert len(plain(packed, {"content-encoding": (coding,)}, 1000)) == 1000
    (tmp_path / "a.warc").write_bytes(picture("/1.png", packed, headers=f"Content-Encoding: {coding}\r\n"))
    [row], _ = ingest(tmp_path / "run", {**settings(tmp_path), "fetch": {"max_bytes": 100_000}})
    assert row["fetch_outcome"] == "too_large"


@pytest.fixture
def good() -> list[bytes]:
    return [page(), picture("/1.png", png(1)), picture("/2.png", png(2))]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("left", "outcome"), [
    (0.0, "not_in_archive"), (0.5, "not_in_archive"), (0.9, "unreadable_file")])
def test_a_file_that_is_cut_gives_what_it_holds(
        tmp_path: Path, good: list[bytes], packed: bool, left: float, outcome: str) -> None:
    """Cut between two records, in the HTTP header of the last, and in its picture."""
    *parts, last = [gzip.compress(each) if packed else each for each in good]
    (tmp_path / ("a.warc.gz" if packed else "a.warc")).write_bytes(b"".join(parts) + last[:int(len(last) * left)])
    rows, _ = ingest(tmp_path / "run", settings(tmp_path))
    assert outcomes(rows) == [("/1.png", "ok"), ("/2.png", outcome)]


@pytest.mark.parametrize(("damage", "expected"), [
    (lambda parts: parts[0] + parts[1] + b"junk\r\n" * 100 + parts[2], ["ok", "not_in_archive"]),
    (lambda parts: gzip.compress(b"".join(parts)), ["unreadable_file", "unreadable_file"]),  # not record by record
    (lambda parts: parts[0] + parts[1] + parts[2].replace(b"Content-Length: ", b"Content-Length: 9999999"),
     ["ok", "too_large"]),
    (lambda parts: parts[0] + parts[1] + parts[2].replace(b"HTTP/1.1 200 OK", b"\xff\xfe nonsense"),
     ["ok", "not_in_archive"]),
])
def test_damaged_files(tmp_path: Path, good: list[bytes], damage: Any, expected: list[str]) -> None:
    data = damage(good)
    (tmp_path / ("a.warc.gz" if data[:2] == b"\x1f\x8b" else "a.warc")).write_bytes(data)
    rows, _ = ingest(tmp_path / "run", settings(tmp_path))
    assert [outcome for _, outcome in outcomes(rows)] == expected


@pytest.mark.parametrize("data", [b"", b"no archive at all", gzip.compress(b"nor this"), b"WARC/1.0\r\n"], ids=range(4))
def test_files_that_are_none(tmp_path: Path, data: bytes, good: list[bytes]) -> None:
    (tmp_path / "a.warc.gz").write_bytes(data)
    (tmp_path / "b.warc").write_bytes(b"".join(good))
    rows, _ = ingest(tmp_path / "run", settings(tmp_path))
    assert outcomes(rows) == [("/1.png", "ok"), ("/2.png", "ok")]


@pytest.fixture
def web() -> Iterator[hostile.Hostile]:
    with hostile.serve({"/2.png": reply(png(2)), "/robots.txt": reply(b"", 404), "/3.png": reply(png(3))}) as running:
        yield running


def test_missing_pictures_are_fetched_when_asked(tmp_path: Path, web: hostile.Hostile) -> None:
    html = f'<img src="{web.base}/2.png" alt="two"><img src="1.png"><img src="{web.base}/9.png">'
    (tmp_path / "a.warc").write_bytes(page("/", html) + picture("/1.png", png(1)))
    fetch = {"contact": "t@example.org", "allow_hosts": ["127.0.0.1"]}
    rows, _ = ingest(tmp_path / "run", {**settings(tmp_path, fetch_missing=True), "fetch": fetch})
    assert [row["fetch_outcome"] for row in rows] == ["ok", "ok", "not_found"]
    assert rows[0]["sha256"] == hashlib.sha256(png(2)).digest()
    assert rows[0]["captions"] == ["two"]


def test_the_same_page_in_two_files_and_pictures_shown_only(tmp_path: Path, good: list[bytes]) -> None:
    (tmp_path / "a.warc").write_bytes(good[0] + good[1])
    (tmp_path / "b.warc").write_bytes(good[0] + good[2] + picture("/3.png", png(3)))
    rows, _ = ingest(tmp_path / "run", settings(tmp_path, pictures="shown"))
    assert outcomes(rows) == [("/1.png", "ok"), ("/2.png", "ok")] * 2
    assert [row["occurrence"] for row in rows] == [0, 0, 1, 1]


def test_no_files(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no WARC files"):
        ingest(tmp_path / "run", settings(tmp_path))


def test_without_fastwarc_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SourceError, match="fastwarc") as caught:
        ingest(tmp_path / "run", settings(tmp_path))
    assert 'pip install "gristmill[warc]"' in caught.value.hint
