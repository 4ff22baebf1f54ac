"""Sitemaps: XML lists of a site's pages, and indexes of such lists (sitemaps.org, protocol 0.9).

Read as a stream, unpacked and parsed a piece at a time: memory holds the body as it came and nothing that grows with
what it says.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from urllib.parse import urlsplit
from xml.parsers.expat import ExpatError, ParserCreate

from pipeline.ingest.sources.base import Log, Web

LARGEST = 50 * 1024 * 1024
"""Bytes of one sitemap after decompression, as the protocol allows."""

MOST = 1000
"""Sitemaps read for one source."""

AT_ONCE = 4
"""Sitemaps read side by side: each may take LARGEST bytes of memory."""

DEEPEST = 32
"""Elements inside one another; a sitemap needs four."""

_GZIP = b"\x1f\x8b"
_PIECE = 1 << 16
_LONGEST = 8192
"""Characters of an address; the protocol allows 2,048."""


class SitemapError(ValueError):
    """The bytes are no sitemap; the message says why."""


def pages_in(
    starts: Sequence[str], web: Web, log: Log, wanted: Callable[[str], bool], moved: Callable[[str], None],
) -> Iterator[str]:
    """Addresses of the pages that sitemaps and the sitemaps they name list, in their order, each once.

    Only `wanted` pages are given, the others counted. What cannot be read goes into the log. Indexes are followed to
    MOST sitemaps, each read once. `moved` is told where each of `starts` was found after redirects, before its pages
    are given.
    """
    ahead, asked, given = list(dict.fromkeys(starts)), set[str](starts), set[str]()
    while ahead:
        some, ahead = ahead[:AT_ONCE], ahead[AT_ONCE:]
        for url, file in zip(some, web.files(some, LARGEST), strict=True):
            if file.outcome != "ok":
                log.fail(url, file.outcome, file.detail)
                continue
            if url in starts:
                moved(file.url)
            try:
                for kind, address in read_sitemap(file.content):
                    if kind == "page" and address not in given:
                        if not wanted(address):
                            log.count("pages of sitemaps out of scope")
                            continue
                        given.add(address)
                        yield address
                    elif kind == "sitemap" and address not in asked:
                        if len(asked) >= MOST:
                            log.count("sitemaps beyond the limit")
                            continue
                        asked.add(address)
                        ahead.append(address)
            except SitemapError as error:
                log.fail(url, "bad_sitemap", str(error))
                continue
            log.count("sitemaps")


def read_sitemap(body: bytes) -> Iterator[tuple[str, str]]:
    """("page" or "sitemap", address) of all that a sitemap names: XML or its text form, plain or gzip.

    Raises SitemapError where it stops being one; what it named before stands.
    """
    pieces, begin = _pieces(body), b""
    for piece in pieces:
        if begin := piece.removeprefix(b"\xef\xbb\xbf").lstrip():
            break
    if begin.startswith(b"<"):
        yield from _elements(begin, pieces)
    else:
        yield from _lines(begin, pieces)


def _pieces(body: bytes) -> Iterator[bytes]:
    """The body unpacked, a piece at a time."""
    whole = io.BytesIO(body)
    file = gzip.GzipFile(fileobj=whole) if body.startswith(_GZIP) else whole
    length = 0
    try:
        while piece := file.read(_PIECE):
            length += len(piece)
            if length > LARGEST:
                raise SitemapError(f"more than {LARGEST} bytes after decompression")
            yield piece
    except (OSError, EOFError, zlib.error) as error:
        raise SitemapError(f"broken compression: {error}") from None


class _Reader:
    """Expat's handlers: no tree is built, only the names from the root to here are kept."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = []
        self._path: list[str] = []
        self._text = ""

    def start(self, name: str, _: object) -> None:
        if len(self._path) >= DEEPEST:
            raise SitemapError("its elements are nested too deeply")
        self._path.append(name.lower())
        self._text = ""

    def text(self, piece: str) -> None:
        if len(self._text) <= _LONGEST and self._path[-1].endswith("loc"):
            self._text += piece

    def end(self, _: str) -> None:
        above, here = (["", *self._path])[-2:]
        self._path.pop()
        prefix = above.rpartition(":")[0]
        kind = {"url": "page", "sitemap": "sitemap"}.get(above.removeprefix(f"{prefix}:"))
        address = self._text.strip()
        if kind and here == (f"{prefix}:loc" if prefix else "loc") and _is_address(address):
            self.found.append((kind, address))
        self._text = ""

    def doctype(self, *_: object) -> None:
        raise SitemapError("it declares a document type, which sitemaps have no use for")


def _elements(begin: bytes, pieces: Iterator[bytes]) -> Iterator[tuple[str, str]]:
    reader, parser, broken = _Reader(), ParserCreate(), None
    parser.StartElementHandler, parser.EndElementHandler = reader.start, reader.end
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = reader.text, reader.doctype
    parser.buffer_text = True
    for piece in chain([begin], pieces, [b""]):
        try:
            parser.Parse(piece, not piece)
        except SitemapError as error:
            broken = error
        except (ExpatError, ValueError, LookupError) as error:  # the latter two for encodings that expat does not know
            broken = SitemapError(f"it is not well-formed: {error}")
        yield from reader.found
        reader.found.clear()
        if broken is not None:
            raise broken


def _lines(begin: bytes, pieces: Iterator[bytes]) -> Iterator[tuple[str, str]]:
    """The text form: an address per line."""
    rest = begin
    for piece in chain(pieces, [b"\n"]):
        *lines, rest = (rest + piece).replace(b"\r", b"\n").split(b"\n")
        for line in (*lines, *([rest] if len(rest) > _LONGEST else [])):
            text = line.strip().decode("utf-8", "replace")
            if text and not _is_address(text):
                raise SitemapError("it is neither XML nor a list of addresses")
            if text:
                yield "page", text


def _is_address(text: str) -> bool:
    """Sitemaps name whole addresses only."""
    try:
        return len(text) <= _LONGEST and urlsplit(text).scheme.lower() in ("http", "https")
    except ValueError:  # e.g. http://[x/
        return False
