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

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pipeline.checks._wording import repaired, script_share, useful_words
from pipeline.checks.base import Action, Check, CheckSettings, Columns, Verdict, fail_where

Script = Literal[
    "arabic", "armenian", "bengali", "cjk", "cyrillic", "devanagari", "ethiopic", "georgian", "greek", "gujarati",
    "gurmukhi", "hangul", "hebrew", "hiragana", "kannada", "katakana", "khmer", "lao", "latin", "malayalam", "myanmar",
    "sinhala", "tamil", "telugu", "thai", "tibetan",
]
REPEATED = "repeated_caption"

class Caption(Check):
    rank: ClassVar[int] = 90
    reads: ClassVar[tuple[str, ...]] = ("captions", "sha256")
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

    def judge(self, columns: Columns, settings: Settings) -> Sequence[Verdict]:
        words = np.array([best_words(captions, settings) for captions in columns["captions"]], np.float64)
        weak = words < settings.min_words
        spread = repeated(columns["captions"], columns["sha256"], settings)
        return [
            *fail_where(weak, reason="weak_caption", value=words, threshold=settings.min_words),
            *fail_where((spread > 0) & ~weak, reason=REPEATED, value=spread, threshold=settings.repeated_pictures),
        ]


def best_words(captions: Any, settings: Caption.Settings) -> int:
    """Words of the wordiest caption of a row; 0 when all are empty, file names, addresses or stock words."""
    return max((_words(text, settings) for text in _texts(captions)), default=0)


def repeated(captions: NDArray[Any], pictures: NDArray[Any], settings: Caption.Settings) -> NDArray[np.float64]:
    """Per row how many different pictures share its least repeated caption; 0 where that is not too many."""
    held: dict[str, set[bytes]] = defaultdict(set)
    for texts, picture in zip(captions, pictures, strict=True):
        for text in {_same(text) for text in _texts(texts)}:
            if picture is not None:
                held[text].add(picture)
    rows = sum(bool(_texts(texts)) for texts in captions)
    most = max(settings.repeated_pictures, settings.repeated_share * rows)
    spread = [min((len(held[_same(text)]) for text in _texts(texts)), default=0) for texts in captions]
    return np.array([count if count > most else 0 for count in spread], np.float64)


def _texts(captions: Any) -> list[str]:
    texts: Iterable[str | None] = captions if isinstance(captions, (list, tuple, np.ndarray)) else ()
    return [text for text in texts if text]


def _same(text: str) -> str:
    return " ".join(text.casefold().split())


def _words(text: str, settings: Caption.Settings) -> int:
    if settings.scripts and script_share(repaired(text), settings.scripts) < 0.5:
        return 0
    return useful_words(text)


def settings_in(checks: Mapping[str, CheckSettings]) -> Caption.Settings:
    """This check's settings among those of all checks."""
    found = checks["caption"]
    assert isinstance(found, Caption.Settings)
    return found


def is_weak(text: str, settings: Caption.Settings) -> bool:
    """Whether one caption says too little; never when the check is off."""
    return settings.action != "off" and _words(text, settings) < settings.min_words
