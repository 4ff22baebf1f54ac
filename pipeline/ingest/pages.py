"""HTML → the pictures a page shows, the captions it gives them, and where it links to.

Follows the HTML standard where it matters: `base href`, `srcset` (section 4.8.4.3), text content of
`figcaption`. Lazy-loading attributes win over a placeholder in `src`; the largest candidate wins in a `srcset`.
Pictures that are only declared (Open Graph, JSON-LD) follow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from selectolax.lexbor import LexborHTMLParser, LexborNode

from pipeline.ingest.addresses import canonical
from pipeline.ingest.declared import declared_pictures
from pipeline.ingest.politeness import BOT, opt_out, tdm_reserved
from pipeline.ingest.sources.base import Page, Picture

_LAZY = ("data-src", "data-original", "data-lazy-src", "data-lazy", "data-url", "data-hi-res-src")
_LAZY_SETS = ("data-srcset", "data-lazy-srcset")
_META_CHARSET = re.compile(rb"""<meta[^>]+charset\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
_HEADER_CHARSET = re.compile(r"""charset\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
_CANDIDATE = re.compile(r"[\s,]*(\S+)")
_DESCRIPTOR = re.compile(r"^(\d+(?:\.\d+)?|\.\d+)([wx])$")


def read_page(
    url: str, body: bytes, content_type: str = "", *, opt_outs: Sequence[str] = (), respect_tdm: bool = False
) -> Page:
    """Read one page whose address after redirects is `url`. Bad markup never raises; it is read as browsers do."""
    tree = LexborHTMLParser(decode(body, content_type))
    base = _base(tree, url)
    metas = [(_text(node, "name").lower(), _text(node, "content")) for node in tree.css("meta[name]")]
    robots = [content for name, content in metas if name in ("robots", BOT.lower())]
    directive = opt_out(robots, opt_outs)
    refused = f"meta robots: {directive}" if directive else None
    if respect_tdm and tdm_reserved(content for name, content in metas if name == "tdm-reservation"):
        refused = refused or "meta tdm-reservation: 1"
    follow = opt_out(robots, ("nofollow",)) is None
    shown = list(_pictures(tree, base))
    known = {picture.url for picture in shown}
    for picture in declared_pictures(tree, base):
        if picture.url not in known:
            known.add(picture.url)
            shown.append(picture)
    return Page(
        url=url, outcome="ok", pictures=tuple(shown),
        links=tuple(_links(tree, base)) if follow else (), opt_out=refused,
    )


def decode(body: bytes, content_type: str) -> str:
    """Text by byte order mark, header, meta element, else UTF-8, else Windows-1252 (WHATWG Encoding's order)."""
    if body.startswith(b"\xef\xbb\xbf"):
        return body[3:].decode("utf-8", "replace")
    if body[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return body.decode("utf-16", "replace")
    in_header = _HEADER_CHARSET.search(content_type)
    in_meta = _META_CHARSET.search(body[:4096])
    for name in (in_header and in_header.group(1), in_meta and in_meta.group(1).decode("ascii", "replace")):
        if not name:
            continue
        # the standard reads these labels as Windows-1252, of which they are subsets
        label = "cp1252" if name.lower() in ("iso-8859-1", "latin1", "us-ascii", "ascii") else name
        try:
            return body.decode(label, "replace")
        except (LookupError, ValueError):
            continue
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return body.decode("cp1252", "replace")


def _base(tree: LexborHTMLParser, url: str) -> str:
    node = tree.css_first("base[href]")
    return (node and canonical(_text(node, "href"), url)) or url


def _links(tree: LexborHTMLParser, base: str) -> Iterator[str]:
    """Canonical addresses of links in page order, each once; `rel=nofollow` is obeyed."""
    seen: set[str] = set()
    for node in tree.css("a[href], area[href]"):
        if "nofollow" in _text(node, "rel").lower().split():
            continue
        link = canonical(_text(node, "href"), base)
        if link is not None and link not in seen:
            seen.add(link)
            yield link


def _pictures(tree: LexborHTMLParser, base: str) -> Iterator[Picture]:
    page_license = _license(tree.root, base) if tree.root is not None else None
    seen: set[str] = set()
    for node in tree.css("img"):
        address = _address(node)
        url = canonical(address, base) if address else None
        # a noscript repeats for old browsers what a script loads: the same picture, not another one
        if url is None or (url in seen and _ancestor(node, "noscript") is not None):
            continue
        seen.add(url)
        figure = _ancestor(node, "figure")
        captions, origins = _captions(node, figure)
        own = _license(figure, base) if figure is not None else None
        yield Picture(url, captions, origins, own or page_license)


def _address(node: LexborNode) -> str | None:
    """The best address of one `img`: largest srcset candidate, else lazy attribute, else src."""
    sets = [_text(node, name) for name in (*_LAZY_SETS, "srcset")]
    parent = node.parent
    if parent is not None and parent.tag == "picture":
        for source in parent.css("source"):
            sets += [_text(source, name) for name in (*_LAZY_SETS, "srcset")]
    if (largest := _largest(sets)) is not None:
        return largest
    for name in (*_LAZY, "src"):
        value = _text(node, name)
        if value and not value.lower().startswith(("data:", "blob:", "about:", "javascript:")):
            return value
    return None


def _largest(sets: Sequence[str]) -> str | None:
    """The candidate with the largest width, or density where no widths are given; the first of equals."""
    best: tuple[int, float] = (-1, 0.0)
    chosen = None
    for candidates in sets:
        for url, size, unit in parse_srcset(candidates):
            rank = (1 if unit == "w" else 0, size)
            if rank > best and not url.lower().startswith("data:"):
                best, chosen = rank, url
    return chosen


def parse_srcset(text: str) -> list[tuple[str, float, str]]:
    """(address, size, "w" or "x") per candidate. Commas inside an address are kept, as the standard wants."""
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


def _captions(node: LexborNode, figure: LexborNode | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Captions and where they come from, in order of preference; a text that comes twice is kept once."""
    caption = _own_caption(figure) if figure is not None else None
    found = {
        "alt": _words(_text(node, "alt")),
        "figcaption": _words(caption.text(deep=True, separator="")) if caption is not None else "",
        "title": _words(_text(node, "title")),
    }
    kept: dict[str, str] = {}
    for origin, text in found.items():
        if text and text not in kept.values():
            kept[origin] = text
    return tuple(kept.values()), tuple(kept)


def _own_caption(figure: LexborNode) -> LexborNode | None:
    """A figure's figcaption, not that of a figure inside it."""
    for caption in figure.css("figcaption"):
        if (owner := _ancestor(caption, "figure")) is not None and owner.mem_id == figure.mem_id:
            return caption
    return None


def _license(node: LexborNode, base: str) -> str | None:
    """The first rel=license link below a node."""
    for link in node.css("a[rel][href], link[rel][href]"):
        if "license" in _text(link, "rel").lower().split():
            return canonical(_text(link, "href"), base)
    return None


def _ancestor(node: LexborNode, tag: str) -> LexborNode | None:
    parent = node.parent
    while parent is not None and parent.tag != tag:
        parent = parent.parent
    return parent


def _text(node: LexborNode, attribute: str) -> str:
    return (node.attributes.get(attribute) or "").strip()


def _words(text: str) -> str:
    """White space as a browser shows it."""
    return " ".join(text.split())
