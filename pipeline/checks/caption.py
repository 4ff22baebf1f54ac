"""Caption: words that say nothing of the picture: none at all, a file name, an address, a stock word, a shop's phrases.

Weak means that *no* caption of the row has any words to offer. Only flagged by default: the picture is good, and a
captioner can write better words for it. Weak are names that cameras and programs give (IMG_2231.jpg, P1000345,
Screenshot 2021-03-05), addresses, hashtags alone, page and template remains ("click to enlarge", {{alt}}), credits,
dates, sales talk ("buy cheap … online free shipping"); see `_wording.py`. Words beside them count ("Red barn | Stock
Photo 123"), and captions stay as they were found. Of 411 captions in two dozen languages, written and labelled by hand
beside these rules, weak ones are found with precision above 0.95 and recall above 0.90; the tests hold it to that.
Boilerplate is also what many different pictures of a set share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pipeline.checks._screen import words_of
from pipeline.checks._wording import repaired, script_share
from pipeline.checks.base import Action, Check, CheckSettings, Columns, Verdict, fail_where

Script = Literal[
    "arabic", "armenian", "bengali", "cjk", "cyrillic", "devanagari", "ethiopic", "georgian", "greek", "gujarati",
    "gurmukhi", "hangul", "hebrew", "hiragana", "kannada", "katakana", "khmer", "lao", "latin", "malayalam", "myanmar",
    "sinhala", "tamil", "telugu", "thai", "tibetan",
]
REPEATED = "repeated_caption"

class Caption(Check):
    rank: ClassVar[int] = 90
    version: ClassVar[int] = 2
    found_in: ClassVar[tuple[str, ...]] = ("captions", "sha256")
    found_by: ClassVar[tuple[str, ...]] = ("scripts",)
    findings: ClassVar[dict[str, str]] = {
        "caption_words": "words of the row's wordiest caption that speak of a picture",
        "caption_spread": "different pictures of which the row's least repeated caption is said; null without captions",
    }
    reasons: ClassVar[dict[str, str]] = {
        "weak_caption": "No caption of the picture says anything of it: none, a file name, an address, a stock "
                        "word, sales talk. Set a captioner in [caption], or filter.caption.action = \"drop\" to lose "
                        "the row.",
        REPEATED: "All that is said of the picture is said of many others in the set as well: the site's "
                  "wording, not the picture's. Set a captioner in [caption], or raise "
                  "filter.caption.repeated_pictures.",
    }

    class Settings(CheckSettings):
        action: Action = Field(
            "flag", description="drop: remove the row; flag: only note it; off: do not judge"
        )
        min_words: int = Field(1, ge=0, description="words of two or more letters that the best caption must have")
        scripts: tuple[Script, ...] = Field(
            (), description="captions mostly in other scripts say nothing to the model to be trained; empty: all are "
            "welcome. Scripts only: English and French are both latin"
        )
        repeated_pictures: int = Field(
            50, ge=1, description="a caption on more different pictures than this is boilerplate, if also more than "
            "repeated_share have it"
        )
        repeated_share: float = Field(0.01, ge=0, le=1, description="share of the rows with captions, 0..1; 1: never")

    def find(self, columns: Columns, settings: Settings) -> Columns:
        rows, texts = _flat(columns["captions"])
        different = list(dict.fromkeys(texts))
        useful = dict(zip(different, _words(different, settings).tolist(), strict=True))
        words = np.zeros(len(columns["captions"]))
        np.maximum.at(words, rows, np.array([useful[text] for text in texts], np.float64))
        return {"caption_words": words, "caption_spread": _spread(rows, texts, columns["sha256"])}

    def judge(self, columns: Columns, settings: Settings) -> Sequence[Verdict]:
        words, spread = columns["caption_words"], columns["caption_spread"]
        weak = words < settings.min_words
        most = max(settings.repeated_pictures, settings.repeated_share * np.count_nonzero(~np.isnan(spread)))
        return [
            *fail_where(weak, reason="weak_caption", value=words, threshold=settings.min_words),
            *fail_where((spread > most) & ~weak, reason=REPEATED, value=spread, threshold=settings.repeated_pictures),
        ]


def _flat(captions: NDArray[Any]) -> tuple[NDArray[np.int64], list[str]]:
    """All captions that are not empty, one after another, and the row of each."""
    rows, texts = list[int](), list[str]()
    for row, said in enumerate(captions):
        if said is not None:
            some = [text for text in said if text]
            texts += some
            rows += [row] * len(some)
    return np.array(rows, np.int64), texts


def _spread(rows: NDArray[np.int64], texts: list[str], pictures: NDArray[Any]) -> NDArray[np.float64]:
    """Per row how many different pictures share its least repeated caption; NaN for rows without captions. Case and
    spaces make no difference."""
    numbers: dict[str, int] = {}
    of_text = {text: numbers.setdefault(_same(text), len(numbers)) for text in dict.fromkeys(texts)}
    said = np.array([of_text[text] for text in texts], np.int64)
    known: dict[bytes, int] = {}
    shown = np.array([-1 if each is None else known.setdefault(each, len(known)) for each in pictures], np.int64)[rows]
    pairs = np.unique((said * len(pictures) + shown)[shown >= 0])
    held = np.bincount(pairs // max(1, len(pictures)), minlength=len(numbers))
    spread = np.full(len(pictures), np.inf)
    np.minimum.at(spread, rows, held[said].astype(np.float64))
    spread[np.isinf(spread)] = np.nan
    return spread


def _same(text: str) -> str:
    return " ".join(text.casefold().split())


def _words(texts: Sequence[str], settings: Caption.Settings) -> NDArray[np.int64]:
    words = words_of(texts)
    if settings.scripts:
        words[[script_share(repaired(text), settings.scripts) < 0.5 for text in texts]] = 0
    return words


def settings_in(checks: Mapping[str, CheckSettings]) -> Caption.Settings:
    """This check's settings among those of all checks."""
    found = checks["caption"]
    assert isinstance(found, Caption.Settings)
    return found


def weak_among(texts: Iterable[str], settings: Caption.Settings) -> frozenset[str]:
    """Those of the captions that say too little, each by itself; none when the check is off."""
    if settings.action == "off":
        return frozenset()
    different = list(dict.fromkeys(texts))
    weak = _words(different, settings) < settings.min_words
    return frozenset(different[place] for place in np.flatnonzero(weak))
