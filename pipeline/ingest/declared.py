"""Pictures that a page declares for other programs: Open Graph's `og:image`, and ImageObject in JSON-LD.

Most of them show again what the page shows anyway; those that do not come after the page's own pictures.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import islice

from selectolax.lexbor import LexborHTMLParser

from pipeline.ingest.addresses import canonical
from pipeline.ingest.sources.base import Picture

MOST = 1000
"""Nodes of JSON-LD looked at per page."""

_ADDRESS = re.compile(r"(?:https?://|\.{0,2}/)\S+$", re.IGNORECASE)
_WITHOUT_SCHEME = ("creativecommons.org/", "www.creativecommons.org/")
_WORDS = ("caption", "description", "name")


def declared_pictures(tree: LexborHTMLParser, base: str) -> Iterator[Picture]:
    """In page order, Open Graph first; an address may come several times."""
    yield from _open_graph(tree, base)
    yield from _image_objects(_linked_data(tree), base)


def _linked_data(tree: LexborHTMLParser) -> Iterator[object]:
    """The JSON-LD values of a page; one that is no JSON says nothing."""
    for script in tree.css('script[type="application/ld+json"]'):
        try:
            yield json.loads(script.text(deep=True))
        except (ValueError, RecursionError):
            continue


def _open_graph(tree: LexborHTMLParser, base: str) -> Iterator[Picture]:
    """ogp.me: properties after an `og:image` describe it, up to the next one."""
    found: list[dict[str, str]] = []
    for node in tree.css('meta[property^="og:image"]'):
        name = (node.attributes.get("property") or "").strip().lower()
        content = " ".join((node.attributes.get("content") or "").split())
        part = name.removeprefix("og:image").lstrip(":") or "url"
        if name == "og:image" or (part == "url" and (not found or "url" in found[-1])):
            if not found or found[-1].get("url") != content:  # many pages give the same as og:image:url again
                found.append({"url": content})
        elif found:
            found[-1].setdefault(part, content)
    for each in found:
        url = canonical(each.get("secure_url") or each["url"], base) if each["url"] else None
        if url is not None:
            words = each.get("alt", "")
            yield Picture(url, (words,) if words else (), ("og:image:alt",) if words else ())


def _image_objects(values: Iterator[object], base: str) -> Iterator[Picture]:
    """schema.org's ImageObjects anywhere in the page's JSON-LD values, in reading order."""
    for node in islice(_nodes(values), MOST):
        if isinstance(node, Mapping) and "ImageObject" in _texts(node.get("@type")):
            picture = _image_object(node, base)
            if picture is not None:
                yield picture


def _nodes(values: Iterator[object]) -> Iterator[object]:
    """Values and all that is inside them, each before its parts."""
    for value in values:
        ahead = [value]
        while ahead:
            node = ahead.pop()
            yield node
            if isinstance(node, list):
                ahead += reversed(node)
            elif isinstance(node, Mapping):
                ahead += reversed(list(node.values()))


def _image_object(node: Mapping[str, object], base: str) -> Picture | None:
    address = next((text for name in ("contentUrl", "url") for text in _texts(node.get(name))), "")
    url = canonical(address, base) if address else None
    if url is None:
        return None
    captions: dict[str, str] = {}
    for name in _WORDS:
        for text in _texts(node.get(name))[:1]:
            captions.setdefault(" ".join(text.split()), f"json-ld:{name}")
    captions.pop("", None)
    licences = (license_url(text, base) for text in _texts(node.get("license")))
    return Picture(url, tuple(captions), tuple(captions.values()), next(filter(None, licences), None))


def license_url(text: str, base: str) -> str | None:
    """The address that a licence property gives; many sites put words there, such as "CC BY 4.0", which are none."""
    text = text.strip()
    if text.lower().startswith(_WITHOUT_SCHEME):
        return canonical(f"https://{text}")
    return canonical(text, base) if _ADDRESS.match(text) else None


def _texts(value: object) -> list[str]:
    """Texts of a JSON-LD property, which may be one, several, or nodes with an `@id` or else a `url`; deeper ones are
    not looked at."""
    values = value if isinstance(value, list) else [value]
    texts = (each.get("@id", each.get("url")) if isinstance(each, Mapping) else each for each in values)
    return [text for text in texts if isinstance(text, str)]
