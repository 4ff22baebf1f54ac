"""Sitemaps: XML lists of a site's pages, and indexes of such lists (sitemaps.org, protocol 0.9)."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit
from xml.etree.ElementTree import ParseError, iterparse

from pipeline.ingest.sources.base import Log, Web

LARGEST = 50 * 1024 * 1024
"""Bytes of one sitemap after decompression, as the protocol allows."""

MOST = 1000
"""Sitemaps read for one source."""

AT_ONCE = 4
"""Sitemaps read side by side: each may take LARGEST bytes of memory."""

_GZIP = b"\x1f\x8b"


class SitemapError(ValueError):
    """The bytes are no sitemap; the message says why."""


def pages_in(starts: Sequence[str], web: Web, log: Log) -> Iterator[str]:
    """Addresses of the pages that sitemaps and the sitemaps they name list, in their order, each once.

    What cannot be read goes into the log. Indexes are followed to MOST sitemaps, each read once.
    """
    ahead, asked, given = list(dict.fromkeys(starts)), set[str](starts), set[str]()
    while ahead:
        some, ahead = ahead[:AT_ONCE], ahead[AT_ONCE:]
        for url, (outcome, detail, body) in zip(some, web.files(some, LARGEST), strict=True):
            if outcome != "ok":
                log.fail(url, outcome, detail)
                continue
            try:
                maps, pages = read_sitemap(body)
            except SitemapError as error:
                log.fail(url, "bad_sitemap", str(error))
                continue
            log.count("sitemaps")
            for page in pages:
                if page not in given:
                    given.add(page)
                    yield page
            new = [each for each in dict.fromkeys(maps) if each not in asked]
            log.count("sitemaps beyond the limit", max(0, len(asked) + len(new) - MOST))
            new = new[:max(0, MOST - len(asked))]
            asked.update(new)
            ahead += new


def read_sitemap(body: bytes) -> tuple[list[str], list[str]]:
    """(sitemaps, pages) that a sitemap names: XML or its text form, plain or gzip. Raises SitemapError."""
    plain = _unpacked(body)
    if not plain.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        return [], _lines(plain)
    if b"\0" in plain or b"<!ENTITY" in plain or b"<!DOCTYPE" in plain:
        raise SitemapError("it declares a document type or is no UTF-8, as sitemaps must be")
    maps: list[str] = []
    pages: list[str] = []
    path: list[str] = []
    try:
        for event, node in iterparse(io.BytesIO(plain), ("start", "end")):
            if event == "start":
                path.append(node.tag.rpartition("}")[2].lower())
                continue
            where = path[-2:]
            path.pop()
            address = (node.text or "").strip()
            if where in (["sitemap", "loc"], ["url", "loc"]) and _is_address(address):
                (maps if where[0] == "sitemap" else pages).append(address)
            node.clear()  # a sitemap may hold 50,000 entries
    except (ParseError, ValueError, LookupError) as error:  # the latter two for encodings that expat does not know
        raise SitemapError(f"it is not well-formed: {error}") from None
    return maps, pages


def _unpacked(body: bytes) -> bytes:
    if not body.startswith(_GZIP):
        return body
    try:
        with gzip.open(io.BytesIO(body)) as file:
            plain = file.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise SitemapError(f"broken compression: {error}") from None
    if len(plain) > LARGEST:
        raise SitemapError(f"more than {LARGEST} bytes after decompression")
    return plain


def _lines(plain: bytes) -> list[str]:
    """The text form: an address per line."""
    try:
        lines = [line.strip() for line in plain.decode("utf-8-sig").splitlines()]
    except UnicodeDecodeError:
        raise SitemapError("it is neither XML nor text") from None
    found = [line for line in lines if line]
    if not all(map(_is_address, found)):
        raise SitemapError("it is neither XML nor a list of addresses")
    return found


def _is_address(text: str) -> bool:
    """Sitemaps name whole addresses only."""
    try:
        return urlsplit(text).scheme.lower() in ("http", "https")
    except ValueError:  # e.g. http://[x/
        return False
