"""HTML → the pictures a page shows, the captions it gives them, and where it links to.

Follows the HTML standard where it matters: `base href`, `srcset`, text content of `figcaption`. Of the addresses
that an image names, the one of its largest picture counts (`srcset.py`). Pictures that are only declared (Open Graph,
JSON-LD) follow. Left out are tracking pixels (declared to be at most 2 by 2), badges of licences, and the stand-ins in
`noscript` of what a script loads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from selectolax.lexbor import LexborHTMLParser, LexborNode

from pipeline.ingest.addresses import canonical
from pipeline.ingest.charsets import decode
from pipeline.ingest.declared import declared_pictures
from pipeline.ingest.nesting import shallow
from pipeline.ingest.politeness import BOT, opt_out, tdm_reserved
from pipeline.ingest.sources.base import Page, Picture
from pipeline.ingest.srcset import best_address, is_tracker
from pipeline.ingest.surroundings import FIGURE, NEAR, Surroundings, ancestor, has_twin, is_badge

MOST_LINKS = 10_000
"""Links taken from one page."""

_REFRESH = re.compile(r"""^\s*[\d.]+\s*[;,]\s*(?:url\s*=\s*)?["']?([^"']+)""", re.IGNORECASE)


def read_page(
    url: str, body: bytes, content_type: str = "", *, opt_outs: Sequence[str] = (), respect_tdm: bool = False
) -> Page:
    """Read one page whose address after redirects is `url`. Bad markup never raises; it is read as browsers do."""
    tree = LexborHTMLParser(shallow(decode(body, content_type)))
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
    proper = tree.css_first('link[rel~="canonical" i][href]')
    return Page(
        url=url, outcome="ok", pictures=tuple(shown),
        links=tuple(islice(_links(tree, base), MOST_LINKS)) if follow else (), opt_out=refused,
        canonical=canonical(_text(proper, "href"), base) if proper is not None else None,
    )


def _base(tree: LexborHTMLParser, url: str) -> str:
    node = tree.css_first("base[href]")
    return (node and canonical(_text(node, "href"), url)) or url


def _links(tree: LexborHTMLParser, base: str) -> Iterator[str]:
    """Canonical addresses of links in page order, each once; `rel=nofollow` is obeyed, a meta refresh is a link."""
    seen: set[str] = set()
    for node in tree.css('meta[http-equiv="refresh" i][content], a[href], area[href]'):
        if "nofollow" in _text(node, "rel").lower().split():
            continue
        if node.tag == "meta":
            refresh = _REFRESH.match(_text(node, "content"))
            link = canonical(refresh.group(1), base) if refresh else None
        else:
            link = canonical(_text(node, "href"), base)
        if link is not None and link not in seen:
            seen.add(link)
            yield link


def _pictures(tree: LexborHTMLParser, base: str) -> Iterator[Picture]:
    images = [node for node in tree.css("img, amp-img, amp-anim")
              if not is_tracker(node) and not is_badge(node) and not _stands_in(node)]
    around = Surroundings(tree, images, base)
    seen: set[str] = set()
    for node in images:
        address = best_address(node)
        url = canonical(address, base) if address else None
        # a noscript repeats for old browsers what a script loads: the same picture, not another one
        if url is None or (url in seen and ancestor(node, "noscript", NEAR) is not None):
            continue
        seen.add(url)
        figure = ancestor(node, "figure", FIGURE)
        captions, origins = _captions(node, figure, around)
        yield Picture(url, captions, origins, around.license(figure))


def _stands_in(node: LexborNode) -> bool:
    twin = has_twin(node)
    return twin is not None and best_address(twin) is not None


def _captions(
    node: LexborNode, figure: LexborNode | None, around: Surroundings
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Captions and where they come from, in order of preference; a text that comes twice is kept once."""
    attributes = node.attributes
    alt, title, label = (_words(attributes.get(name) or "") for name in ("alt", "title", "aria-label"))
    link = ancestor(node, "a", NEAR) if not title else None
    found = {
        "alt": alt,
        "figcaption": around.figcaption(figure),
        "caption": around.caption(node),
        "title": title or (_words(_text(link, "title")) if link is not None else ""),
        "aria-label": label,
    }
    kept: dict[str, str] = {}
    for origin, text in found.items():
        if text and text not in kept.values():
            kept[origin] = text
    return tuple(kept.values()), tuple(kept)


def _text(node: LexborNode, attribute: str) -> str:
    return (node.attributes.get(attribute) or "").strip()


def _words(text: str) -> str:
    """White space as a browser shows it."""
    return " ".join(text.split())
