"""Pages nested deeper than browsers let them be: flattened before they are parsed.

HTML's rules make a parser look through all open elements at each block: time grows with the square of the depth, and a
page of a few megabytes could keep a machine busy for hours.
"""

from __future__ import annotations

import re

DEEPEST = 512
"""Elements inside one another, as in browsers."""

FEW = 10_000
"""Tags that cannot nest badly enough to matter; almost all pages have fewer."""

_TAG = re.compile(r"<(/?)([a-zA-Z][\w-]*)")
_FLAT = frozenset({
    # without content, or ended by the next of their kind
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr", "a", "p",
    "li", "td", "th", "tr", "dt", "dd", "option", "html", "head", "body", "amp-img", "script", "style",
    "path",
})
_NOTHING = "wbr"
"""An element that holds nothing: what a tag too deep is made to be."""


def shallow(html: str) -> str:
    """The page itself, or one whose elements beyond DEEPEST hold nothing; links and pictures in them stay."""
    if html.count("<") <= FEW:
        return html
    kept: list[str] = []
    depth = taken = 0
    for tag in _TAG.finditer(html):
        if tag[2].lower() in _FLAT:
            continue
        depth = max(depth - 1, 0) if tag[1] else depth + 1
        if depth > DEEPEST or (tag[1] and depth == DEEPEST):
            kept += (html[taken:tag.start(2)], _NOTHING)
            taken = tag.end(2)
    return "".join((*kept, html[taken:])) if kept else html
