"""Counting the words of many captions at once gives what counting them one by one gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.checks import _screen, _wording
from pipeline.checks._screen import words_of
from pipeline.checks._wording import useful_words

LINES = (Path(__file__).parent / "weak_captions.tsv").read_text(encoding="utf-8").splitlines()
LABELLED = [line.split("\t")[0] for line in LINES]
PIECES = (*sorted(_wording._NOISE | _wording._GLUE | _wording._CALENDAR), *sorted(_wording._PAGE), *(
    "Red", "barn", "église", "Hütte", "Дом", "ΣΠΊΤΙ", "a", "7", "2021", "12-34", "IMG_2231", "DSC00042.NEF", "photo by",
    "©", "(c) Ann Lee", "Courtesy of", "John Smith", "getty images", "| Stock Photo", "- Alamy", "iſtock", "İstock",
    "buy", "cheap online", "free shipping", "best price", "kaufen", "SKU:", "ref no. 7731", "A-4471", "@ann", "#tag",
    "a@b.de", "www.x.de", "shop.example.com/a", "http://a.b/c", "x.jpg", ". jpg", "&amp;", "<b>", "[img]", "{{alt}}",
    "100 % off", "Ã©", "â€œ", "asdf", "aaaa", "-", "|", "…", "“", "picture of", "image results for", "Bilder zu",
    "search result for", "家", "ねこ", "\t", "\n", "\u00a0", "  ", "²", "½", "é", "_", "ǅ", "K", "www.",
    "mailto:", "lorem  ipsum", "WhatsApp Image", "v2", "screen shot",
    "sans titre 3", "№ 12345", "id 100", "isbn 978-3"))
one_piece = st.one_of(st.sampled_from(PIECES), st.sampled_from(LABELLED), st.text(max_size=6))
texts = st.tuples(st.sampled_from([" ", "", "  "]), st.lists(one_piece, max_size=6)).map(
    lambda both: both[0].join(both[1]))


@settings(max_examples=1500, deadline=None)
@given(st.lists(texts, max_size=12))
def test_any_captions(captions: list[str]) -> None:
    assert words_of(captions).tolist() == [useful_words(text) for text in captions]


def test_labelled_captions_and_every_pair_of_pieces() -> None:
    pairs = [f"{one} {other}" for one in PIECES for other in PIECES]
    some = [pairs[number] for number in np.random.default_rng(0).permutation(len(pairs))[:20_000]]
    captions = [*LABELLED, *map(str.upper, LABELLED), *(f"{text} - seen" for text in LABELLED), *some, "", " ",
                "a" * 2000, "red barn " * 200]
    assert words_of(captions).tolist() == [useful_words(text) for text in captions]


def test_most_good_captions_are_counted_at_once() -> None:
    """Or the screen would be in vain: of English ones nearly all pass it."""
    scenes = [f"{what} {where} with a {colour} roof, seen in the late light"
              for what in ("A barn", "Two houses", "my hut") for where in ("by the sea", "in Bergen", "at 20 m")
              for colour in ("red", "blue")]
    counts = np.asarray(_screen.plainly(scenes))
    assert (counts > 0).mean() > 0.95
