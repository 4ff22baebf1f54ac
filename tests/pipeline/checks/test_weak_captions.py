"""411 captions as scrapes have them, labelled by hand, and what of a whole set counts as boilerplate."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.checks import registry
from pipeline.checks._wording import repaired, script_share, stripped, useful_words
from pipeline.checks.base import Verdict
from pipeline.checks.caption import Caption, weak_among

LINES = (Path(__file__).parent / "weak_captions.tsv").read_text(encoding="utf-8").splitlines()
LABELLED = [(text, label == "weak", kind) for text, label, kind in (line.split("\t") for line in LINES)]


def test_the_labelled_set_is_large_and_mixed() -> None:
    assert len({text for text, _, _ in LABELLED}) == len(LABELLED) >= 300
    assert min(Counter(weak for _, weak, _ in LABELLED).values()) >= 150
    assert len({kind for _, weak, kind in LABELLED if weak}) >= 11


def test_weak_captions_are_found_and_good_ones_left() -> None:
    found = {text for text, _, _ in LABELLED if useful_words(text) == 0}
    weak = {text for text, is_it, _ in LABELLED if is_it}
    assert len(found & weak) / len(found) >= 0.95  # precision
    assert len(found & weak) / len(weak) >= 0.90  # recall
    for kind in {kind for _, _, kind in LABELLED}:
        texts = {text for text, _, which in LABELLED if which == kind}
        right = sum((text in found) == (text in weak) for text in texts)
        assert right / len(texts) >= 0.8, kind


def judged(rows: list[list[str]], pictures: list[bytes | None] | None = None, **settings: Any) -> dict[str, Verdict]:
    columns = {"captions": np.empty(len(rows), object), "sha256": np.empty(len(rows), object)}
    columns["captions"][:] = rows
    columns["sha256"][:] = pictures or [str(number).encode() for number in range(len(rows))]
    check, chosen = registry()["caption"], Caption.Settings(**settings)
    return {verdict.reason: verdict for verdict in check.judge(check.find(columns, chosen), chosen)}


def test_a_caption_of_many_pictures_is_boilerplate() -> None:
    rows = [[f"view {number} from the tower"] for number in range(90)]
    rows += [["Our holiday  home"], ["our holiday home"]] * 5
    spread = judged(rows, repeated_pictures=9)["repeated_caption"]
    assert spread.failed.tolist() == [False] * 90 + [True] * 10
    assert spread.value[90:].tolist() == [10.0] * 10
    assert not judged(rows, repeated_pictures=10)["repeated_caption"].failed.any()
    assert not judged(rows, repeated_pictures=9, repeated_share=0.1)["repeated_caption"].failed.any()


def test_copies_of_one_picture_are_no_boilerplate_and_words_beside_it_save_a_row() -> None:
    rows = [["our holiday home"]] * 10
    rows += [["our holiday home", f"room {number} with a blue bed"] for number in range(10)]
    assert not judged(rows[:10], [b"same"] * 10, repeated_pictures=3)["repeated_caption"].failed.any()
    assert not judged(rows[:10], [None] * 10, repeated_pictures=3)["repeated_caption"].failed.any()
    assert judged(rows, repeated_pictures=3)["repeated_caption"].failed.tolist() == [True] * 10 + [False] * 10


def test_a_weak_caption_is_not_called_repeated_too() -> None:
    found = judged([["IMG_0001.jpg"]] * 10, repeated_pictures=3)
    assert found["weak_caption"].failed.all()
    assert not found["repeated_caption"].failed.any()


def test_scripts_are_judged_only_when_asked_for() -> None:
    texts = ["a red barn", "красный сарай", "赤い納屋", "barn (сарай)", "1942"]
    assert weak_among(texts, Caption.Settings()) == {"1942"}
    latin = Caption.Settings(scripts=("latin",))
    assert weak_among(texts, latin) == set(texts[1:])
    japanese = Caption.Settings(scripts=("cjk", "hiragana", "katakana"))
    assert weak_among(texts, japanese) == {*texts[:2], *texts[3:]}
    assert script_share("ab вг", {"latin"}) == 0.5
    assert script_share("ＡＢ", {"latin"}) == 1.0


@pytest.mark.parametrize(("text", "reads"), [
    ("Fish &amp;amp; chips", "Fish & chips"), ("<b>Two</b>&nbsp;boats", "Two boats"), ("{{ alt }} a boat", "a boat"),
    ("KÃ¶lner Dom", "Kölner Dom"), ("3 < 4 boats", "3 < 4 boats"), ("Ângela e São João", "Ângela e São João"),
    ("L’été à Paris", "L’été à Paris"),
])  # fmt: skip
def test_repairs(text: str, reads: str) -> None:
    assert repaired(text) == reads
    assert repaired(reads) == reads


@pytest.mark.parametrize(("text", "rest"), [
    ("Red barn | Stock Photo 123456", "Red barn"), ("Cells - Download Scientific Diagram", "Cells"),
    ("Image result for red barn", "red barn"), ("Stock Image", ""), ("Images of a barn", "Images of a barn"),
    ("A shop in stock", "A shop in stock"),
])  # fmt: skip
def test_what_stock_sites_add_is_taken_off(text: str, rest: str) -> None:
    assert stripped(text) == rest


def test_rules_end_on_long_and_odd_captions() -> None:
    for text in ("a" * 50_000, "a b " * 9_000, "<" * 20_000, "&" * 20_000, "buy " * 10_000, "a.b" * 10_000,
                 "{{" * 5_000, "[a" * 5_000, "# " * 9_000):
        assert useful_words(text) >= 0
