"""og:image and JSON-LD: pairs written by hand from what ogp.me and schema.org say."""

from __future__ import annotations

import json

import pytest

from pipeline.ingest.declared import MOST
from pipeline.ingest.pages import read_page
from pipeline.ingest.sources.base import Picture

URL = "https://h/post/1"


def pictures(html: str) -> list[Picture]:
    return list(read_page(URL, html.encode()).pictures)


def test_open_graph_as_on_ogp_me() -> None:
    html = '''<meta property="og:image" content="http://h/ogp.jpg"><meta property="og:image:secure_url"
        content="https://s.h/ogp.jpg"><meta property="og:image:type" content="image/jpeg">
        <meta property="og:image:alt" content="A shiny  red apple with a bite taken out">
        <meta property="og:image" content="/second.png"><meta property="og:image:width" content="400">
        <meta property="og:image" content="data:image/png;base64,AAAA"><meta property="og:image" content="">'''
    assert pictures(html) == [
        Picture("https://s.h/ogp.jpg", ("A shiny red apple with a bite taken out",), ("og:image:alt",)),
        Picture("https://h/second.png")]


def test_og_image_url_is_the_same_picture_said_again() -> None:
    html = ('<meta property="og:image" content="/a.png"><meta property="og:image:url" content="/a.png">'
            '<meta property="og:image:alt" content="a">')
    assert pictures(html) == [Picture("https://h/a.png", ("a",), ("og:image:alt",))]


def test_what_the_page_shows_comes_first_and_once() -> None:
    html = ('<meta property="og:image" content="/big.jpg"><meta property="og:image" content="/a.png">'
            '<img src="/a.png" alt="shown">')
    assert pictures(html) == [Picture("https://h/a.png", ("shown",), ("alt",)), Picture("https://h/big.jpg")]


def test_image_objects_wherever_they_stand() -> None:
    value = {"@context": "https://schema.org", "@graph": [
        {"@type": "Article", "image": {"@type": "ImageObject", "url": "/lead.jpg", "caption": "The  lead"}},
        {"@type": ["ImageObject", "Thing"], "contentUrl": "http://cdn/full.jpg", "url": "/page-of-it", "name": "Full",
         "description": "All of it", "caption": "All of it",
         "license": {"@id": "https://creativecommons.org/licenses/by/4.0/"}},
        {"@type": "ImageObject"}, {"@type": "VideoObject", "contentUrl": "/v.mp4"}]}
    html = f'<script type="application/ld+json">{json.dumps(value)}</script>'
    assert pictures(html) == [
        Picture("https://h/lead.jpg", ("The lead",), ("json-ld:caption",)),
        Picture("http://cdn/full.jpg", ("All of it", "Full"), ("json-ld:caption", "json-ld:name"),
                "https://creativecommons.org/licenses/by/4.0/")]


def test_what_is_no_json_says_nothing() -> None:
    for text in ("{", "[" * 100_000,
                 '{"@type":' + "[" * 600 + "]" * 600 + "}",
                 '{"@type": 7}', '{"@type": {"@type": "ImageObject"}}', '"x"', ""):
        assert pictures(f'<script type="application/ld+json">{text}</script><img src=a.png>') == [
            Picture("https://h/post/a.png")]


@pytest.mark.parametrize(("given", "expected"), [
    ("https://creativecommons.org/licenses/by/4.0/", "https://creativecommons.org/licenses/by/4.0/"),
    ("//h.org/terms", "https://h.org/terms"), ("/terms", "https://h/terms"), ("../terms.html", "https://h/terms.html"),
    ("creativecommons.org/licenses/by-sa/4.0/", "https://creativecommons.org/licenses/by-sa/4.0/"),
    ("CC BY 4.0", None), ("CC0", None), ("All rights reserved", None), ("https://h/a b, all rights reserved", None),
    ("", None), ("ftp://h/terms", None), ("(c) https://h/terms", None), ("https://", None), (7, None),
    (["Public domain", "https://h/terms"], "https://h/terms"),
    ({"@type": "CreativeWork", "@id": "https://h/terms"}, "https://h/terms"),
    ({"@type": "CreativeWork", "name": "MIT", "url": "https://h/terms"}, "https://h/terms"),
])
def test_only_addresses_are_licence_links(given: object, expected: str | None) -> None:
    value = {"@type": "ImageObject", "contentUrl": "/a.png", "license": given}
    [picture] = pictures(f'<script type="application/ld+json">{json.dumps(value)}</script>')
    assert picture.license_url == expected


def test_the_limit_of_nodes_holds_for_the_page() -> None:
    """Each script is a list of an object with two texts: four nodes."""
    script = '<script type="application/ld+json">[{{"@type": "ImageObject", "url": "/{}.png"}}]</script>'
    found = pictures("".join(script.format(n) for n in range(MOST)))
    assert [picture.url for picture in found] == [f"https://h/{n}.png" for n in range(MOST // 4)]
