"""The crawl: order, limits and scope, with a plain function for the network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pipeline.errors import SourceError
from pipeline.ingest.sources.base import File, Found, Log, Page, Picture
from pipeline.ingest.sources.site import SiteSource


class Paper:
    """A web of pages on paper: address → links; each page shows one picture named after it."""

    def __init__(self, links: dict[str, list[str]], **pages: Page) -> None:
        self.links, self.asked = links, list[str]()
        self.special = pages
        self.sitemaps: dict[str, bytes] = {}

    def pages(self, urls: Sequence[str]) -> list[Page]:
        self.asked += urls
        return [self._page(url) for url in urls]

    def files(self, urls: Sequence[str], max_bytes: int) -> list[File]:
        return [self._file(url) for url in urls]

    def _file(self, url: str) -> File:
        if url not in self.sitemaps:
            return File(url, "not_found", "HTTP 404")
        content = self.sitemaps[url]
        return self._file(content[2:].decode()) if content.startswith(b"->") else File(url, "ok", "", content)

    def _page(self, url: str) -> Page:
        if url not in self.links:
            return Page(url, "not_found", "HTTP 404")
        if self.links[url] and self.links[url][0].startswith("->"):
            return self._page(self.links[url][0][2:])
        return Page(url, "ok", "", (Picture(url + ".png", ("words",), ("alt",)),), tuple(self.links[url]))


def crawl(web: Paper, **settings: object) -> tuple[list[Found], Log]:
    made = SiteSource.Settings.model_validate({"name": "s", "start": ("http://h/",), **settings})
    log = Log()
    return list(SiteSource(made).rows(web, log)), log


def pages_of(rows: list[Found]) -> list[str | None]:
    return [row.page_url for row in rows]


TREE = {
    "http://h/": ["http://h/b", "http://h/a"], "http://h/b": ["http://h/b1", "http://h/a"],
    "http://h/a": ["http://h/a1", "http://h/b1", "http://h/"], "http://h/b1": ["http://h/deep"], "http://h/a1": [],
    "http://h/deep": [],
}


def test_breadth_first_in_page_order_each_page_once() -> None:
    web = Paper(TREE)
    rows, log = crawl(web)
    expected = [f"http://h/{name}" for name in ("", "b", "a", "b1", "a1", "deep")]
    assert pages_of(rows) == expected == web.asked
    assert [row.url for row in rows] == [url + ".png" for url in expected]
    assert log.counts == {"pages": 6}


@pytest.mark.parametrize(("depth", "count", "beyond"), [(0, 1, 2), (1, 3, 2), (2, 5, 1), (3, 6, 0)])
def test_depth(depth: int, count: int, beyond: int) -> None:
    rows, log = crawl(Paper(TREE), max_depth=depth)
    assert len(rows) == count
    assert log.counts.get("pages beyond the limits", 0) == beyond


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 6, 7])
def test_page_limit_takes_the_nearest(limit: int) -> None:
    web = Paper(TREE)
    whole, _ = crawl(Paper(TREE))
    rows, _ = crawl(web, max_pages=limit)
    assert pages_of(rows) == pages_of(whole)[:limit]
    assert len(web.asked) == min(limit, 6)


def test_same_site_by_default() -> None:
    links = {"http://h/": ["http://other/", "http://sub.h/", "http://h:81/", "http://h/x"], "http://h/x": [],
             "http://sub.h/": []}
    assert pages_of(crawl(Paper(links))[0]) == ["http://h/", "http://h/x"]
    assert pages_of(crawl(Paper(links), scope="subdomains")[0]) == ["http://h/", "http://sub.h/", "http://h/x"]


def test_prefix_scope() -> None:
    links = {"http://h/g/i.html": ["http://h/g/2.html", "http://h/else"], "http://h/g/2.html": [], "http://h/else": []}
    rows, _ = crawl(Paper(links), scope="prefix", start=("http://h/g/i.html",))
    assert pages_of(rows) == ["http://h/g/i.html", "http://h/g/2.html"]


def test_files_and_excluded_addresses_are_not_read() -> None:
    links = {"http://h/": ["http://h/big.JPG", "http://h/doc.pdf", "http://h/list?sort=asc", "http://h/list"],
             "http://h/list": []}
    web = Paper(links)
    crawl(web, exclude=("*?sort=*",))
    assert web.asked == ["http://h/", "http://h/list"]


def test_redirects_to_a_page_read_already_or_away() -> None:
    links = {"http://h/": ["http://h/old", "http://h/new", "http://h/away"], "http://h/old": ["->http://h/new"],
             "http://h/new": [], "http://h/away": ["->http://other/"], "http://other/": ["http://other/more"]}
    assert pages_of(crawl(Paper(links))[0]) == ["http://h/", "http://h/new"]


def test_a_start_page_may_move_to_its_www_host() -> None:
    links = {"http://h/": ["->http://www.h/"], "http://www.h/": ["http://www.h/x"], "http://www.h/x": []}
    assert pages_of(crawl(Paper(links))[0]) == ["http://www.h/", "http://www.h/x"]


WWW = {"http://www.example.org/": ["http://example.org/a", "http://www.example.org/b", "https://other.org/"],
       "http://example.org/a": [], "http://www.example.org/b": [], "https://other.org/": []}


def test_a_site_is_its_www_host_too() -> None:
    everything = ["http://www.example.org/", "http://example.org/a", "http://www.example.org/b"]
    assert pages_of(crawl(Paper(WWW), start=("http://www.example.org/",))[0]) == everything
    spelled = Paper({**WWW, "http://EXAMPLE.org:80/": ["->http://www.example.org/"]})
    assert pages_of(crawl(spelled, start=("http://EXAMPLE.org:80/",))[0]) == everything
    secure = {"http://example.org/": ["https://www.example.org/x"], "https://www.example.org/x": []}
    assert pages_of(crawl(Paper(secure), start=("http://example.org/",))[0]) == list(secure)
    ports = {"http://example.org/": ["http://www.example.org:8080/x"], "http://www.example.org:8080/x": []}
    assert pages_of(crawl(Paper(ports), start=("http://example.org/",))[0]) == ["http://example.org/"]


def test_www_alone_is_a_host_like_others() -> None:
    links = {"http://www.org/": ["http://org/", "http://a.org/"], "http://org/": [], "http://a.org/": []}
    assert pages_of(crawl(Paper(links), start=("http://www.org/",), scope="subdomains")[0]) == ["http://www.org/"]


@pytest.mark.parametrize("scope", ["host", "subdomains", "prefix"])
@pytest.mark.parametrize("moved", ["www.example.org", "new.example"])
def test_a_sitemap_alone_finds_the_pages_of_where_it_leads(scope: str, moved: str) -> None:
    web = Paper({f"http://{moved}/a": [f"http://{moved}/b"], f"http://{moved}/b": [], "http://else/": []})
    web.sitemaps = {"http://example.org/map.xml": f"->http://{moved}/map.xml".encode(),
                    f"http://{moved}/map.xml": f"http://{moved}/a\nhttp://else/\n".encode()}
    rows, log = crawl(web, start=(), sitemaps=("http://example.org/map.xml",), scope=scope)
    assert pages_of(rows) == [f"http://{moved}/a", f"http://{moved}/b"]
    assert log.counts["pages of sitemaps out of scope"] == 1


def test_a_sitemap_beside_a_start_page_that_moved() -> None:
    web = Paper({"http://old/": ["->http://new.example/"], "http://new.example/": [], "http://new.example/a": []})
    web.sitemaps["http://old/map.txt"] = b"http://new.example/a\n"
    rows, _ = crawl(web, start=("http://old/",), sitemaps=("http://old/map.txt",))
    assert pages_of(rows) == ["http://new.example/", "http://new.example/a"]


def test_listed_pages_do_not_lead_elsewhere() -> None:
    web = Paper({"http://h/a": ["->http://other/a"], "http://other/a": ["http://other/b"], "http://other/b": []})
    web.sitemaps["http://h/map.txt"] = b"http://h/a\n"
    with pytest.raises(SourceError, match="no page") as caught:
        crawl(web, start=(), sitemaps=("http://h/map.txt",))
    assert "other hosts" in caught.value.hint


def test_links_that_will_never_be_read_are_not_remembered() -> None:
    web = Paper({"http://h/": [f"http://h/{n}" for n in range(5000)], **{f"http://h/{n}": [] for n in range(5000)}})
    rows, log = crawl(web, max_pages=3)
    assert pages_of(rows) == ["http://h/", "http://h/0", "http://h/1"]
    assert log.counts["links beyond the limits"] == 4998


def test_failed_pages_are_told() -> None:
    rows, log = crawl(Paper({"http://h/": ["http://h/gone", "http://h/x"], "http://h/x": []}))
    assert pages_of(rows) == ["http://h/", "http://h/x"]
    assert log.failed == [{"url": "http://h/gone", "outcome": "not_found", "detail": "HTTP 404"}]


def test_no_start_page_is_an_error() -> None:
    with pytest.raises(SourceError, match=r"http://h/: not_found \(HTTP 404\)"):
        crawl(Paper({}))


def test_pictures_of_pages_that_opt_out_are_rows_with_the_reason() -> None:
    class OptsOut(Paper):
        def _page(self, url: str) -> Page:
            page = super()._page(url)
            return Page(page.url, "ok", "", page.pictures, page.links, "meta robots: noai") if "b" in url else page

    rows, log = crawl(OptsOut(TREE))
    assert {row.page_url: row.refused for row in rows if row.refused} == {
        "http://h/b": "opt_out", "http://h/b1": "opt_out"}
    assert rows[1].refused_detail == "the page says meta robots: noai"
    assert log.counts["pages that opt out"] == 2


def test_pages_of_a_sitemap_are_start_pages_within_the_scope() -> None:
    web = Paper({**TREE, "http://h/alone": [], "http://other/": []})
    web.sitemaps["http://h/map.txt"] = b"http://h/alone\nhttp://h/b\nhttp://other/\nhttp://h/a.png\n"
    rows, log = crawl(web, sitemaps=("http://h/map.txt",), max_depth=0)
    assert pages_of(rows) == ["http://h/", "http://h/alone", "http://h/b"]
    rows, log = crawl(web, start=(), sitemaps=("http://h/map.txt",), exclude=("*/alone",))
    assert pages_of(rows) == ["http://h/b", "http://h/b1", "http://h/a", "http://h/deep", "http://h/a1", "http://h/"]
    assert log.counts["sitemaps"] == 1


def test_a_site_without_a_start_or_whose_sitemap_is_away_is_said() -> None:
    with pytest.raises(ValueError, match="sitemaps"):
        SiteSource.Settings.model_validate({"name": "s"})
    with pytest.raises(SourceError, match=r"http://h/map\.xml: not_found"):
        crawl(Paper({}), start=(), sitemaps=("http://h/map.xml",))


def test_a_page_under_two_addresses_is_read_once_and_a_second_page_that_claims_to_be_the_first_is_kept() -> None:
    class Claims(Paper):
        def _page(self, url: str) -> Page:
            page = super()._page(url)
            shown = (Picture("http://h/1.png"),) if "page=2" not in url else (Picture("http://h/2.png"),)
            return replace(page, pictures=shown, canonical="http://h/a") if "/a" in url else page

    links = {"http://h/": ["http://h/a?utm=1", "http://h/a", "http://h/a?page=2"], "http://h/a": [],
             "http://h/a?utm=1": ["http://h/found"], "http://h/a?page=2": [], "http://h/found": []}
    rows, log = crawl(Claims(links))
    assert pages_of(rows) == ["http://h/", "http://h/a?utm=1", "http://h/a?page=2", "http://h/found"]
    assert log.counts["pages met again under another address"] == 1
