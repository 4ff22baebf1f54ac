"""Kind `site`: pictures on linked web pages, crawled breadth first from start addresses.

The order of rows is the order of pages by (depth, page that linked first, place of the link on it), then the place
of the picture on its page: it depends on what the site says, never on how fast it says it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import islice
from typing import ClassVar, Literal, cast
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from pipeline.errors import SourceError
from pipeline.ingest.sources._scope import Kind, Scope
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
    version: ClassVar[int] = 2

    class Settings(SourceSettings):
        kind: Literal["site"] = Field("site", description="pictures on linked web pages")
        start: tuple[str, ...] = Field((), description="addresses of the pages to start from")
        sitemaps: tuple[str, ...] = Field(
            (), description="addresses of sitemaps (XML, index or text, also .gz); their pages are start pages too"
        )
        scope: Kind = Field(
            "host", description="links followed: host: to the start pages' own hosts, with or without www., and where "
            "those pages redirect to; subdomains: also to hosts below them; prefix: only to addresses in the start "
            "pages' folders"
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

    def fingerprint(self) -> str:
        return WEB_STATE

    def at_a_glance(self) -> SiteSource:
        few = self._own.model_copy(update={"max_pages": min(_GLANCE, self._own.max_pages)})
        return SiteSource(few)

    def rows(self, web: Web, log: Log) -> Iterator[Found]:
        scope = Scope(self._own.scope)
        for page in self._crawl(web, log, scope):
            log.count("pages")
            if page.opt_out is not None:
                log.count("pages that opt out")
            for picture in page.pictures:
                if self._own.pictures == "scope" and picture.url not in scope:
                    log.count("pictures out of scope")
                    continue
                yield Found(
                    url=picture.url, captions=picture.captions, origins=picture.origins, page_url=page.url,
                    license_url=picture.license_url, refused=page.opt_out and "opt_out",
                    refused_detail=page.opt_out and f"the page says {page.opt_out}",
                )

    def _crawl(self, web: Web, log: Log, scope: Scope) -> Iterator[Page]:
        """Pages that could be read, level by level; those that could not go into the log."""
        starts = list(dict.fromkeys(self._own.start))
        for url in starts or self._own.sitemaps:
            scope.add(url)
        walk = _Walk(web, log, self._own, scope)
        yield from walk.level(starts, first=True)
        yield from walk.level(walk.listed())
        if not walk.arrived:
            raise self._nothing(log)
        for _ in range(self._own.max_depth):
            yield from walk.level(walk.ahead())
        log.count("pages beyond the limits", len(walk.ahead()))

    def _nothing(self, log: Log) -> SourceError:
        asked = next(iter((*self._own.start, *self._own.sitemaps)))
        first = log.failed[0] if log.failed else {"url": asked, "outcome": "no page", "detail": ""}
        hint = _ADVICE.get(first["outcome"], "open the address in a browser; correct `start`, or try again later")
        detail = f" ({first['detail']})" if first["detail"] else ""
        return SourceError(
            f"source {self._own.name!r}: no start page could be read: {first['url']}: {first['outcome']}{detail}",
            hint=hint,
        )


_ADVICE = {
    "no page": "all pages named lie on other hosts; name theirs in `start`, or another `scope`",
    "private_address": "name the host in ingest.fetch.allow_hosts if it may lie in a private network",
    "robots": "the site does not want to be crawled; choose another source",
    "not_a_page": "`start` wants HTML pages; list addresses of pictures in a source of kind urls",
    "bad_sitemap": "open the address in a browser: a sitemap is XML, or a text file with an address per line",
    "dns": "check the spelling of the host, and the connection",
    "connect": "check that the server is up, and the connection",
}


class _Walk:
    """A crawl under way: what was asked for, what arrived, and the links that come next."""

    def __init__(self, web: Web, log: Log, own: SiteSource.Settings, scope: Scope) -> None:
        self._web, self._log, self._own, self._scope = web, log, own, scope
        self._left = own.max_pages
        self._asked = set[str]()
        self._ahead: dict[str, None] = {}
        self._shown: dict[tuple[str, int], str] = {}
        self.arrived = set[str]()

    def listed(self) -> Iterator[str]:
        """Pages of the sitemaps, until no more may be read."""
        for url in pages_in(self._own.sitemaps, self._web, self._log, self._follows, self._scope.add):
            yield url
            if self._left <= 0:
                return

    def ahead(self) -> list[str]:
        """Links found since this was last asked for, in their order."""
        links, self._ahead = [url for url in self._ahead if url not in self._asked], {}
        return links

    def level(self, urls: Iterable[str], *, first: bool = False) -> Iterator[Page]:
        """Those pages among `urls` that are new and of the site; `first` ones may lead to where the site lies now."""
        new = (url for url in urls if url not in self._asked)
        while wave := list(dict.fromkeys(islice(new, min(_WAVE, self._left)))):
            self._left -= len(wave)
            self._asked.update(wave)
            for page in self._web.pages(wave):
                if first and page.outcome == "ok":
                    self._scope.add(page.url)
                if self._arrives(page):
                    if self._is_new(page):
                        yield page
                    self._look_ahead(page.links)
        self._log.count("pages beyond the limits", sum(1 for _ in new))

    def _arrives(self, page: Page) -> bool:
        if page.outcome != "ok":
            self._log.fail(page.url, page.outcome, page.detail)
        elif page.url not in self._scope:
            self._log.count("pages that lead out of scope")
        elif page.url not in self.arrived:
            self.arrived.add(page.url)
            self._asked.add(page.url)
            return True
        return False

    def _is_new(self, page: Page) -> bool:
        """Whether no page with the same canonical address has shown just the same pictures.

        The address alone would not do: on many sites the second page of a gallery names the first.
        """
        key = page.canonical or page.url, hash(page.pictures)
        again = self._shown.setdefault(key, page.url) != page.url
        self._log.count("pages met again under another address", again)
        return not again

    def _look_ahead(self, links: Iterable[str]) -> None:
        for link in links:
            if link in self._asked or link in self._ahead or not self._follows(link):
                continue
            if len(self._ahead) < self._left:
                self._ahead[link] = None
            else:  # it will not be read, and to remember it would take memory without end
                self._log.count("links beyond the limits")

    def _follows(self, url: str) -> bool:
        path = urlsplit(url).path.lower()
        excluded = any(fnmatchcase(url, pattern) for pattern in self._own.exclude)
        return not path.endswith(_NOT_PAGES) and not excluded and url in self._scope
