"""Which of the addresses that an image element names leads to its largest picture."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from urllib.parse import unquote, urlsplit

from selectolax.lexbor import LexborNode

FULL = ("data-full-url", "data-orig-file", "data-large_image", "data-zoom-image", "data-highres", "data-full-src",
        "data-hi-res-src", "data-large-file")
"""Attributes in which galleries and shops keep the picture at full size."""
LAZY = ("data-src", "data-original", "data-lazy-src", "data-lazy", "data-url", "data-image", "data-lazyload",
        "data-actualsrc", "data-echo", "data-cfsrc", "data-flickity-lazyload")
"""Attributes from which scripts load the picture; `src` then holds a placeholder."""
LAZY_SETS = ("data-srcset", "data-lazy-srcset", "data-original-set", "data-cfsrcset", "data-flickity-lazyload-srcset")

_PICTURES = (".jpg", ".jpeg", ".png", ".webp", ".avif", ".gif", ".tif", ".tiff", ".bmp", ".jfif", ".heic", ".jxl")
_PAGE_NAMED_LIKE_ONE = re.compile(r"[:]|/blob/|/s\d+-h/")
"""MediaWiki's File:x.jpg, a source repository's /blob/, Blogger's /s1600-h/: pages about a picture."""
_NOT_LOADED = ("data:", "blob:", "about:", "javascript:")
_CANDIDATE = re.compile(r"[\s,]*(\S+)")
_DESCRIPTOR = re.compile(r"^(\d+(?:\.\d+)?|\.\d+)([wx])$")
_NUMBER = re.compile(r"\s*(\d+)")
_MEDIA = re.compile(r"\b(min|max)-width\s*:\s*(\d+)")

MOST_SOURCES = 64
"""Sources of one picture that are looked at."""

Attributes = Mapping[str, str | None]
Rank = tuple[int, float, float]


def best_address(node: LexborNode) -> str | None:
    """Full size as named or linked to, else the largest candidate, else what a script loads, else `src`."""
    attributes = node.attributes
    named = next(_named(attributes, FULL), None) or _linked(node)
    if named is not None:
        return named
    lazy = next(_named(attributes, LAZY), None)
    best: tuple[Rank, str] | None = None
    for rank, url in _candidates(node, attributes):
        if not url.lower().startswith("data:") and (best is None or rank > best[0]):
            best = rank, url
    source = lazy or next(_named(attributes, ("src",)), None)
    if best is None or (source is not None and best[0] < (0, 1.0, 0.0)):
        return source
    return best[1]


def is_tracker(node: LexborNode) -> bool:
    """Whether an image is declared to be at most 2 pixels wide and high, which only tracking pixels and spacers are."""
    attributes = node.attributes
    sizes = [_NUMBER.match(attributes.get(name) or "") for name in ("width", "height")]
    tiny = all(size is not None and int(size.group(1)[:9]) <= 2 for size in sizes)
    return tiny and not any(attributes.get(name) for name in (*FULL, *LAZY, *LAZY_SETS, "srcset"))


def _named(attributes: Attributes, names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        value = (attributes.get(name) or "").strip()
        if value and not value.lower().startswith(_NOT_LOADED):
            value = _filled_in(value, attributes.get("data-widths"))
            if "{" not in value:
                yield value


def _filled_in(value: str, widths: str | None) -> str:
    """Shopify's themes write `{width}` and list the widths beside it."""
    if "{width}" not in value or not widths:
        return value
    try:
        most = max(int(width) for width in json.loads(widths))
    except (ValueError, TypeError, RecursionError):
        return value
    return value.replace("{width}", str(most))


def _linked(node: LexborNode) -> str | None:
    """The picture that a thumbnail is a link to."""
    link = node.parent
    for _ in range(3):  # the thumbnail may stand in a picture or span
        if link is None or link.tag == "a":
            break
        link = link.parent
    href = (link.attributes.get("href") or "").strip() if link is not None and link.tag == "a" else ""
    try:
        path = unquote(urlsplit(href).path)
    except ValueError:
        return None
    return href if path.lower().endswith(_PICTURES) and not _PAGE_NAMED_LIKE_ONE.search(path) else None


def _candidates(node: LexborNode, attributes: Attributes) -> Iterator[tuple[Rank, str]]:
    yield from _of(attributes, 0.0)
    if node.parent is not None and node.parent.tag == "picture":
        for source in reversed(list(islice(_sources_before(node), MOST_SOURCES))):
            given = source.attributes
            yield from _of(given, _width_asked_for(given.get("media") or ""))


def _sources_before(node: LexborNode) -> Iterator[LexborNode]:
    """A picture's sources, of which only those before its image count, nearest first."""
    before = node.prev
    while before is not None and before.tag != "img":
        if before.tag == "source":
            yield before
        before = before.prev


def _of(attributes: Attributes, width: float) -> Iterator[tuple[Rank, str]]:
    """Widths count before densities, densities before the window's width that a source is meant for."""
    for name in (*LAZY_SETS, "srcset"):
        for url, size, unit in parse_srcset(attributes.get(name) or ""):
            yield (1 if unit == "w" else 0, size, width), url


def _width_asked_for(media: str) -> float:
    """Wide windows get large pictures: above 0 for a least width, below it for a greatest one."""
    found = _MEDIA.search(media)
    if found is None:
        return 0.0
    pixels = float(found.group(2)[:9]) or 1.0
    return pixels if found.group(1) == "min" else -1 / pixels


def parse_srcset(text: str) -> list[tuple[str, float, str]]:
    """(address, size, "w" or "x") per candidate (HTML, section 4.8.4.3); commas inside an address are kept."""
    found: list[tuple[str, float, str]] = []
    position = 0
    while position < len(text):
        match = _CANDIDATE.match(text, position)
        if match is None:
            break
        url, position = match.group(1), match.end()
        words: list[str] = []
        if url.endswith(","):
            url = url.rstrip(",")
        else:
            end = text.find(",", position)
            end = len(text) if end < 0 else end
            words, position = text[position:end].split(), end + 1
        size, unit = 1.0, "x"
        for word in words:
            if (descriptor := _DESCRIPTOR.match(word)) is not None:
                size, unit = float(descriptor.group(1)), descriptor.group(2)
        if url:
            found.append((url, size, unit))
    return found
