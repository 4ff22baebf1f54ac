"""Kind `warc`: pictures in web archives, with the captions that archived pages give them. Needs the extra `warc`.

Pages come in the order of files and records, then pictures that no page shows. A picture whose answer lies in the
archive is copied into the run's raw tars; ids hang on its address, as for a website.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, BinaryIO, ClassVar, Literal, cast

import pyarrow as pa
from pydantic import Field

from pipeline import storage
from pipeline.errors import SourceError, StorageError
from pipeline.ingest.addresses import canonical
from pipeline.ingest.sources._archive import Record, TooLong, need_fastwarc, records
from pipeline.ingest.sources._captures import Capture, Captures
from pipeline.ingest.sources._containers import Container, containers, fingerprint, say_ageless
from pipeline.ingest.sources.base import Found, Log, Page, Source, SourceSettings, Web

LONGEST_PAGE = 32 << 20
"""Bytes, without codings."""
_HTML = ("text/html", "application/xhtml+xml")
_REDIRECTS = (301, 302, 303, 307, 308)


class WarcSource(Source):
    """Opt-outs recorded in the archive are honoured; robots.txt was the crawler's to ask, and is asked for fetches."""

    on_web: ClassVar[bool] = True

    class Settings(SourceSettings):
        kind: Literal["warc"] = Field("warc", description="pictures in web archives")
        path: str = Field(
            description="a .warc or .warc.gz file, a folder with its sub-folders or a wildcard; any fsspec URL, e.g. "
            "https://data.commoncrawl.org/…; relative paths count from where the command runs"
        )
        fetch_missing: bool = Field(
            False, description="fetch from the web what pages show but the archive does not hold; else such a row ends "
            "as not_in_archive"
        )
        pictures: Literal["all", "shown"] = Field(
            "all", description="all: also pictures that no page in the archive shows, without captions"
        )

    def __init__(self, settings: SourceSettings) -> None:
        super().__init__(settings)
        self._own = cast(WarcSource.Settings, settings)

    @classmethod
    def asks_web(cls, settings: SourceSettings) -> bool:
        return cast(WarcSource.Settings, settings).fetch_missing

    def columns(self) -> dict[str, pa.DataType]:
        need_fastwarc(self._own.name)
        return {}

    @cached_property
    def _files(self) -> list[Container]:
        return containers(self._own.path, (".warc", ".warc.gz"), self._own.name, what="WARC files",
                          hint="give a .warc or .warc.gz file, a folder that holds some, or a wildcard")

    def fingerprint(self) -> str:
        """Changes with the place, size or age of any file."""
        return fingerprint(self._files)

    def rows(self, web: Web, log: Log) -> Iterator[Found]:
        say_ageless(self._files, log)
        captures = Captures()
        try:
            for number, file in enumerate(self._files):
                try:
                    with storage.open_read(file.url) as opened:
                        self._read(number, opened, file, captures, web, log)
                except (StorageError, OSError) as error:
                    raise SourceError(f"source {self._own.name!r}: cannot read {file.url} to its end: {error}",
                                      hint="run the same command again when its disk or server answers") from error
            for page in captures.pages():
                for picture in page["pictures"]:
                    yield self._found(captures, page, picture)
            for url in captures.not_shown() if self._own.pictures == "all" else ():
                log.count("pictures that no page shows")
                yield self._found(captures, {"url": None, "opt_out": None}, {"url": url})
        finally:
            captures.close()

    def _read(self, number: int, opened: BinaryIO, file: Container, captures: Captures, web: Web, log: Log) -> None:
        """Note a file's pages and captures; a file that breaks off gives what it holds, and is told in the log."""
        held: tuple[Record, Capture] | None = None
        try:
            for record in records(opened):
                _settled(held, record.position, captures)
                held = None
                if record.url:
                    log.count("records")
                    held = record, self._capture(record, number, web)
                    if record.status == 200 and record.kind != "revisit" and record.media_type in _HTML:
                        self._page(record, captures, web, log)
        except OSError as error:
            if error.errno is not None:
                raise
            log.fail(file.url, "broken_warc", str(error)[:500])
        _settled(held, storage.size(file.url), captures)

    def _page(self, record: Record, captures: Captures, web: Web, log: Log) -> None:
        try:
            body = record.body(LONGEST_PAGE)
        except TooLong as error:
            log.fail(record.url, "too_large", str(error))
            return
        log.count("pages")
        if record.truncated:
            log.count("pages that are cut")
        page = web.read(record.url, body, record.headers)
        if page.opt_out is not None:
            log.count("pages that opt out")
        captures.add_page(_page_of(page))

    def _capture(self, record: Record, number: int, web: Web) -> Capture:
        what, detail, target = "ok", "", record.refers_to
        if record.kind == "revisit":
            what = "revisit"
        elif record.status in _REDIRECTS:
            what, target = "redirect", canonical((record.headers.get("location") or ("",))[0], record.url)
        elif record.status == 0:
            what, detail = "not_in_archive", "its record holds no whole HTTP header"
        elif record.status in (404, 410):
            what, detail = "not_found", f"HTTP {record.status} in the archive"
        elif record.status not in (200, 203):
            what, detail = "http_error", f"HTTP {record.status} in the archive"
        elif (said := web.opt_out(record.headers)) is not None:
            what, detail = "opt_out", said
        elif record.truncated:
            what, detail = "not_in_archive", f"only its beginning is there (WARC-Truncated: {record.truncated})"
        return Capture(record.url, number, record.position, 0, what, detail, target, record.digest,
                       record.media_type.startswith("image/"))

    def _found(self, captures: Captures, page: dict[str, Any], picture: dict[str, Any]) -> Found:
        common: dict[str, Any] = {
            "url": picture["url"], "captions": tuple(picture.get("captions", ())),
            "origins": tuple(picture.get("origins", ())), "license_url": picture.get("license_url"),
            "page_url": page["url"],
        }
        capture = captures.of(picture["url"])
        if page["opt_out"] is not None:
            return Found(refused="opt_out", refused_detail=f"the page says {page['opt_out']}", **common)
        if capture is not None and capture.what == "ok":
            file = self._files[capture.file]
            return Found(place=(file.url, "", capture.position, capture.length), packing="warc",
                         state=f"{file.state}:{capture.position}", **common)
        refused, detail = "not_in_archive", "the archive holds no answer for this address"
        if capture is not None:
            refused, detail = capture.what, capture.detail
        if self._own.fetch_missing and refused in ("not_in_archive", "http_error"):
            return Found(**common)
        return Found(refused=refused, refused_detail=detail, **common)


def _settled(held: tuple[Record, Capture] | None, end: int, captures: Captures) -> None:
    """Note a capture once it is known where its record ends."""
    if held is None:
        return
    values = {**vars(held[1]), "length": max(0, end - held[1].position)}
    captures.add(Capture(**values))


def _page_of(page: Page) -> dict[str, Any]:
    return {"url": page.url, "opt_out": page.opt_out, "pictures": [vars(each) for each in page.pictures]}
