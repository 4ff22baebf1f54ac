"""Sitemaps as sitemaps.org has them: indexes, gzip, text, and what hostile ones must not do."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Callable, Sequence

import pytest

from pipeline.ingest.sources import _sitemaps
from pipeline.ingest.sources._sitemaps import DEEPEST, LARGEST, MOST, SitemapError
from pipeline.ingest.sources.base import File, Log, Page

NAMESPACE = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
# the example of the protocol's page, shortened
URLS = f'''<?xml version="1.0" encoding="UTF-8"?>
<urlset {NAMESPACE}>
   <url><loc>http://h/</loc><lastmod>2005-01-01</lastmod><priority>0.8</priority></url>
   <url><loc>
     http://h/catalog?item=12&amp;desc=vacation_hawaii </loc></url>
</urlset>'''
INDEX = f'''<?xml version="1.0"?><sitemapindex {NAMESPACE}>
<sitemap><loc>http://h/1.xml.gz</loc></sitemap><sitemap><loc>http://h/2.xml</loc></sitemap></sitemapindex>'''


class Paper:
    """Files on paper."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.on_paper, self.asked = files, list[str]()

    def pages(self, urls: Sequence[str]) -> list[Page]:
        raise AssertionError("no page is asked for")

    def files(self, urls: Sequence[str], max_bytes: int) -> list[File]:
        assert max_bytes == LARGEST
        self.asked += urls
        return [File(url, "ok", "", self.on_paper[url]) if url in self.on_paper else File(url, "not_found", "HTTP 404")
                for url in urls]


def pages_in(starts: Sequence[str], web: Paper, log: Log) -> list[str]:
    return list(_sitemaps.pages_in(starts, web, log, lambda url: True, lambda url: None))


def read_sitemap(body: bytes) -> tuple[list[str], list[str]]:
    """(sitemaps, pages)"""
    found = list(_sitemaps.read_sitemap(body))
    return [url for kind, url in found if kind == "sitemap"], [url for kind, url in found if kind == "page"]


def test_pages_of_a_urlset() -> None:
    assert read_sitemap(URLS.encode()) == ([], ["http://h/", "http://h/catalog?item=12&desc=vacation_hawaii"])


def test_locations_of_pictures_and_videos_are_no_pages() -> None:
    text = f'''<urlset {NAMESPACE} xmlns:image="http://www.google.com/schemas/sitemap-image/1.1"><url><loc>http://h/a</loc>
        <image:image><image:loc>http://h/a.jpg</image:loc></image:image></url></urlset>'''
    assert read_sitemap(text.encode()) == ([], ["http://h/a"])


def test_an_index_its_lists_and_their_failures() -> None:
    web, log = Paper({"http://h/map.xml": INDEX.encode(), "http://h/1.xml.gz": gzip.compress(URLS.encode())}), Log()
    assert pages_in(["http://h/map.xml"], web, log) == [
        "http://h/", "http://h/catalog?item=12&desc=vacation_hawaii"]
    assert log.counts == {"sitemaps": 2}
    assert log.failed == [{"url": "http://h/2.xml", "outcome": "not_found", "detail": "HTTP 404"}]


def test_the_text_form_and_an_empty_one() -> None:
    assert read_sitemap(b"\xef\xbb\xbfhttp://h/a\r\n\r\nhttps://h/b\n") == ([], ["http://h/a", "https://h/b"])
    assert read_sitemap(b"") == ([], [])


@pytest.mark.parametrize("body", [
    b"<urlset><url><loc>http://h/</loc>", b"\x1f\x8bnot gzip", b"\xff\xd8\xff\xe0", b"hello",
    gzip.compress(b"x", mtime=0)[:-4], b'<?xml version="1.0" encoding="Shift_JIS"?><urlset/>',
    "<urlset/>".encode("utf-16"),
    b"http://[x/", b'<?xml version="1.0" encoding="no-such"?><urlset/>',
    b"<a>" * (DEEPEST + 1), b"http://h/\n" + b"x" * 9000, b"<urlset><url><loc>http://h/\0</loc></url></urlset>",
    b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "c">]><urlset><url><loc>&b;</loc></url></urlset>',
])
def test_what_is_no_sitemap_is_said(body: bytes) -> None:
    with pytest.raises(SitemapError):
        read_sitemap(body)


def test_a_bomb_is_not_unpacked() -> None:
    with pytest.raises(SitemapError, match="more than"):
        read_sitemap(gzip.compress(b"\n" * (LARGEST + 10)))


def test_an_index_that_never_ends_does() -> None:
    class Endless(Paper):
        def files(self, urls: Sequence[str], max_bytes: int) -> list[File]:
            self.asked += urls
            return [File(url, "ok", "", f"<sitemapindex><sitemap><loc>{url}a</loc></sitemap><sitemap><loc>{url}b</loc>"
                     "</sitemap><sitemap><loc>http://h/m</loc></sitemap></sitemapindex>".encode()) for url in urls]

    web, log = Endless({}), Log()
    assert pages_in(["http://h/m"], web, log) == []
    assert len(web.asked) == len(set(web.asked)) == MOST
    assert log.counts["sitemaps beyond the limit"] > 0


def test_a_page_named_twice_is_one_page() -> None:
    web = Paper({"http://h/a.txt": b"http://h/x\nhttp://h/x\n", "http://h/b.txt": b"http://h/x\n"})
    assert pages_in(["http://h/a.txt", "http://h/b.txt", "http://h/a.txt"], web, Log()) == ["http://h/x"]
    assert web.asked == ["http://h/a.txt", "http://h/b.txt"]


def test_prefixes_and_what_surrounds_the_document() -> None:
    """A prefix that is declared nowhere is a common fault; so is white space before the declaration."""
    text = b'''
      <?xml version="1.0"?><s:urlset xmlns:s="http://www.sitemaps.org/schemas/sitemap/0.9"><s:url><s:loc>http://h/a</s:loc>
      <image:loc>http://h/a.jpg</image:loc><image:image><image:loc>http://h/b.jpg</image:loc></image:image></s:url>
      <s:url><s:loc><![CDATA[http://h/b?x&y]]></s:loc></s:url></s:urlset>'''
    assert read_sitemap(text) == ([], ["http://h/a", "http://h/b?x&y"])


def test_what_a_broken_one_named_before_it_broke_stands() -> None:
    web, log = Paper({"http://h/m": b"<urlset><url><loc>http://h/a</loc></url><url><loc>http://h/b</oops>"}), Log()
    assert pages_in(["http://h/m"], web, log) == ["http://h/a"]
    assert [each["outcome"] for each in log.failed] == ["bad_sitemap"]


def test_only_wanted_pages_are_kept_and_the_start_says_where_it_lies() -> None:
    class Moved(Paper):
        def files(self, urls: Sequence[str], max_bytes: int) -> list[File]:
            return [File("http://www.h/m", file.outcome, file.detail, file.content)
                    for file in super().files(urls, max_bytes)]

    web, log, told = Moved({"http://h/m": b"http://www.h/a\nhttp://other/\n"}), Log(), list[str]()
    found = _sitemaps.pages_in(["http://h/m"], web, log, lambda url: told != [] and "www" in url, told.append)
    assert list(found) == ["http://www.h/a"]
    assert told == ["http://www.h/m"]
    assert log.counts == {"pages of sitemaps out of scope": 1, "sitemaps": 1}


def as_xml(count: int) -> bytes:
    entry = "<url><loc>http://h/{0:07d}</loc><lastmod>2005-01-01</lastmod><x:y xmlns:x='u:{0}'/></url>"
    return b"<urlset>" + "".join(entry.format(n) for n in range(count)).encode() + b"</urlset>"


@pytest.mark.parametrize("make", [
    as_xml, lambda count: b"<a>" + b"<b/>" * 10 * count + b"</a>",
    lambda count: b"<loc>" + b"x" * 80 * count + b"</loc>",
    lambda count: b"".join(b"http://h/%07d\n" % n for n in range(count)), lambda count: b"\n" * 50 * count,
], ids=["urlset", "empty elements", "one text", "lines", "blank"])
def test_memory_does_not_grow_with_a_sitemap(make: Callable[[int], bytes]) -> None:
    """Beside the body, packed, what is held is the same for 10,000 entries as for 40,000."""

    def most(count: int) -> int:
        packed = gzip.compress(make(count), 1)
        tracemalloc.start()
        try:
            for _ in _sitemaps.read_sitemap(packed):
                pass
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    most(10)
    assert most(40_000) < most(10_000) + 300_000
