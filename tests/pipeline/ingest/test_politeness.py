"""Opt-outs and robots rules as their specifications have them."""

from __future__ import annotations

import json

import pytest

from pipeline.ingest.addresses import canonical
from pipeline.ingest.fetcher import retry_after
from pipeline.ingest.politeness import opt_out, reservations_from, robots_from, tdm_reserved, user_agent

WORDS = ("noai", "noimageai")


@pytest.mark.parametrize(("values", "expected"), [
    ([], None), (["noindex"], None), (["noai"], "noai"), (["NoAI"], "noai"), (["noarchive, noimageai"], "noimageai"),
    (["noarchive", "noai"], "noai"), (["otherbot: noai"], None), (["gristmill: noai"], "noai"),
    (["Gristmill: nofollow, noimageai"], "noimageai"), (["otherbot: noindex, noai"], None), (["*: noai"], "noai"),
    (["max-image-preview: large, noai"], "noai"), (["unavailable_after: 25 Jun 2030 15:00:00 PST"], None),
    (["noaircraft"], None), (["otherbot: noai", "noai"], "noai"),
    (["googlebot: nofollow, noai, gristmill: noimageai"], "noimageai"),  # two header lines that a proxy joined
    (["gristmill: noindex, googlebot: noai"], None), (["googlebot: noarchive, *: noai"], "noai"),
])
def test_opt_out(values: list[str], expected: str | None) -> None:
    assert opt_out(values, WORDS) == expected


def test_none_means_noindex_and_nofollow() -> None:
    assert opt_out(["none"], ("noindex",)) == "noindex"
    assert opt_out(["none"], WORDS) is None


def test_tdm_reservation_is_one_or_nothing() -> None:
    assert tdm_reserved([" 1 "])
    assert not tdm_reserved(["0"])
    assert not tdm_reserved([])


@pytest.mark.parametrize(("path", "reserved"), [
    ("/", True), ("/photos/a.jpg", True), ("/open/a.jpg", False), ("/open/secret/a.jpg", False), ("/a/b.raw", False),
    ("/a/b.raw?big", True), ("/caf\u00e9/a", True), ("/50%25.png", False), ("/exact", False), ("/exactly", True),
])
def test_tdmrep_json_is_read_first_match_first(path: str, reserved: bool) -> None:
    rules = [{"location": "/open/", "tdm-reservation": 0}, {"location": "/open/secret/", "tdm-reservation": 1},
             {"location": "/*.raw$", "tdm-reservation": "0"}, {"location": "/50%25.png", "tdm-reservation": 0},
             {"location": "/exact$", "tdm-reservation": 0}, {"location": 7}, "odd", {"tdm-reservation": 1},
             {"location": "/", "tdm-reservation": 1, "tdm-policy": "https://h/policy.json"}]
    url = canonical(f"http://h{path}")
    assert url is not None
    assert reservations_from(b"\xef\xbb\xbf" + json.dumps(rules).encode()).reserved(url) == reserved


def test_a_pattern_cannot_keep_us_busy() -> None:
    rules = json.dumps([{"location": "/" + "*a" * 20 + "*b$", "tdm-reservation": 1}]).encode()
    assert not reservations_from(rules).reserved("http://h/" + "a" * 8000)
    assert reservations_from(rules).reserved("http://h/" + "a" * 8000 + "b")


@pytest.mark.parametrize("body", [b"", b"{", b"null", b"7", b"[[]]", b'"x"', b"\xff\xfe", b"[" * 100_000])
def test_a_tdmrep_json_that_is_none_says_nothing(body: bytes) -> None:
    assert not reservations_from(body).reserved("http://h/")


def test_one_rule_outside_a_list_counts() -> None:
    assert reservations_from(b'{"location": "/", "tdm-reservation": 1}').reserved("http://h/a")


@pytest.mark.parametrize(("path", "allowed"), [  # RFC 9309, section 5.1 and 5.2
    ("/path/to/something", True), ("/example/page/", True), ("/example/page/disallowed.gif", False), ("/foo/a", False),
])
def test_longest_match_wins(path: str, allowed: bool) -> None:
    text = b"User-Agent: *\nDisallow: /foo/\nAllow: /example/page/\nDisallow: /example/page/disallowed.gif\n"
    refusal = robots_from("ok", 200, text, "").refusal("http://h" + path)
    assert (refusal is None) == allowed


def test_our_own_group_replaces_the_general_one() -> None:
    robots = robots_from("ok", 200, b"User-agent: *\nDisallow: /\n\nUser-agent: GRISTMILL\nDisallow: /b\n", "")
    assert robots.refusal("http://h/a") is None
    assert robots.refusal("http://h/b.png") == ("robots", "forbidden by robots.txt")


@pytest.mark.parametrize(("outcome", "status", "expected"), [
    ("not_found", 404, None), ("http_error", 401, None), ("http_error", 403, None), ("http_error", 429, "robots"),
    ("http_error", 503, "robots"), ("dns", None, "dns"), ("timeout", None, "timeout"),
    ("too_many_redirects", 302, None),
])
def test_when_robots_cannot_be_read(outcome: str, status: int | None, expected: str | None) -> None:
    refusal = robots_from(outcome, status, b"", "why").refusal("http://h/a")
    assert (refusal and refusal[0]) == expected


@pytest.mark.parametrize(("text", "seconds"), [
    ("120", 120.0), ("0", 0.0), ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0), ("soon", None), ("-5", None), ("", None),
])
def test_retry_after(text: str, seconds: float | None) -> None:
    assert retry_after((text,)) == seconds
    assert retry_after(()) is None


def test_user_agent_cannot_break_the_header() -> None:
    assert user_agent("me@example.org\r\nX-Evil: (1)").isprintable()
    assert "(+me@example.orgX-Evil: 1)" in user_agent("me@example.org\r\nX-Evil: (1)")
