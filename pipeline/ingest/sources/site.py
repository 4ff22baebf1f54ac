"""Kind `site`: pictures on linked web pages, crawled breadth first from start addresses.

The order of rows is the order of pages by (depth, page that linked first, place of the link on it), then the place
of the picture on its page: it depends on what the site says, never on how fast it says it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from typing import ClassVar, Literal, cast
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from pipeline.errors import SourceError
from pipeline.ingest.sources._sitemaps import pages_in
from pipeline.ingest.sources.base import WEB_STATE, Found, Log, Page, Source, SourceSettings, Web

_GLANCE = 50
"""Pages that tell enough for an estimate."""

_WAVE = 256
"""Pages asked for at a time: bounds what is held in memory, and what a page limit reads too much."""

_NOT_PAGES = (
    ".jpg", ".jpeg", ".png", ".gif", ".webp", ".avif", ".svg", ".bmp", ".tif", ".tiff", ".ico", ".heic",
    ".pdf", ".zip", ".gz", ".tar", ".7z", ".rar", ".mp3", ".mp4", ".webm", ".avi", ".mov", ".css", ".js", ".json",
    ".xml", ".rss", ".txt", ".csv", ".exe", ".dmg", ".iso", ".woff", ".woff2",
)
"""Links to these are not followed: they name no page, and asking would only load the server."""


class SiteSource(Source):
    """Needs a contact in `[ingest.fetch]`, for the site's owner."""

    on_web: ClassVar[bool] = True

    class Settings(SourceSettings):
        kind: Literal["site"] = Field("site", description="pictures on linked web pages")
        start: tuple[str, ...] = Field((), description="addresses of the pages to start from")
        sitemaps: tuple[str, ...] = Field(
            (), description="addresses of sitemaps (XML, index or text, also .gz); their pages are start pages too"
        )
        scope: Literal["host", "subdomains", "prefix"] = Field(
            "host", description="links followed: host: to the start pages' own hosts; subdomains: also to hosts "
            "below them; prefix: only to addresses in the start pages' folders"
        )
        max_depth: int = Field(32, ge=0, description="links followed in a row from a start page; 0: start pages only")
        max_pages: int = Field(10_000, ge=1, description="pages read at most, nearest first")
        exclude: tuple[str, ...] = Field(
            (), description="addresses of pages not to read, with * as wildcard, e.g. *?sort=*"
        )
        pictures: Literal["any", "scope"] = Field(
            "any", description="hosts of pictures: any: wherever pages show them from; scope: as for links"
        )

        @model_validator(mode="after")
        def _has_a_start(self) -> SiteSource.Settings:
            if not self.start and not self.sitemaps:
                raise ValueError("give `start`, the addresses of pages, or `sitemaps`")
            return self

    def __init__(self, settings: SourceSettings) -> None:
        super().__init__(settings)
        self._own = cast(SiteSource.Settings, settings)
        self._roots = [_root(url) for url in self._own.start or self._own.sitemaps]

    def fingerprint(self) -> str:
        return WEB_STATE

    def at_a_glance(self) -> SiteSource:
        few = self._own.model_copy(update={"max_pages": min(_GLANCE, self._own.max_pages)})
        return SiteSource(few)

    def rows(self, web: Web, log: Log) -> Iterator[Found]:
        for page in self._crawl(web, log):
            log.count("pages")
            if page.opt_out is not None:
                log.count("pages that opt out")
            for picture in page.pictures:
                if self._own.pictures == "scope" and not self._in_scope(picture.url):
                    log.count("pictures out of scope")
                    continue
                yield Found(
                    url=picture.url, captions=picture.captions, origins=picture.origins, page_url=page.url,
                    license_url=picture.license_url, refused=page.opt_out and "opt_out",
                    refused_detail=page.opt_out and f"the page says {page.opt_out}",
                )

    def _crawl(self, web: Web, log: Log) -> Iterator[Page]:
        """Pages that could be read, level by level; those that could not go into the log."""
        listed = islice((url for url in pages_in(self._own.sitemaps, web, log) if self._follows(url)),
                        self._own.max_pages)
        level, left = list(dict.fromkeys((*self._own.start, *listed))), self._own.max_pages
        asked, arrived = set(level), set[str]()
        for depth in range(self._own.max_depth + 1):
            taken, beyond, following = level[:left], level[left:], list[str]()
            left -= len(taken)
            log.count("pages beyond the limits", len(beyond))
            for page in self._read(web, taken, log):
                # example.org led to www.example.org; a sitemap's pages may lead anywhere
                if depth == 0 and not self._own.sitemaps and _root(page.url) not in self._roots:
                    self._roots.append(_root(page.url))
                if page.url in arrived or not self._in_scope(page.url):  # redirected to a page read already, or away
                    continue
                arrived.add(page.url)
                asked.add(page.url)
                yield page
                new = [link for link in page.links if link not in asked and self._follows(link)]
                asked.update(new)
                following += new
            if not arrived:
                raise self._nothing(level, log)
            level = following
        log.count("pages beyond the limits", len(level))

    def _read(self, web: Web, urls: Sequence[str], log: Log) -> Iterator[Page]:
        for start in range(0, len(urls), _WAVE):
            for page in web.pages(urls[start:start + _WAVE]):
                if page.outcome == "ok":
                    yield page
                else:
                    log.fail(page.url, page.outcome, page.detail)

    def _follows(self, url: str) -> bool:
        path = urlsplit(url).path.lower()
        excluded = any(fnmatchcase(url, pattern) for pattern in self._own.exclude)
        return not path.endswith(_NOT_PAGES) and not excluded and self._in_scope(url)

    def _in_scope(self, url: str) -> bool:
        host, path = _root(url)
        if self._own.scope == "host":
            return any(host == root for root, _ in self._roots)
        if self._own.scope == "subdomains":
            return any(host == root or host.endswith(f".{root}") for root, _ in self._roots)
        return any(host == root and path.startswith(folder) for root, folder in self._roots)

    def _nothing(self, level: Sequence[str], log: Log) -> SourceError:
        asked = next(iter((*level, *self._own.sitemaps)))
        first = log.failed[0] if log.failed else {"url": asked, "outcome": "no page", "detail": ""}
        hint = _ADVICE.get(first["outcome"], "open the address in a browser; correct `start`, or try again later")
        detail = f" ({first['detail']})" if first["detail"] else ""
        return SourceError(
            f"source {self._own.name!r}: no start page could be read: {first['url']}: {first['outcome']}{detail}",
            hint=hint,
        )


_ADVICE = {
    "private_address": "name the host in ingest.fetch.allow_hosts if it may lie in a private network",
    "robots": "the site does not want to be crawled; choose another source",
    "not_a_page": "`start` wants HTML pages; list addresses of pictures in a source of kind urls",
    "bad_sitemap": "open the address in a browser: a sitemap is XML, or a text file with an address per line",
    "dns": "check the spelling of the host, and the connection",
    "connect": "check that the server is up, and the connection",
}


def _root(url: str) -> tuple[str, str]:
    """(host with port, folder) of an address."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2].lower()
    return host, parts.path[:parts.path.rfind("/") + 1] or "/"
