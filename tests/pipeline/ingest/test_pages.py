"""Pages modelled on real sites' markup, with the pairs a person reads off them written by hand."""

from __future__ import annotations

import pytest

from pipeline.ingest.pages import read_page
from pipeline.ingest.sources.base import Picture
from pipeline.ingest.srcset import parse_srcset

URL = "https://site.example/gallery/page.html"

PAGES: dict[str, tuple[str, list[tuple[str, dict[str, str]]]]] = {
    "a plain image": (
        '<img src="cat.jpg" alt="A cat on a wall">',
        [("https://site.example/gallery/cat.jpg", {"alt": "A cat on a wall"})],
    ),
    "alt, figcaption and title, in this order": (
        '<figure><img title="T" alt="A" src="/x.png"><figcaption>A <b>fine</b>\n  boat</figcaption></figure>',
        [("https://site.example/x.png", {"alt": "A", "figcaption": "A fine boat", "title": "T"})],
    ),
    "one text twice is one caption": (
        '<figure><img alt="Boat" title="Boat" src="x.png"><figcaption> Boat </figcaption></figure>',
        [("https://site.example/gallery/x.png", {"alt": "Boat"})],
    ),
    "empty and missing alts": (
        '<img src="a.png" alt=""><img src="b.png" alt="  "><img src="c.png">',
        [(f"https://site.example/gallery/{n}.png", {}) for n in "abc"],
    ),
    "entities and other scripts": (
        '<img src="a.png?x=1&amp;y=2" alt="Tom &amp; J&eacute;r&ocirc;me &#x2014; 猫">',
        [("https://site.example/gallery/a.png?x=1&y=2", {"alt": "Tom & Jérôme — 猫"})],
    ),
    "base href": (
        '<head><base href="//cdn.example/img/"></head><img src="a.png"><img src="/b.png">',
        [("https://cdn.example/img/a.png", {}), ("https://cdn.example/b.png", {})],
    ),
    "srcset by width, largest wins, order does not matter": (
        '<img src="s.jpg" srcset="m.jpg 640w, l.jpg 1280w, s.jpg 320w" sizes="50vw" alt="x">',
        [("https://site.example/gallery/l.jpg", {"alt": "x"})],
    ),
    "srcset by density": (
        '<img src="one.jpg" srcset="one.jpg, two.jpg 2x">', [("https://site.example/gallery/two.jpg", {})],
    ),
    "commas inside addresses, as image services have them": (
        '<img srcset="/i/w_400,h_300/a.jpg 400w,/i/w_800,h_600/a.jpg 800w" src="/i/a.jpg">',
        [("https://site.example/i/w_800,h_600/a.jpg", {})],
    ),
    "picture with sources": (
        '<picture><source type="image/avif" srcset="a-800.avif 800w"><source srcset="a-1600.webp 1600w, a-800.webp '
        '800w"><img src="a.jpg" alt="Bridge"></picture>',
        [("https://site.example/gallery/a-1600.webp", {"alt": "Bridge"})],
    ),
    "lazy loading with a placeholder": (
        '<img class="lazyload" src="data:image/gif;base64,R0lGOD" data-src="/real/1.jpg" alt="One">'
        '<img src="/spacer.gif" data-original="/real/2.jpg" alt="Two">'
        '<img src="data:image/gif;base64,R0lGOD" data-srcset="/real/3-s.jpg 300w, /real/3-l.jpg 900w" alt="Three">',
        [("https://site.example/real/1.jpg", {"alt": "One"}), ("https://site.example/real/2.jpg", {"alt": "Two"}),
         ("https://site.example/real/3-l.jpg", {"alt": "Three"})],
    ),
    "lazy loading with a noscript twin": (
        '<img data-src="/real/1.jpg" alt="One"><noscript><img src="/real/1.jpg" alt="One"></noscript>'
        '<noscript><img src="/only-here.jpg" alt="Two"></noscript>',
        [("https://site.example/real/1.jpg", {"alt": "One"}), ("https://site.example/only-here.jpg", {"alt": "Two"})],
    ),
    "a gallery figure with several images": (
        '<figure class="gallery"><img src="1.jpg" alt="one"><a href="2-big.jpg"><img src="2.jpg"></a>'
        "<figcaption>Harbour at night</figcaption></figure>",
        [("https://site.example/gallery/1.jpg", {"alt": "one", "figcaption": "Harbour at night"}),
         ("https://site.example/gallery/2-big.jpg", {"figcaption": "Harbour at night"})],
    ),
    "nested figures keep their own words": (
        '<figure><figure><img src="1.jpg"><figcaption>inner</figcaption></figure><img src="2.jpg"><figcaption>outer'
        '</figcaption></figure><img src="3.jpg">',
        [("https://site.example/gallery/1.jpg", {"figcaption": "inner"}),
         ("https://site.example/gallery/2.jpg", {"figcaption": "outer"}), ("https://site.example/gallery/3.jpg", {})],
    ),
    "what is no address": (
        '<img alt="nothing"><img src="" alt="e"><img src="data:image/png;base64,AA"><img src="javascript:x()">'
        '<img src="blob:https://site.example/1">', [],
    ),
    "repeats are rows of their own": (
        '<img src="a.png" alt="first"><p><img src="./a.png#top" alt="second">',
        [("https://site.example/gallery/a.png", {"alt": "first"}),
         ("https://site.example/gallery/a.png", {"alt": "second"})],
    ),
    "markup with faults": (
        '<table><td><figure><img src=a.png alt=word"s <figcaption>lost</b><p><img src="b.png" alt="b',
        [("https://site.example/gallery/a.png", {"alt": 'word"s'})],
    ),
}


@pytest.mark.parametrize("name", PAGES)
def test_pairs(name: str) -> None:
    html, expected = PAGES[name]
    page = read_page(URL, html.encode())
    pairs = [(p.url, dict(zip(p.origins, p.captions, strict=True))) for p in page.pictures]
    assert pairs == expected
    assert [list(pair) for _, pair in pairs] == [list(pair) for _, pair in expected]  # order of preference


def test_outer_figcaption_is_not_the_inner_images() -> None:
    html = '<figure><figcaption>outer</figcaption><figure><img src="a.png"></figure></figure>'
    assert read_page(URL, html.encode()).pictures == (Picture("https://site.example/gallery/a.png"),)


@pytest.mark.parametrize(("body", "header"), [
    ("<meta charset='utf-8'><img src=a alt='Zürich — €'>".encode(), ""),
    ("<img src=a alt='Zürich — €'>".encode(), "text/html; charset=UTF-8"),
    ("<img src=a alt='Zürich — €'>".encode(), ""),
    ("<img src=a alt='Zürich — €'>".encode("cp1252"), "text/html; charset=ISO-8859-1"),
    ("<img src=a alt='Zürich — €'>".encode("cp1252"), ""),
    ("<meta http-equiv=content-type content='text/html; charset=windows-1252'><img src=a alt='Zürich — €'>"
     .encode("cp1252"), "text/html"),
    ("\ufeff<img src=a alt='Zürich — €'>".encode(), "text/html; charset=latin1"),
    ("\ufeff<img src=a alt='Zürich — €'>".encode("utf-16-le"), ""),
    ("<meta charset='no-such-thing'><img src=a alt='Zürich — €'>".encode(), ""),
])
def test_character_sets(body: bytes, header: str) -> None:
    assert read_page(URL, body, header).pictures[0].captions == ("Zürich — €",)


def test_links_in_page_order_each_once() -> None:
    html = ('<a href="b.html">b</a><a href="a.html#x">a</a><area href="/c"><a href="b.html">again</a>'
            '<a href="mailto:x">' '<a href="trap" rel="nofollow ugc">t</a><a name="anchor">')
    assert read_page(URL, html.encode()).links == (
        "https://site.example/gallery/b.html", "https://site.example/gallery/a.html", "https://site.example/c",
    )


def test_meta_robots() -> None:
    def page(content: str, name: str = "robots") -> tuple[str | None, int]:
        html = f'<meta name="{name}" content="{content}"><a href="/x">x</a>'
        read = read_page(URL, html.encode(), opt_outs=("noai", "noimageai"), respect_tdm=True)
        return read.opt_out, len(read.links)

    assert page("index, follow") == (None, 1)
    assert page("NOAI, noimageai") == ("meta robots: noai", 1)
    assert page("noimageai", "Robots") == ("meta robots: noimageai", 1)
    assert page("noai", "otherbot") == (None, 1)
    assert page("noai", "gristmill") == ("meta robots: noai", 1)
    assert page("nofollow") == (None, 0)
    assert page("none") == (None, 0)
    assert page("1", "tdm-reservation") == ("meta tdm-reservation: 1", 1)
    assert page("0", "tdm-reservation") == (None, 1)


def test_licence_of_the_page_and_of_the_figure() -> None:
    html = ('<link rel="license" href="https://creativecommons.org/licenses/by/4.0/"><img src="1.png"><figure>'
            '<img src="2.png"><a rel="license noopener" href="https://creativecommons.org/publicdomain/zero/1.0/">CC0'
            "</a></figure>")
    assert [p.license_url for p in read_page(URL, html.encode()).pictures] == [
        "https://creativecommons.org/licenses/by/4.0/", "https://creativecommons.org/publicdomain/zero/1.0/",
    ]


@pytest.mark.parametrize(("text", "expected"), [
    ("a.jpg", [("a.jpg", 1.0, "x")]), ("a.jpg 2x,b.jpg", [("a.jpg", 2.0, "x"), ("b.jpg", 1.0, "x")]),
    ("a.jpg 1.5x , b.jpg 100w 50h", [("a.jpg", 1.5, "x"), ("b.jpg", 100.0, "w")]),
    ("a,b.jpg 100w", [("a,b.jpg", 100.0, "w")]), ("a.jpg, b.jpg 2x", [("a.jpg", 1.0, "x"), ("b.jpg", 2.0, "x")]),
    ("", []), (" , ,", []),
])
def test_srcset(text: str, expected: list[tuple[str, float, str]]) -> None:
    assert parse_srcset(text) == expected


def test_a_huge_srcset_is_read_in_no_time() -> None:
    text = ", ".join(f"/{n}.jpg {n}w" for n in range(1, 50_001))
    [picture] = read_page(URL, f'<img srcset="{text}">'.encode()).pictures
    assert picture.url == "https://site.example/50000.jpg"
