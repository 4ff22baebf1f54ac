"""robots.txt as RFC 9309 has it: its examples, its table and its rules, one test for each section."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.ingest.politeness import ROBOTS_BYTES, robots_from
from tests.pipeline.ingest import abuse
from tests.pipeline.ingest.abuse import Talk, then_silent
from tests.pipeline.ingest.abuses import raw
from tests.pipeline.ingest.hostile import PICTURE, reply
from tests.pipeline.ingest.test_hostile import HASTY, fetched, settings_for


def allows(text: str | bytes, path: str) -> bool:
    body = text.encode() if isinstance(text, str) else text
    return robots_from("ok", 200, body, "").refusal(f"http://example.com{path}") is None


EXAMPLE = """User-Agent: *
Disallow: *.gif$
Disallow: /example/
Allow: /publications/

User-Agent: foobot
Disallow:/
Allow:/example/page.html
Allow:/example/allowed.gif

User-Agent: barbot
User-Agent: bazbot
Disallow: /example/page.html

User-Agent: quxbot
"""
"""Section 5.1. The RFC's robots are ours in turn."""


@pytest.mark.parametrize(("name", "path", "allowed"), [
    ("nobody", "/a.gif", False), ("nobody", "/a.gif?x", True), ("nobody", "/example/x", False),
    ("nobody", "/publications/x", True), ("nobody", "/", True), ("nobody", "/publications/a.gif", True),
    ("foobot", "/", False), ("foobot", "/example/page.html", True), ("foobot", "/example/allowed.gif", True),
    ("foobot", "/example/other.gif", False), ("barbot", "/example/page.html", False), ("barbot", "/a.gif", True),
    ("bazbot", "/example/page.html", False), ("bazbot", "/example/x", True), ("quxbot", "/example/x", True),
    ("quxbot", "/a.gif", True),
])
def test_simple_example(name: str, path: str, allowed: bool) -> None:
    assert allows(EXAMPLE.replace(name, "GristMill"), path) == allowed


def test_longest_match() -> None:
    text = "User-Agent: gristmill\nAllow: /example/page/\nDisallow: /example/page/disallowed.gif\n"
    assert allows(text, "/example/page/x")
    assert not allows(text, "/example/page/disallowed.gif")


@pytest.mark.parametrize(("text", "path", "allowed"), [  # section 2.2.1
    ("User-agent: GRISTMILL\nDisallow: /", "/x", False),
    ("User-agent: gristmill\nDisallow: /a\n\nUser-agent: x\nDisallow: /\n\nUser-agent: Gristmill\nDisallow: /b",
        "/a", False),
    ("User-agent: gristmill\nDisallow: /a\n\nUser-agent: x\nDisallow: /\n\nUser-agent: Gristmill\nDisallow: /b",
        "/b", False),
    ("User-agent: gristmill\nDisallow: /a\n\nUser-agent: x\nDisallow: /\n\nUser-agent: Gristmill\nDisallow: /b",
        "/c", True),
    ("User-agent: *\nDisallow: /a\n\nUser-agent: *\nDisallow: /b", "/a", False),
    ("User-agent: *\nDisallow: /a\n\nUser-agent: *\nDisallow: /b", "/b", False),
    ("User-agent: *\nDisallow: /\n\nUser-agent: gristmill\nAllow: /", "/x", True),
    ("User-agent: otherbot\nDisallow: /", "/x", True), ("Disallow: /", "/x", True), ("", "/x", True),
    ("User-agent: gristmillion\nDisallow: /", "/x", True), ("User-agent: mill\nDisallow: /", "/x", True),
    ("User-agent: gristmill\nUser-agent: otherbot\nDisallow: /", "/x", False),
    ("User-agent: gristmill\n\nUser-agent: otherbot\nDisallow: /", "/x", False),
    ("User-agent: gristmill/2.1\nDisallow: /", "/x", False),
])
def test_which_group_is_ours(text: str, path: str, allowed: bool) -> None:
    assert allows(text, path) == allowed


@pytest.mark.parametrize(("rule", "path"), [  # section 2.2.2, its table, both ways
    ("/foo/bar?baz=quz", "/foo/bar?baz=quz"), ("/foo/bar?baz=https://foo.bar", "/foo/bar?baz=https%3A%2F%2Ffoo.bar"),
    ("/foo/bar?baz=https%3A%2F%2Ffoo.bar", "/foo/bar?baz=https%3A%2F%2Ffoo.bar"),
    ("/foo/bar/\u30c4", "/foo/bar/%E3%83%84"), ("/foo/bar/%E3%83%84", "/foo/bar/%E3%83%84"),
    ("/foo/bar/%e3%83%84", "/foo/bar/%E3%83%84"), ("/foo/bar/%62%61%7A", "/foo/bar/baz"),
    # section 2.2.3
    ("/*.gif$", "/a/b.gif"), ("/a*b", "/axxbyy"), ("/path/file-with-a-%2A.html", "/path/file-with-a-*.html"),
    ("/path/foo-%24", "/path/foo-$"), ("/x # a comment", "/xyz"), ("*", "/anything"),
])
def test_rules_that_match(rule: str, path: str) -> None:
    assert not allows(f"User-agent: *\nDisallow: {rule}\n", path)


@pytest.mark.parametrize(("rule", "path"), [
    ("/a$", "/ab"), ("/A", "/a"), ("/a/", "/a"), ("/*.gif$", "/a.gif?x"), ("", "/x"), ("# all", "/x"),
    ("/path/foo-%24", "/path/foo-"), ("/path/%2A", "/path/x"), ("/foo%2Fbar", "/foo/bar"),
])
def test_rules_that_do_not(rule: str, path: str) -> None:
    assert allows(f"User-agent: *\nDisallow: {rule}\n", path)


def test_allow_wins_among_equals() -> None:
    assert allows("User-agent: *\nDisallow: /a\nAllow: /a\n", "/ab")
    assert allows("User-agent: *\nAllow: /a\nDisallow: /a\n", "/ab")


@pytest.mark.parametrize("text", [
    "user-AGENT : *\nDISALLOW :/a", "User-agent: *\rDisallow: /a", "User-agent: *\r\nDisallow: /a\r\n",
    "\ufeffUser-agent: *\nDisallow: /a",
    "User-agent: *\nSitemap: http://h/s.xml\nCrawl-delay: 1\nNonsense\nDisallow: /a",
    "User-agent: *\n\n\nDisallow: /a", "User-agent: *\nDisallow: /a # no\nAllow", "\0\nUser-agent: *\nDisallow: /a",
    b"User-agent: *\n# \xff\xfe\nDisallow: /a",
])
def test_lines_as_people_write_them(text: str | bytes) -> None:
    assert not allows(text, "/ab")
    assert allows(text, "/b")


@pytest.mark.parametrize("line", ["\n", " ", "allow:", "user-agent: ", "disallow: /*a*b*c\n", "a: b\n", "disallow: ?"])
def test_a_file_made_to_hurt_is_read(line: str) -> None:
    assert allows(line * (ROBOTS_BYTES // len(line)), "/" + "a" * 2000)


def test_what_comes_after_500_kib_is_ignored() -> None:
    rule = "User-agent: *\nDisallow: /\n"
    assert ROBOTS_BYTES == 500 * 1024
    assert not allows("#" * (ROBOTS_BYTES - len(rule) - 1) + "\n" + rule, "/x")
    assert allows("#" * ROBOTS_BYTES + "\n" + rule, "/x")


NO = reply(b"User-agent: *\nDisallow: /", kind="text/plain")


def to(target: str) -> bytes:
    return raw(f"Location: {target}", "Content-Length: 0", status="HTTP/1.1 301 There", body=b"")


@pytest.mark.parametrize(("answer", "outcome"), [
    *((reply(b"User-agent: *\nDisallow: /", code), "ok") for code in (400, 401, 402, 403, 404, 410, 418,
        451)),  # 2.3.1.3
    *((reply(b"", code), "robots") for code in (500, 502, 503, 504, 599)), (reply(b"", 429), "robots"),  # 2.3.1.4
    (then_silent(b""), "timeout"), (b"", "disconnected"), (b"nonsense", "bad_response"), (b"\0" * 9, "bad_response"),
    (reply(b"<html>not found</html>", kind="text/html"), "ok"), (reply(b""), "ok"), (NO, "robots"),
    (to("/hop/4"), "robots"), (to("/hop/5"), "ok"), (to("/robots.txt"), "ok"),  # 2.3.1.2: five hops, then unavailable
    (to("http://10.0.0.1/robots.txt"), "private_address"),
])
@pytest.mark.parametrize("max_redirects", [0, 9])
def test_when_it_cannot_be_had(answer: bytes | Talk, outcome: str, max_redirects: int, tmp_path: Path) -> None:
    hops: dict[str, bytes | Talk] = {f"/hop/{n}": to(f"/hop/{n - 1}") for n in range(1, 9)}
    served = {"/robots.txt": answer, "/a.png": reply(PICTURE), **hops, "/hop/0": NO}
    if max_redirects == 9 and answer == to("/hop/5"):
        outcome = "robots"  # who follows more for pictures does so for robots.txt
    with abuse.serve(served) as server:
        settings = settings_for(HASTY, server, max_redirects=max_redirects)
        [row] = fetched(settings, str(tmp_path), [f"{server.base}/a.png"])
        assert server.hits["/a.png"] == (outcome == "ok")
    assert row["fetch_outcome"] == outcome, row["fetch_detail"]
