"""The website's HTML: an index, albums of gallery pages, several ways to write a picture's address."""

from __future__ import annotations

import html
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from .plan import FORBIDDEN, Item

PER_PAGE = 24
PAGES_PER_ALBUM = 8
PAGE_DELAY, PICTURE_DELAY = 3.0, 2.0  # seconds
STYLES = ("relative", "base", "rooted", "srcset")
OPT_OUT_DIRECTIVES = ("noai", "noimageai", "noai, noimageai", "NoAI", "noarchive, noai")
OTHER_DIRECTIVES = ("noarchive", "max-image-preview:large", "otherbot: noai")

ROBOTS_TXT = f"""# the longer rule wins (RFC 9309, section 2.2.2)
User-agent: *
Disallow: /{FORBIDDEN}/
Allow: /{FORBIDDEN}/open/
"""

CSS = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:76rem;margin:2rem auto;padding:0 1rem;color:#222;"
    "background:#faf9f7}main{display:grid;grid-template-columns:repeat(auto-fill,minmax(13rem,1fr));gap:1.2rem}"
    "figure{margin:0}img{width:100%;height:11rem;object-fit:contain;background:#eee;border-radius:.4rem}"
    "figcaption{font-size:.85rem;color:#555}nav a{margin-right:1rem}"
)


@dataclass
class Page:
    """One page to write: where, what it shows, how it writes addresses, its robots meta tag."""

    path: str
    title: str
    style: str = "relative"
    items: list[Item] = field(default_factory=list)
    robots: str | None = None


@dataclass
class Pages:
    """All pages (path → HTML), what the server does specially, and small variants to write (path → item)."""

    texts: dict[str, str]
    delays: dict[str, float]
    headers: dict[str, dict[str, str]]
    statuses: dict[str, int]
    variants: dict[str, Item]


def lay_out(seed: int, items: Sequence[Item]) -> Pages:
    """Spread the items over pages and write the HTML. Pure: same seed and items, same pages."""
    rng = np.random.default_rng([seed, 3])
    shuffled = [items[int(at)] for at in rng.permutation(len(items))]
    result = Pages({}, {}, {}, {}, {})
    apart: dict[str, list[Item]] = {"opt_out": [], "other": [], "slow": []}
    gallery: list[Item] = []
    for item in shuffled:
        if item.fault == "opt_out_page":
            apart["opt_out"].append(item)
        elif item.lookalike == "other_directive" and item.index % 2:
            apart["other"].append(item)
        elif item.lookalike == "slow" and item.index % 3:
            apart["slow"].append(item)
        else:
            gallery.append(item)
            _special(rng, item, result)
    albums = _albums(gallery)
    for name, title, directives in (
        ("opt_out", "Members' gallery", OPT_OUT_DIRECTIVES),
        ("other", "Fresh arrivals", OTHER_DIRECTIVES[:2]),
    ):
        pages = _paged(apart[name], f"/{name.replace('_', '-')}", title, per_page=12)
        for number, page in enumerate(pages):
            page.robots = directives[number % len(directives)]
        albums.append(pages)
    slow = Page("/slow/1.html", "A slow page", items=apart["slow"])
    result.delays[slow.path] = PAGE_DELAY
    albums.append([slow])
    for pages in albums:
        for number, page in enumerate(pages):
            result.texts[page.path] = _page_html(page, pages, number, result)
    result.texts["/index.html"] = _index_html(albums)
    result.texts[f"/{FORBIDDEN}/index.html"] = _document("Private", "<p>Nothing for robots here.</p>", "/")
    return result


def _special(rng: np.random.Generator, item: Item, result: Pages) -> None:
    """Note what the server must do for one picture on a gallery page."""
    if item.fault == "opt_out_header":
        directive = str(rng.choice(OPT_OUT_DIRECTIVES))
        result.headers[item.path] = {"X-Robots-Tag": directive}
    elif item.lookalike == "other_directive":
        result.headers[item.path] = {"X-Robots-Tag": str(rng.choice(OTHER_DIRECTIVES))}
    elif item.lookalike == "slow":
        result.delays[item.path] = PICTURE_DELAY
    elif item.fault == "not_found":
        result.statuses[item.path] = int(item.strength)


def _paged(items: Sequence[Item], folder: str, title: str, per_page: int = PER_PAGE) -> list[Page]:
    starts = range(0, len(items), per_page)
    return [
        Page(f"{folder}/{number}.html", f"{title}, page {number}", items=list(items[start : start + per_page]))
        for number, start in enumerate(starts, 1)
    ]


def _albums(items: Sequence[Item]) -> list[list[Page]]:
    size = PER_PAGE * PAGES_PER_ALBUM
    albums = []
    for number, start in enumerate(range(0, len(items), size), 1):
        pages = _paged(items[start : start + size], f"/album-{number:02d}", f"Album {number}")
        for at, page in enumerate(pages):
            page.style = STYLES[(number + at) % len(STYLES)]
        albums.append(pages)
    return albums


def _page_html(page: Page, siblings: Sequence[Page], number: int, result: Pages) -> str:
    base = "/pictures/" if page.style == "base" else page.path
    figures = "\n".join(_figure(item, page, base, result) for item in page.items)
    links = [("Index", "/index.html")]
    if number > 0:
        links.append(("Previous", siblings[number - 1].path))
    if number + 1 < len(siblings):
        links.append(("Next", siblings[number + 1].path))
    nav = "".join(f'<a href="{_address(path, base)}">{name}</a>' for name, path in links)
    head = f'<base href="{base}">' if page.style == "base" else ""
    if page.robots is not None:
        head += f'<meta name="{"robots" if number % 2 else "ROBOTS"}" content="{page.robots}">'
    return _document(page.title, f"<nav>{nav}</nav>\n<main>\n{figures}\n</main>", base, head)


def _figure(item: Item, page: Page, base: str, result: Pages) -> str:
    source = item.path if page.style == "rooted" else _address(item.path, base)
    attributes = f'src="{source}"'
    # A browser picks the largest candidate that it needs; the small one is the same picture and no row of its own.
    if page.style == "srcset" and item.fault is None and item.index % 4 == 0:
        small = item.path.replace(".", "-small.")
        result.variants[small] = item
        width = item.scene.width
        candidates = f"{_address(small, base)} {width // 2}w, {source} {width}w"
        attributes = f'srcset="{candidates}" {attributes}'
    if item.alt is not None:
        attributes += f' alt="{html.escape(item.alt)}"'
    elif item.index % 2:
        attributes += ' alt=""'
    if item.figcaption is None:
        return f"<figure><img {attributes}></figure>"
    words = html.escape(item.figcaption)
    if item.index % 9 == 0:
        first, _, rest = words.partition(" ")
        words = f"{first} <em>{rest}</em>"
    return f"<figure><img {attributes}>\n  <figcaption>{words}</figcaption></figure>"


def _address(path: str, base: str) -> str:
    """`path` as seen from `base`: relative, as a person would link within a site."""
    return posixpath.relpath(path, posixpath.dirname(base) if not base.endswith("/") else base.rstrip("/") or "/")


def _index_html(albums: Sequence[Sequence[Page]]) -> str:
    entries = "\n".join(
        f'<li><a href="{pages[0].path.lstrip("/")}">{html.escape(pages[0].title.split(",")[0])}</a></li>'
        for pages in albums
        if pages
    )
    private = f'<li><a href="{FORBIDDEN}/index.html">Private</a></li>'
    return _document("Shapes and colours", f"<ul>\n{entries}\n{private}\n</ul>", "/")


def _document(title: str, body: str, base: str, head: str = "") -> str:
    rights = '<footer><a rel="license" href="https://creativecommons.org/publicdomain/zero/1.0/">CC0</a></footer>'
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"{head}<style>{CSS}</style></head>\n<body><h1>{html.escape(title)}</h1>\n{body}\n{rights}</body></html>\n"
    )
