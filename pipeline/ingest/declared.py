"""Pictures that a page declares for other programs: Open Graph's `og:image`, and ImageObject in JSON-LD.

Most of them show again what the page shows anyway; those that do not come after the page's own pictures.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from selectolax.lexbor import LexborHTMLParser

from pipeline.ingest.addresses import canonical
from pipeline.ingest.sources.base import Picture

MOST = 1000
"""Nodes of JSON-LD looked at per page."""

_WORDS = ("caption", "description", "name")


def declared_pictures(tree: LexborHTMLParser, base: str) -> Iterator[Picture]:
    """In page order, Open Graph first; an address may come several times."""
    yield from _open_graph(tree, base)
    for script in tree.css('script[type="application/ld+json"]'):
        try:
            value = json.loads(script.text(deep=True))
        except (ValueError, RecursionError):
            continue
        yield from _image_objects(value, base)


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


def _image_objects(value: object, base: str) -> Iterator[Picture]:
    """schema.org's ImageObjects anywhere in a JSON-LD value, in reading order."""
    ahead, seen = [value], 0
    while ahead and seen < MOST:
        node, seen = ahead.pop(), seen + 1
        if isinstance(node, list):
            ahead += reversed(node)
        elif isinstance(node, Mapping):
            ahead += reversed(list(node.values()))
            if "ImageObject" in _texts(node.get("@type")):
                picture = _image_object(node, base)
                if picture is not None:
                    yield picture


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
    license_url = next((canonical(text, base) for text in _texts(node.get("license"))), None)
    return Picture(url, tuple(captions), tuple(captions.values()), license_url)


def _texts(value: object) -> list[str]:
    """Texts of a JSON-LD property, which may be one, several, or nodes with an `@id`; deeper ones are not looked at."""
    values = value if isinstance(value, list) else [value]
    texts = (each.get("@id") if isinstance(each, Mapping) else each for each in values)
    return [text for text in texts if isinstance(text, str)]
