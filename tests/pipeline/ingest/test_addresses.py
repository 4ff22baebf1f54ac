"""Canonical addresses and row ids."""

from __future__ import annotations

import os
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.ingest.addresses import _PLAIN, _taken_apart, canonical, origin, path_of, path_url, row_id

# RFC 3986, section 5.4.1: reference resolution against this base
RFC_BASE = "http://a/b/c/d;p?q"
RFC_NORMAL = {
    "g": "http://a/b/c/g", "./g": "http://a/b/c/g", "g/": "http://a/b/c/g/", "/g": "http://a/g", "//g": "http://g/",
    "?y": "http://a/b/c/d;p?y", "g?y": "http://a/b/c/g?y", "#s": "http://a/b/c/d;p?q", "g#s": "http://a/b/c/g",
    ";x": "http://a/b/c/;x", "g;x": "http://a/b/c/g;x", ".": "http://a/b/c/", "./": "http://a/b/c/",
    "..": "http://a/b/", "../g": "http://a/b/g", "../..": "http://a/", "../../g": "http://a/g",
    "../../../g": "http://a/g", "/./g": "http://a/g", "/../g": "http://a/g", "g.": "http://a/b/c/g.",
    "./../g": "http://a/b/g", "g/./h": "http://a/b/c/g/h", "g/../h": "http://a/b/c/h",
}


@pytest.mark.parametrize("reference", RFC_NORMAL)
def test_relative_addresses_as_in_rfc_3986(reference: str) -> None:
    assert canonical(reference, RFC_BASE) == RFC_NORMAL[reference]


@pytest.mark.parametrize(("given_url", "expected"), [
    ("HTTP://User:pw@Example.COM:80/%7esmith/home.html#top", "http://example.com/~smith/home.html"),  # RFC 3986, 6.2.2
    ("https://example.com:443", "https://example.com/"), ("http://example.com:8080/", "http://example.com:8080/"),
    ("http://münchen.de/straße.jpg", "http://xn--mnchen-3ya.de/stra%C3%9Fe.jpg"),
    ("http://h/a b.png", "http://h/a%20b.png"), ("  http://h/a\n.png\t", "http://h/a.png"),
    ("http://h/a%2fb", "http://h/a%2Fb"), ("http://2130706433/", "http://127.0.0.1/"),
    ("http://0x7f.1/", "http://127.0.0.1/"), ("http://017700000001/", "http://127.0.0.1/"),
    ("http://[::FFFF:1.2.3.4]/", "http://[::ffff:102:304]/"),
])
def test_spellings_of_one_address_become_one(given_url: str, expected: str) -> None:
    assert canonical(given_url) == expected


@pytest.mark.parametrize("bad", [
    "", " ", "picture.jpg", "//host/x", "ftp://h/x", "file:///etc/passwd", "data:image/png;base64,AAAA", "http://",
    "http:///x", "http://h:99999/", "http://ex ample/", "javascript:alert(1)", "http://1.2.3.4.5/", "http://[::1/",
    "http://h/" + "a" * 10_000, "http:\\\\h",
])
def test_what_is_no_address(bad: str) -> None:
    assert canonical(bad) is None


@given(st.text(max_size=60), st.sampled_from(["http://h/", "https://h.example/a/b?", "HTTP://h:8080/x/../", ""]))
def test_canonical_is_idempotent(text: str, start: str) -> None:
    once = canonical(start + text)
    assert once is None or (canonical(once) == once and "#" not in once)


ALPHABET = st.text("ab09A.-_~/?=&;:@!$'()*,+%#[]|\\ é", max_size=12)
NEARLY_PLAIN = st.tuples(
    st.sampled_from(["http://", "https://", "HTTP://"]),
    st.sampled_from(["h.example", "1.2", "h.0x1", "xn--a.b", "a..b"]), ALPHABET,
    st.sampled_from(["", "/", "/a", "/.", "?", "#f"]), ALPHABET).map("".join)


@given(st.one_of(st.from_regex(_PLAIN, fullmatch=True), NEARLY_PLAIN))
def test_addresses_taken_for_canonical_as_they_are_are_so(url: str) -> None:
    assert canonical(url) == _taken_apart(url)


def test_origin() -> None:
    assert origin("https://example.com/a/b?c") == "https://example.com"
    assert origin("http://127.0.0.1:8000/a") == "http://127.0.0.1:8000"
    assert origin("http://[::1]:81/") == "http://[::1]:81"


@given(st.binary(min_size=1, max_size=40).filter(lambda b: b"\0" not in b and b"/" not in b and b not in (b".", b"..")))
def test_paths_survive_as_urls(name: bytes) -> None:
    path = os.fsdecode(b"/folder/" + name)
    url = path_url(path)
    assert url.isascii()
    assert path_of(url) == path


def test_id_is_the_documented_hash() -> None:
    expected = blake2b(b"site one\0site\0http://h/a.png\x002\0", digest_size=16).hexdigest()
    assert row_id("site one", "site", "http://h/a.png", 2) == expected
    assert len(expected) == 32


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
ROW = st.tuples(NAMES, NAMES, NAMES, st.integers(0, 99))


@given(ROW, ROW)
def test_ids_are_stable_and_differ_when_anything_does(one: tuple[str, str, str, int], two: tuple[str, str, str, int],
                                                      ) -> None:
    assert (row_id(*one) == row_id(*two)) == (one == two)
