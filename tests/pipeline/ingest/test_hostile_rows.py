"""Odd addresses in a list, hostile pages of a site, and how much memory all of it takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import SourceError
from pipeline.ingest.outcomes import OUTCOMES
from pipeline.ingest.settings import FetchSettings
from pipeline.ingest.web import LazyWeb
from tests.pipeline.ingest import abuse, abuses
from tests.pipeline.ingest.abuse import Abuse, Talk, first_then
from tests.pipeline.ingest.abuses import raw
from tests.pipeline.ingest.hostile import PICTURE, bomb, png, reply
from tests.pipeline.ingest.test_hostile import HASTY, PATIENT, fetched, settings_for
from tests.pipeline.ingest.test_ingest_stage import ingest


def odd(here: str) -> list[tuple[str, str]]:
    """(address, outcome); `here` is host:port of the server."""
    plain = [f"http://{here}/ok.png#part", f"  http://{here}/ok.png\t", f"HTTP://{here}/ok.png",
        f"http://me:pw@{here}/ok.png",
             f"http://@{here}/ok.png", f"http://{here}/x/../ok.png", f"http://{here}/./ok.png",
                 f"http://{here}/%6fk.png",
             f"http://{here}/o\nk.png", f"http://{here}/with space.png", f"http://{here}/with%20space.png",
             f"http://{here}/\u00fc.png", f"http://{here}/u\u0308.png", f"http://{here}/100%.png",
                 f"http://{here}/%zz.png",
             f"http://{here}//ok.png", f"http://{here}/q?a=b&c=%26", f"http://{here}/ctrl\x01.png",
                 f"http://{here}/\U0001f431.png",
             f"http://{here}/ok.png", f"http://{here}/ok.png", f"http://{here}/a;b=c,d@e:f", f"http://{here}"]
    none = ["data:image/png;base64,iVBORw0KGgo=", f"//{here}/ok.png", "/ok.png", "ok.png", "ftp://h/a.png",
        "file:///etc/passwd",
            "javascript:alert(1)", "http://", "http:///ok.png", "http:ok.png", "http://h:65536/", "http://h:-1/",
            "http://h:x/",
            "http://[::1", "http://[::1]x/", "http://[fe80::1%25eth0]/a.png", "http://[v1.x]/", "http://a b/",
            "http://a\0b/",
            "http:\\\\h\\a.png", "http://%00/", "http://a%2fb/", "http://1.2.3.4.5/", "http://256.1.1.1/",
            "http://0x1ffffffff/",
            "ht tp://h/", "http//h/a.png", "://h", "?", "#", f"http://{here}/" + "a" * 65_536,
            "\ud83d",
            "http://<h>/", "mailto:a@h", "about:blank", "http://\u200b/", "urn:isbn:1", "C:\\pictures\\a.png",
            "www.example.org/a.png"]
    inside = ["http://127.0.0.1:0/", "http://localhost:1/", "http://[::ffff:127.0.0.1]/", "http://0/",
        "http://2130706433/"]
    return [*((url, "ok") for url in plain), *((url, "bad_url") for url in none), *((url,
        "private_address") for url in inside),
            (f"http://{here}/nowhere", "not_found"), (f"http://{here}/" + "a" * 7000, "not_found")]


SERVED = ["/ok.png", "/with%20space.png", "/%C3%BC.png", "/u%CC%88.png", "/100%25.png", "/%25zz.png", "//ok.png",
    "/q?a=b&c=%26",
          "/ctrl%01.png", "/%F0%9F%90%B1.png", "/a;b=c,d@e:f", "/"]


def test_odd_addresses_of_a_list(tmp_path: Path) -> None:
    answers: dict[str, bytes | Talk] = {path: reply(png(n + 1)) for n, path in enumerate(SERVED)}
    with abuse.serve(answers) as server:
        expected = odd(f"127.0.0.1:{server.port}")
        (tmp_path / "list.jsonl").write_text("".join(json.dumps({"url": url}) + "\n" for url, _ in expected))
        source = {"kind": "urls", "name": "list", "path": str(tmp_path / "list.jsonl")}
        fetch = settings_for(PATIENT, server).model_dump()
        rows, _ = ingest(tmp_path, {"sources": [source], "fetch": fetch})
    found = [(url, row["fetch_outcome"]) for (url, _), row in zip(expected, rows, strict=True)]
    assert [pair for pair in zip(found, expected, strict=True) if pair[0] != pair[1]] == []
    assert len({row["id"] for row in rows}) == len(rows)
    assert {row["url"] for row in rows if row["fetch_outcome"] == "ok"} == {server.base + path for path in SERVED}
    assert all(row["fetch_outcome"] in OUTCOMES for row in rows)
    assert all(row["fetch_detail"] for row in rows if row["fetch_outcome"] != "ok")


def peak_rss() -> int:
    """Most bytes resident since it was last set back."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is read as Linux gives it")
def test_endless_bodies_and_bombs_take_little_memory(tmp_path: Path) -> None:
    most = 4_000_000
    endless: dict[str, bytes | Talk] = {}
    packed = bomb(500_000_000)
    for n in range(4):
        endless |= {f"/endless/{n}": first_then(raw(), b"\0" * 65_536), f"/bomb/{n}": abuses.coded("gzip", packed),
                    f"/headers/{n}": first_then(b"HTTP/1.1 200 OK\r\n", b"X: " + b"y" * 9000 + b"\r\n"),
                    f"/header/{n}": first_then(b"HTTP/1.1 200 OK\r\nX: ", b"y" * 65_536),
                    f"/after/{n}": first_then(raw("Content-Length: 9"), b"\0" * 65_536),
                    f"/zip/{n}": first_then(abuses.coded("gzip", abuses.ZIPPED), abuses.ZIPPED * 100),
                    f"/padding/{n}": first_then(raw("Content-Encoding: gzip", body=abuses.ZIPPED), b"\0" * 65_536),
                    f"/chunk/{n}": first_then(abuses.chunks(b"7fffffff;"), b"x" * 65_536),
                    f"/text/{n}": first_then(raw(body=b""), b"text" * 16_384)}
    with abuse.serve(endless) as server:
        settings = settings_for({**HASTY, "max_bytes": most, "deadline_s": 3.0}, server)
        fetched(settings, str(tmp_path), [server.base + "/nowhere"])
        Path("/proc/self/clear_refs").write_text("5")
        before = peak_rss()
        rows = fetched(settings, str(tmp_path), [server.base + path for path in endless])
        grown = peak_rss() - before
    outcomes = {row["fetch_outcome"] for row in rows}
    assert outcomes <= {"too_large", "bad_response", "timeout", "not_an_image", "ok"}
    assert grown < 150_000_000  # 36 requests at once; what they send and unpack to is gigabytes


def html(body: str, *headers: str) -> bytes:
    whole = body.encode()
    return raw("Content-Type: text/html", f"Content-Length: {len(whole)}", *headers, body=whole)


def pages(server: Abuse, *paths: str, **changes: Any) -> list[tuple[str, int, int]]:
    """(outcome, pictures, links) of each page."""
    limits = {**PATIENT, "max_bytes": 40_000_000, **changes}
    web = LazyWeb(FetchSettings.model_validate({**limits, "allow_hosts": (f"127.0.0.1:{server.port}",)}))
    try:
        return [(page.outcome, len(page.pictures), len(page.links))
                for page in web.pages([server.base + path for path in paths])]
    finally:
        web.close()


def test_hostile_pages(tmp_path: Path) -> None:
    table: dict[str, tuple[bytes | Talk, tuple[str, int, int]]] = {
        "/30-mb": (html("<p>" + "words " * 5_000_000 + "<img src=a><a href=b>b</a>"), ("ok", 1, 1)),
        "/links": (html("".join(f"<a href=/{n}>x</a>" for n in range(200_000)) + "<img src=a>"), ("ok", 1, 10_000)),
        "/deep": (html("<div>" * 100_000 + "<img src=a>"), ("ok", 1, 0)),
        "/srcset": (html("<img srcset='" + ",".join(f"/{n} {n}w" for n in range(10_000)) + "'>"), ("ok", 1, 0)),
        "/refresh": (html('<meta http-equiv="refresh" content="0;url=/next">'), ("ok", 0, 1)),
        "/empty": (html(""), ("ok", 0, 0)), "/nul": (html("<img\0 src=a>\0<img src=b\0>"), ("ok", 1, 0)),
        "/charsets": (raw("Content-Type: text/html; charset=punycode",
            body=b"<meta charset=utf-7><img src=a alt=+ADw-\xff>"),
                      ("ok", 1, 0)),
        "/picture": (reply(PICTURE), ("not_a_page", 0, 0)), "/br": (html("<img src=a>", "Content-Encoding: br"),
                                                                    ("bad_response", 0, 0)),
        "/too-long": (first_then(raw("Content-Type: text/html"), b"<p>" * 30_000), ("too_large", 0, 0)),
        "/scripts": (html("<script>" + "<img src=x>" * 1000 + "</script><img src=a>"), ("ok", 1, 0)),
        "/template": (html("<!--<img src=x>--><textarea><img src=x></textarea><img src=a>"), ("ok", 1, 0)),
    }
    with abuse.serve({path: what for path, (what, _) in table.items()}) as server:
        found = pages(server, *table)
    assert dict(zip(table, found, strict=True)) == {path: expected for path, (_, expected) in table.items()}


def test_a_site_that_only_leads_in_circles_ends(tmp_path: Path) -> None:
    circle = html('<meta http-equiv=refresh content="0;url=/"><a href="/#a">x</a><a href="/?">y</a>')
    answers: dict[str, bytes | Talk] = {"/": circle}
    with abuse.serve(answers) as server:
        fetch = settings_for(PATIENT, server).model_dump()
        source = {"kind": "site", "name": "web", "start": [server.base]}
        rows, _ = ingest(tmp_path, {"sources": [source], "fetch": fetch})
        assert rows == []
        server.answers = {"/": abuses.raw("Location: /", status="HTTP/1.1 302 X", body=b"")}
        with pytest.raises(SourceError, match="redirect_loop"):
            ingest(tmp_path / "loop", {"sources": [source], "fetch": fetch})
