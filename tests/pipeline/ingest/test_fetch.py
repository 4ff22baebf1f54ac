"""The fetcher against a hostile server: every row ends in exactly one documented outcome, in bounded time."""

from __future__ import annotations

import hashlib
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.ingest.addresses import canonical
from pipeline.ingest.fetch import VALUES, FetchWorker
from pipeline.ingest.outcomes import OUTCOMES
from pipeline.ingest.settings import FetchSettings
from pipeline.manifest import located
from tests.pipeline.ingest import hostile
from tests.pipeline.ingest.hostile import HTML, PICTURE, Hostile, reply

BIG = 200_000
ROBOTS = b"User-agent: *\nDisallow: /forbidden/\n\nUser-agent: gristmill\nDisallow: /forbidden/\nDisallow: /ours/\n"

PATHS: dict[str, bytes | hostile.Behaviour] = {
    "/robots.txt": reply(ROBOTS, kind="text/plain"),
    "/ok.png": reply(PICTURE),
    "/wrong-type.png": reply(PICTURE, kind="text/html"),
    "/closes.png": hostile.cut(b"HTTP/1.0 200 OK\r\n\r\n" + PICTURE),
    "/chunks.png": hostile.chunked(b"5;x=y\r\n" + PICTURE[:5] + b"\r\n",
                                   f"{len(PICTURE) - 5:x}\r\n".encode() + PICTURE[5:] + b"\r\n", b"0\r\n\r\n"),
    "/packed.png": reply(hostile.bomb(0), Content_Encoding="gzip"),
    "/203.png": reply(PICTURE, 203),
    "/hop.png": hostile.redirect("ok.png"),
    "/flap.png": hostile.first_then(reply(b"", 503), reply(PICTURE)),
    "/hurry.png": hostile.first_then(reply(b"", 429, Retry_After="0"), reply(PICTURE)),
    "/breaks-once.png": hostile.first_then(reply(PICTURE)[:-9], reply(PICTURE)),
    "/other-bot.png": reply(PICTURE, X_Robots_Tag="otherbot: noai, noimageai"),
    "/noarchive.png": reply(PICTURE, X_Robots_Tag="noarchive, max-image-preview: large"),
    "/404": reply(HTML, 404), "/410": reply(HTML, 410),
    "/403": reply(HTML, 403), "/500": reply(HTML, 500), "/304": reply(b"", 304), "/206": reply(PICTURE, 206),
    "/wait-long": reply(b"", 429, Retry_After="9999"),
    "/html.jpg": reply(HTML, kind="image/jpeg"), "/text.png": reply(b"hello" * 5000),
    "/empty.png": reply(b""),
    "/slow-header": hostile.drip(b"HTTP/1.1 200 OK\r\nX-Slow: "),
    "/slow-body": hostile.drip(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n" + PICTURE),
    "/silent": hostile.silent,
    "/stalls": hostile.drip(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n" + PICTURE, 30),
    "/short.png": hostile.cut(reply(PICTURE + b"\0" * 99)[:-40]),
    "/reset-body": hostile.reset(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n" + PICTURE),
    "/reset-early": hostile.reset(b""), "/hangs-up": hostile.cut(b""),
    "/cut-packed.png": reply(hostile.bomb(3000)[:-12], Content_Encoding="gzip"),
    "/garbage": hostile.cut(b"\x16\x03\x01 what?\r\n\r\n"),
    "/bad-chunks": hostile.cut(hostile.chunked(b"5\r\n" + PICTURE[:5] + b"\r\n", b"zz\r\n....")),
    "/bad-packing.png": reply(b"\x1f\x8b\x08" + b"\xff" * 64, Content_Encoding="gzip"),
    "/brotli.png": reply(b"\x1b\x03\x00 packed", Content_Encoding="br"),
    "/big-header": hostile.cut(b"HTTP/1.1 200 OK\r\nX-Big: " + b"a" * 1_000_000 + b"\r\n\r\n"),
    "/endless": hostile.endless,
    "/bomb.png": reply(hostile.bomb(50_000_000), Content_Encoding="gzip"),
    "/announces": hostile.cut(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n" + PICTURE),
    "/too-large.png": reply(PICTURE + b"\0" * BIG),
    "/just-fits.png": reply(PICTURE + b"\0" * (BIG - len(PICTURE))),
    "/noai.png": reply(PICTURE, X_Robots_Tag="noarchive, NoAI"),
    "/noimageai.png": reply(PICTURE, X_Robots_Tag="gristmill: noimageai"),
    "/tdm.png": reply(PICTURE, TDM_Reservation="1"), "/tdm-free.png": reply(PICTURE, TDM_Reservation="0"),
    "/forbidden/a.png": reply(PICTURE), "/ours/a.png": reply(PICTURE),
    "/to-forbidden": hostile.redirect("/forbidden/a.png"),
    "/loop-a": hostile.redirect("/loop-b"), "/loop-b": hostile.redirect("/loop-a"),
    "/self": hostile.redirect("/self#again"),
    **{f"/hops/{n}": hostile.redirect(f"/hops/{n - 1}") for n in range(1, 8)}, "/hops/0": reply(PICTURE),
    "/to-10": hostile.redirect("http://10.0.0.1/x.png"),
    "/to-metadata": hostile.redirect("http://169.254.169.254/latest/meta-data/"),
    "/to-mapped": hostile.redirect("http://[::ffff:127.0.0.1]/x.png"),
    "/to-six": hostile.redirect("http://[::1]/x.png"),
    "/to-zero": hostile.redirect("http://0.0.0.0/x.png"),
    "/to-file": hostile.redirect("file:///etc/passwd"),
    "/to-js": hostile.redirect("javascript:alert(1)"),
    "/to-nowhere": hostile.redirect("http://"),
}
EXPECTED = {
    "ok": ["/ok.png", "/wrong-type.png", "/closes.png", "/chunks.png", "/packed.png", "/203.png", "/hop.png",
           "/flap.png", "/hurry.png", "/breaks-once.png", "/other-bot.png", "/noarchive.png", "/just-fits.png",
           "/tdm-free.png", "/hops/3"],
    "not_found": ["/404", "/410", "/nowhere"],
    "http_error": ["/403", "/500", "/304", "/206", "/wait-long"],
    "not_an_image": ["/html.jpg", "/text.png"],
    "empty": ["/empty.png"],
    "timeout": ["/slow-header", "/slow-body", "/silent", "/stalls"],
    "disconnected": ["/short.png", "/reset-body", "/reset-early", "/hangs-up", "/cut-packed.png"],
    "bad_response": ["/garbage", "/bad-chunks", "/bad-packing.png", "/brotli.png", "/big-header"],
    "too_large": ["/endless", "/bomb.png", "/announces", "/too-large.png"],
    "opt_out": ["/noai.png", "/noimageai.png", "/tdm.png"],
    "robots": ["/forbidden/a.png", "/ours/a.png", "/to-forbidden"],
    "redirect_loop": ["/loop-a", "/self"],
    "too_many_redirects": ["/hops/7"],
    "private_address": ["/to-10", "/to-metadata", "/to-mapped", "/to-six", "/to-zero"],
    "bad_url": ["/to-file", "/to-js", "/to-nowhere"],
}
LIMITS: dict[str, Any] = {
    "contact": "tests@example.org", "deadline_s": 1.2, "idle_s": 0.7, "connect_s": 0.7, "retries": 1,
    "backoff_s": 0.02, "max_wait_s": 2.0, "max_bytes": BIG, "max_redirects": 3, "connections_per_host": 64,
}


def settings_for(server: Hostile, **changes: Any) -> FetchSettings:
    return FetchSettings.model_validate({**LIMITS, "allow_hosts": (f"127.0.0.1:{server.port}",), **changes})


def chunk_of(urls: list[str]) -> pa.Table:
    return pa.table({
        "id": [f"{number:032x}" for number in range(len(urls))], "url": urls, "state": ["@0"] * len(urls),
        **{name: pa.nulls(len(urls), pa.string()) for name in ("refused", "refused_detail", "inside", "packing")},
        **{name: pa.nulls(len(urls), pa.int64()) for name in ("inside_offset", "inside_length")},
    })


@pytest.fixture(scope="module")
def server() -> Iterator[Hostile]:
    with hostile.serve(PATHS) as running:
        yield running


@pytest.fixture(scope="module")
def rows(server: Hostile, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """All paths fetched at once; path → row."""
    paths = [path for group in EXPECTED.values() for path in group]
    data = str(tmp_path_factory.mktemp("data"))
    worker = FetchWorker(settings_for(server), data)
    begun = time.monotonic()
    table = worker(chunk_of([server.base + path for path in paths]))
    # two attempts of a time-out each, and some slack for a busy machine
    assert time.monotonic() - begun < 2 * LIMITS["deadline_s"] + 8
    assert table.column_names == VALUES.names
    rows = [row | {"container": located(row["container"], data)} for row in table.to_pylist()]
    return dict(zip(paths, rows, strict=True))


@pytest.mark.parametrize(("outcome", "path"), [(o, p) for o, group in EXPECTED.items() for p in group])
def test_outcome(rows: dict[str, dict[str, Any]], outcome: str, path: str) -> None:
    row = rows[path]
    assert row["fetch_outcome"] == outcome, row["fetch_detail"]
    assert outcome in OUTCOMES
    assert (row["sha256"] is not None) == (outcome == "ok") == (row["container"] is not None)
    if outcome != "ok":
        assert row["fetch_detail"]


def test_bytes_lie_where_the_row_says(rows: dict[str, dict[str, Any]], server: Hostile) -> None:
    for path in EXPECTED["ok"]:
        row = rows[path]
        data = Path(row["container"]).read_bytes()[row["offset"]:row["offset"] + row["length"]]
        assert hashlib.sha256(data).digest() == row["sha256"]
        assert data == PICTURE if path != "/just-fits.png" else data[:len(PICTURE)] == PICTURE
        assert row["content_type"] == "image/png"
    assert rows["/hop.png"]["final_url"] == server.base + "/ok.png"
    assert rows["/hops/3"]["final_url"] == server.base + "/hops/0"


def test_only_what_can_change_is_asked_for_twice(rows: dict[str, dict[str, Any]], server: Hostile) -> None:
    for path in ("/404", "/403", "/html.jpg", "/noai.png", "/too-large.png", "/brotli.png", "/wait-long"):
        assert server.hits[path] == 1, path
    for path in ("/flap.png", "/hurry.png", "/500", "/silent", "/short.png"):
        assert server.hits[path] == 2, path


def test_forbidden_addresses_are_never_asked_for(rows: dict[str, dict[str, Any]], server: Hostile) -> None:
    assert server.hits["/forbidden/a.png"] == server.hits["/ours/a.png"] == 0
    assert server.hits["/robots.txt"] >= 1


def test_we_say_who_we_are(rows: dict[str, dict[str, Any]], server: Hostile) -> None:
    [agent] = server.agents
    assert agent.startswith("Gristmill/")
    assert "tests@example.org" in agent


def test_tar_holds_the_pictures_in_row_order(rows: dict[str, dict[str, Any]]) -> None:
    [container] = {row["container"] for row in rows.values() if row["container"]}
    with tarfile.open(container) as tar:
        members = tar.getmembers()
    paths = list(rows)
    assert [m.name for m in members] == [f"{paths.index(p):032x}.png" for p in paths if p in EXPECTED["ok"]]
    assert {(m.mtime, m.uid, m.gid, m.uname, m.mode) for m in members} == {(0, 0, 0, "", 0o644)}
    assert [m.offset_data for m in members] == [rows[p]["offset"] for p in paths if p in EXPECTED["ok"]]


def test_same_answers_give_the_same_rows_and_bytes(tmp_path: Path) -> None:
    pictures: dict[str, bytes | hostile.Behaviour] = {f"/{n}.png": reply(hostile.png(n + 1)) for n in range(40)}
    pictures["/3.png"] = hostile.first_then(reply(b"", 503), reply(hostile.png(4)))
    outputs = []
    for folder in ("a", "b"):
        with hostile.serve(pictures) as server:
            worker = FetchWorker(settings_for(server, connections_per_host=7), str(tmp_path / folder))
            table = worker(chunk_of([server.base + path for path in pictures]))
        [raw] = (tmp_path / folder / "raw").iterdir()
        outputs.append((table.drop_columns("final_url"), raw.name, raw.read_bytes()))
    assert outputs[0] == outputs[1]


def test_nothing_private_is_connected_to(tmp_path: Path) -> None:
    with hostile.serve({"/robots.txt": reply(b"", 404), "/secret.png": reply(PICTURE)}) as inside:
        spellings = [f"127.0.0.1:{inside.port}", f"localhost:{inside.port}", f"2130706433:{inside.port}",
                     f"0x7f.1:{inside.port}", f"0177.0.0.1:{inside.port}", f"127.1:{inside.port}",
                     f"[::ffff:127.0.0.1]:{inside.port}", f"[::1]:{inside.port}"]
        ways = {f"/{n}": hostile.redirect(f"http://{host}/secret.png") for n, host in enumerate(spellings)}
        with hostile.serve({"/robots.txt": reply(b"", 404), **ways}) as outside:
            worker = FetchWorker(settings_for(outside, connections_per_host=8), str(tmp_path))
            direct = [canonical(f"http://{host}/secret.png") or "" for host in spellings]
            table = worker(chunk_of(direct + [outside.base + path for path in ways]))
        assert set(table.column("fetch_outcome").to_pylist()) == {"private_address"}
        assert not inside.hits


@pytest.mark.parametrize(("respond", "outcome"), [
    (reply(b"", 404), "ok"), (reply(b"", 403), "ok"), (reply(b"", 500), "robots"), (reply(b"", 429), "robots"),
    (reply(b"User-agent: *\nDisallow:"), "ok"), (reply(b"User-agent: *\nDisallow: /"), "robots"),
    (reply(b"\xef\xbb\xbfUser-agent: Gristmill\nDisallow: /p"), "robots"), (hostile.redirect("/rules"), "robots"),
    (hostile.redirect("/robots.txt"), "ok"), (hostile.silent, "timeout"), (hostile.cut(b""), "disconnected"),
    (reply(b"#" * 600_000 + b"\nUser-agent: *\nDisallow: /"), "ok"),  # beyond the 500 KiB of RFC 9309, section 2.5
])
def test_robots_as_in_rfc_9309(tmp_path: Path, respond: bytes | hostile.Behaviour, outcome: str) -> None:
    paths = {"/robots.txt": respond, "/rules": reply(b"User-agent: *\nDisallow: /p"), "/p.png": reply(PICTURE)}
    with hostile.serve(paths) as server:
        worker = FetchWorker(settings_for(server, retries=0), str(tmp_path))
        table = worker(chunk_of([server.base + "/p.png"]))
        assert table.column("fetch_outcome").to_pylist() == [outcome]
        assert server.hits["/p.png"] == (outcome == "ok")


@pytest.mark.parametrize(("respond", "outcome"), [
    (reply(b'[{"location": "/a/", "tdm-reservation": 1}]', kind="application/json"), "opt_out"),
    (reply(b'[{"location": "/b/", "tdm-reservation": 1}]'), "ok"), (reply(b"", 404), "ok"), (reply(b"", 500), "ok"),
    (hostile.redirect("/moved.json"), "opt_out"), (hostile.cut(b""), "ok"), (reply(b"[" * 2_000_000), "ok"),
])
def test_tdmrep_json_is_obeyed_before_anything_is_asked_for(
        tmp_path: Path, respond: bytes | hostile.Behaviour, outcome: str) -> None:
    rules = reply(b'[{"location": "/a", "tdm-reservation": 1}]')
    paths = {"/robots.txt": reply(b"", 404), "/.well-known/tdmrep.json": respond, "/moved.json": rules,
             "/a/p.png": reply(PICTURE)}
    with hostile.serve(paths) as server:
        worker = FetchWorker(settings_for(server, retries=0), str(tmp_path))
        rows = worker(chunk_of([f"{server.base}/a/p.png"] * 2)).to_pylist()
        assert [row["fetch_outcome"] for row in rows] == [outcome] * 2
        assert server.hits["/a/p.png"] == (2 if outcome == "ok" else 0)
        asked = server.hits["/.well-known/tdmrep.json"]
        assert asked == 1 or callable(respond)  # the network library repeats by itself what broke off at once
        free = FetchWorker(settings_for(server, retries=0, respect_tdm=False), str(tmp_path))
        assert free(chunk_of([f"{server.base}/a/p.png"])).column("fetch_outcome").to_pylist() == ["ok"]
        assert server.hits["/.well-known/tdmrep.json"] == asked


def test_one_host_is_not_leant_on(tmp_path: Path) -> None:
    at_once, most = [0], [0]

    def counted(server: Hostile, connection: Any, path: str) -> None:
        at_once[0] += 1
        most[0] = max(most[0], at_once[0])
        time.sleep(0.02)
        at_once[0] -= 1
        connection.sendall(reply(PICTURE))

    with hostile.serve({"/robots.txt": reply(b"", 404), **{f"/{n}.png": counted for n in range(24)}}) as server:
        worker = FetchWorker(settings_for(server, connections_per_host=3), str(tmp_path))
        table = worker(chunk_of([f"{server.base}/{n}.png" for n in range(24)]))
    assert set(table.column("fetch_outcome").to_pylist()) == {"ok"}
    assert most[0] <= 3


def test_crawl_delay_is_kept(tmp_path: Path) -> None:
    times: list[float] = []

    def timed(server: Hostile, connection: Any, path: str) -> None:
        times.append(time.monotonic())
        connection.sendall(reply(PICTURE))

    rules = reply(b"User-agent: *\nCrawl-delay: 0.2\n")
    with hostile.serve({"/robots.txt": rules, **{f"/{n}.png": timed for n in range(4)}}) as server:
        FetchWorker(settings_for(server), str(tmp_path))(chunk_of([f"{server.base}/{n}.png" for n in range(4)]))
    assert max(times) - min(times) > 0.5


def test_dead_hosts_are_told_apart(tmp_path: Path) -> None:
    with hostile.serve({}) as server, hostile.talk_first(b"220 ftp.example.org ready\r\n") as plain:
        closed = hostile.free_port()
        settings = settings_for(server, allow_hosts=("127.0.0.1",), retries=0)
        urls = [f"http://127.0.0.1:{closed}/a.png", "http://no-such-host.invalid/a.png",
                f"https://127.0.0.1:{plain}/a.png"]
        table = FetchWorker(settings, str(tmp_path))(chunk_of(urls))
    assert table.column("fetch_outcome").to_pylist() == ["connect", "dns", "tls"]


def test_big_bodies_and_small_ones_arrive_whole(tmp_path: Path) -> None:
    bodies = {f"/{n}.png": PICTURE + bytes([n]) * (n * 700_000) for n in range(6)}  # some beyond what stays in memory
    with hostile.serve({path: reply(body) for path, body in bodies.items()}) as server:
        worker = FetchWorker(settings_for(server, max_bytes=10_000_000, deadline_s=20), str(tmp_path))
        rows = worker(chunk_of([server.base + path for path in bodies])).to_pylist()
    for row, body in zip(rows, bodies.values(), strict=True):
        assert row["sha256"] == hashlib.sha256(body).digest()
        with open(tmp_path / row["container"], "rb") as file:
            file.seek(row["offset"])
            assert file.read(row["length"]) == body
