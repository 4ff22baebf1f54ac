"""Sitemaps as sitemaps.org has them: indexes, gzip, text, and what hostile ones must not do."""

from __future__ import annotations

import gzip
from collections.abc import Sequence

import pytest

from pipeline.ingest.sources._sitemaps import LARGEST, MOST, SitemapError, pages_in, read_sitemap
from pipeline.ingest.sources.base import Log, Page

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

    def files(self, urls: Sequence[str], max_bytes: int) -> list[tuple[str, str, bytes]]:
        assert max_bytes == LARGEST
        self.asked += urls
        return [("ok", "", self.on_paper[url]) if url in self.on_paper else ("not_found", "HTTP 404", b"")
                for url in urls]


def test_pages_of_a_urlset() -> None:
    assert read_sitemap(URLS.encode()) == ([], ["http://h/", "http://h/catalog?item=12&desc=vacation_hawaii"])


def test_locations_of_pictures_and_videos_are_no_pages() -> None:
    text = f'''<urlset {NAMESPACE} xmlns:image="http://www.google.com/schemas/sitemap-image/1.1"><url><loc>http://h/a</loc>
        <image:image><image:loc>http://h/a.jpg</image:loc></image:image></url></urlset>'''
    assert read_sitemap(text.encode()) == ([], ["http://h/a"])


def test_an_index_its_lists_and_their_failures() -> None:
    web, log = Paper({"http://h/map.xml": INDEX.encode(), "http://h/1.xml.gz": gzip.compress(URLS.encode())}), Log()
    assert list(pages_in(["http://h/map.xml"], web, log)) == [
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
        def files(self, urls: Sequence[str], max_bytes: int) -> list[tuple[str, str, bytes]]:
            self.asked += urls
            return [("ok", "", f"<sitemapindex><sitemap><loc>{url}a</loc></sitemap><sitemap><loc>{url}b</loc></sitemap>"
                     "<sitemap><loc>http://h/m</loc></sitemap></sitemapindex>".encode()) for url in urls]

    web, log = Endless({}), Log()
    assert list(pages_in(["http://h/m"], web, log)) == []
    assert len(web.asked) == len(set(web.asked)) == MOST
    assert log.counts["sitemaps beyond the limit"] > 0


def test_a_page_named_twice_is_one_page() -> None:
    web = Paper({"http://h/a.txt": b"http://h/x\nhttp://h/x\n", "http://h/b.txt": b"http://h/x\n"})
    assert list(pages_in(["http://h/a.txt", "http://h/b.txt", "http://h/a.txt"], web, Log())) == ["http://h/x"]
    assert web.asked == ["http://h/a.txt", "http://h/b.txt"]
