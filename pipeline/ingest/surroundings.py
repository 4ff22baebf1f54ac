"""What stands around a page's images and belongs to one of them: captions, licences, the image's noscript twin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from selectolax.lexbor import LexborHTMLParser, LexborNode

from pipeline.ingest.addresses import canonical

REACH = 6
"""Elements from an image upwards, or from a caption, in which the two may meet: a table cell is five from its table."""

NEAR, FIGURE = 4, 32
"""How far up an image's link or noscript may be, and its figure."""

_LONGEST = 4000
"""Characters of a caption; what is longer is an article."""
_CAPTIONS = '[class*="caption" i], .gallerytext'
_LICENCES = ('a[rel][href], link[rel][href], a[href*="creativecommons.org/licenses/"], [itemprop="license"][href], '
             'a[href*="creativecommons.org/publicdomain/"]')
_CREDITS = ("credit", "copyright", "byline", "screen-reader", "sr-only", "visually-hidden")
_INLINE = frozenset({
    "-text", "a", "abbr", "b", "bdi", "bdo", "cite", "code", "em", "font", "i", "mark", "q", "s", "small", "span",
    "strong", "sub", "sup", "time", "u", "wbr",
})
_UNSEEN = frozenset({"script", "style", "template", "noscript", "button"})


class Surroundings:
    """Made once per page, in time linear in its size; asked for each of `images`."""

    def __init__(self, tree: LexborHTMLParser, images: Sequence[LexborNode], base: str) -> None:
        self._base = base
        self._images = Counter(above.mem_id for image in images for above in upwards(image, REACH))
        self._captions: dict[int, LexborNode] = {}
        for caption in tree.css(_CAPTIONS):
            if caption.mem_id not in self._images and caption.tag not in ("img", "table"):
                for above in upwards(caption, REACH):
                    self._captions.setdefault(above.mem_id, caption)
        self._figcaptions: dict[int, LexborNode] = {}
        for caption in tree.css("figcaption"):
            if (figure := ancestor(caption, "figure", FIGURE)) is not None:
                self._figcaptions.setdefault(figure.mem_id, caption)
        self._figure_licences: dict[int, str] = {}
        self.page_license: str | None = None
        for link in tree.css(_LICENCES):
            if (address := self._licence(link)) is None:
                continue
            figure = ancestor(link, "figure", FIGURE)
            if figure is not None:
                self._figure_licences.setdefault(figure.mem_id, address)
            elif self.page_license is None:
                self.page_license = address

    def figcaption(self, figure: LexborNode | None) -> str:
        """A figure's own words, not those of a figure inside it."""
        caption = self._figcaptions.get(figure.mem_id) if figure is not None else None
        return words_shown(caption) if caption is not None else ""

    def license(self, figure: LexborNode | None) -> str | None:
        """The licence given in the figure, else the page's."""
        return (figure and self._figure_licences.get(figure.mem_id)) or self.page_license

    def caption(self, image: LexborNode) -> str:
        """Words in an element called a caption, nearest first, where no other image could be meant."""
        for above in upwards(image, REACH):
            if self._images[above.mem_id] > 1:
                break
            if (caption := self._captions.get(above.mem_id)) is not None:
                return words_shown(caption)
        return ""

    def _licence(self, link: LexborNode) -> str | None:
        href = (link.attributes.get("href") or "").strip()
        named = "license" in (link.attributes.get("rel") or "").lower().split()
        if not named and "itemprop" not in link.attributes and "creativecommons.org/" not in href.lower():
            return None
        return canonical(href, self._base)


def is_badge(image: LexborNode) -> bool:
    """Whether an image only stands for a licence: the picture in a link to it."""
    link = image.parent
    if link is None or link.tag != "a":
        return False
    return ("license" in (link.attributes.get("rel") or "").lower().split()
            or "creativecommons.org/" in (link.attributes.get("href") or "").lower())


def has_twin(image: LexborNode) -> LexborNode | None:
    """For an image in a noscript: the one beside or around it that a script loads, of which it is the stand-in."""
    noscript = ancestor(image, "noscript", NEAR)
    if noscript is None:
        return None
    around = noscript.parent
    if around is not None and around.tag == "amp-img":
        return around
    for beside in (noscript.prev, noscript.next):
        for _ in range(3):  # white space and comments between them
            if beside is None or beside.is_element_node:
                break
            beside = beside.next if beside is noscript.next else beside.prev
        if beside is not None and beside.is_element_node and beside.tag != "noscript":
            twin = beside if beside.tag == "img" else beside.css_first("img") if beside.tag in _HOLDERS else None
            if twin is not None:
                return twin
    return None


_HOLDERS = ("picture", "a", "span")


def words_shown(node: LexborNode) -> str:
    """The text that a reader sees, white space as a browser shows it, without credits and buttons."""
    found: list[str] = []
    length = 0
    for piece in _pieces(node):
        found.append(piece)
        length += len(piece)
        if length > _LONGEST:
            return ""
    return " ".join("".join(found).split())


def _pieces(node: LexborNode) -> Iterator[str]:
    ahead: list[LexborNode | str] = list(reversed(list(node.iter(include_text=True))))
    while ahead:
        each = ahead.pop()
        if isinstance(each, str):
            yield each
        elif each.tag == "-text":
            yield each.text_content or ""
        elif each.tag not in _UNSEEN and not any(word in (each.attributes.get("class") or "") for word in _CREDITS):
            edge = "" if each.tag in _INLINE else " "
            ahead += (edge, *reversed(list(each.iter(include_text=True))), edge)


def ancestor(node: LexborNode, tag: str, reach: int) -> LexborNode | None:
    """The nearest element of that name around a node, at most `reach` elements up."""
    return next((above for above in upwards(node, reach) if above.tag == tag), None)


def upwards(node: LexborNode, most: int) -> Iterator[LexborNode]:
    """A node's parents, nearest first, at most so many."""
    above = node.parent
    for _ in range(most):
        if above is None:
            return
        yield above
        above = above.parent
