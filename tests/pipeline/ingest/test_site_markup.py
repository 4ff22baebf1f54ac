"""What a person reads off a page of a well-known kind is what the reader finds, and pages made to hurt do not."""

from __future__ import annotations

import pytest

from pipeline.ingest.charsets import decode
from pipeline.ingest.nesting import DEEPEST, FEW, shallow
from pipeline.ingest.pages import MOST_LINKS, read_page
from tests.pipeline.ingest.site_markup import PAGES


@pytest.mark.parametrize("name", PAGES)
def test_pairs(name: str) -> None:
    url, body, kind, expected = PAGES[name]
    found = [(picture.url, dict(zip(picture.origins, picture.captions, strict=True)), picture.license_url)
             for picture in read_page(url, body, kind).pictures]
    assert found == expected


def test_the_licence_of_one_figure_is_not_the_page_s() -> None:
    html = (b'<figure><img src=1><a rel=license href="http://h/mine">x</a></figure><img src=2>'
            b'<figure><img src=3></figure>')
    assert [picture.license_url for picture in read_page("http://h/", html).pictures] == ["http://h/mine", None, None]


def test_a_caption_that_could_be_of_several_pictures_is_of_none() -> None:
    html = b'<div><img src=1><img src=2><p class=caption>which?</p></div>'
    html += b'<div><img src=3><p class=Caption>this</p></div>'
    assert [picture.captions for picture in read_page("http://h/", html).pictures] == [(), (), ("this",)]


def test_canonical_link_and_meta_refresh() -> None:
    page = read_page("http://h/a?utm=1",
        b'<link rel="Canonical" href="/a"><meta http-equiv=Refresh content="0; URL=\'/b\'">')
    assert (page.canonical, page.links) == ("http://h/a", ("http://h/b",))


@pytest.mark.parametrize(("label", "text"), [
    ("gb2312", "\u9555"), ("shift_jis", "\u2460"), ("x-sjis", "\u732b"), ("euc-kr", "\ub620"), ("iso-8859-9", "\u011f"),
    ("koi8-r", "\u043a"), ("big5", "\u8c93"), ("euc-jp", "\u732b"), ("windows-1256", "\u0642"),
])
def test_labels_as_browsers_read_them(label: str, text: str) -> None:
    python = {"gb2312": "gbk", "shift_jis": "cp932", "x-sjis": "cp932", "euc-kr": "cp949", "iso-8859-9": "cp1254"}
    body = text.encode(python.get(label, label))
    assert decode(b"<meta charset=" + label.encode() + b">" + body, "").endswith(text)
    assert decode(body, f"text/html; charset={label.upper()}") == text


@pytest.mark.parametrize("label", ["utf-7", "punycode", "unicode_escape", "idna", "zlib", "hex", "rot13", "undefined",
    "mbcs"])
def test_labels_that_are_no_web_encodings_are_passed_over(label: str) -> None:
    assert decode("\u00e9+AGE-\\x41".encode(), f"text/html; charset={label}") == "\u00e9+AGE-\\x41"


def test_what_nests_beyond_reason_is_flat() -> None:
    few = "<div>" * 1000 + "<img src=a>"
    assert shallow(few) is few
    html = "<div>" * FEW + '<ul><li><a href="/x"><img src=a alt="deep"></a></ul>'
    html += "</div>" * FEW + "<div><img src=b></div>"
    flat = shallow(html)
    assert flat.count("<div") == flat.count("</div") == DEEPEST + 1
    page = read_page("http://h/", html.encode())
    assert [picture.url for picture in page.pictures] == ["http://h/a", "http://h/b"]
    assert page.links == ("http://h/x",)


def test_links_are_taken_up_to_a_limit() -> None:
    html = "".join(f"<a href=/{n}>x</a>" for n in range(MOST_LINKS + 5))
    assert read_page("http://h/", html.encode()).links[-1] == f"http://h/{MOST_LINKS - 1}"


MANY = 6_000
HEAVY = {
    # a reader that looks at all of a page for each of its elements would take hours
    "divs": ("<div>" * 9 * MANY + "<img src=a>", 1), "lists": ("<ul><li>" * 5 * MANY + "<img src=a>", 1),
    "images in one block": ("<div>" + "<img src=a>" * MANY + "</div>", MANY),
    "images ever deeper": ("<div><img src=a>" * MANY, MANY),
    "images in one figure": ("<figure>" + "<img src=a>" * MANY + "<figcaption>x</figcaption></figure>", MANY),
    "figcaptions": ("<figure><img src=a>" + "<figcaption>x" * MANY, 1),
    "captions": ("<div>" + "<p class=caption>x</p>" * MANY + "<img src=a></div>", 1),
    "sources": ("<picture>" + "<source srcset='a 1w'>" * MANY + "<img src=b></picture>", 1),
    "images of one picture": ("<picture>"
                              + "<source srcset='a 1w'>" * MANY + "<img src=a>" * MANY + "</picture>", MANY),
    "candidates": ("<img srcset='" + ", ".join(f"/{w}.jpg {w}w" for w in range(MANY)) + "'>", 1),
    "noscripts": ("<noscript><img src=a></noscript>" * MANY, 1), "comments": ("<img src=a>" + "<!--" * MANY, 1),
    "unfinished tags": ("<img src=a>" + "<a " * MANY, 1), "figures": ("<figure><img src=a>" * MANY, MANY),
    "spans": ("<figure><img src=a><figcaption>" + "<span>" * MANY, 1),
    "links around": ("<a href=b.jpg>" * MANY + "<img src=a>", 1),
    "metas": ("<meta name=robots>" * MANY + "<img src=a>", 1),
}


@pytest.mark.parametrize("name", HEAVY)
def test_pages_made_to_hurt_are_read(name: str) -> None:
    html, pictures = HEAVY[name]
    assert len(read_page("http://h/", html.encode()).pictures) == pictures
