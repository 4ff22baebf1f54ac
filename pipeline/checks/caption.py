"""Caption: words that say nothing of the picture: none at all, a file name, a web address.

Weak means that *no* caption of the row has any words to offer. Only flagged by default: the picture is good,
and a captioner can write better words for it. A caption counts as a file name when it ends like an image file,
or is one word that mixes letters with three or more digits or consists of digits and separators
(IMG_2231.jpg, DSC00042, photo-2021-03-07, P1000345, 20230412_183022).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from pipeline.checks.base import Action, Check, CheckSettings, Columns, Verdict, fail_where

_FILE = re.compile(r"\.(jpe?g|png|gif|webp|bmp|tiff?|svg|avif|heic|jp2|jxl|raw|cr2|nef|dng|psd)$", re.IGNORECASE)
_ADDRESS = re.compile(r"^(?:[a-z][a-z0-9+.-]*://|www\.)\S+$", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]{2,}")
_BOILERPLATE = frozenset(
    "image img picture photo photograph pic untitled placeholder thumbnail thumb logo icon banner spacer default "
    "screenshot unnamed download file scan null none undefined n/a".split()
)


class Caption(Check):
    rank: ClassVar[int] = 90
    reads: ClassVar[tuple[str, ...]] = ("captions",)
    reasons: ClassVar[dict[str, str]] = {
        "weak_caption": "No caption of the picture says anything of it: none, a file name, a web address or a stock "
                        "word. Set a captioner in [caption], or filter.caption.action = \"drop\" to lose the row.",
    }

    class Settings(CheckSettings):
        action: Action = Field(
            "flag", description="drop: remove the row; flag: only note it; off: do not judge"
        )
        min_words: int = Field(1, ge=0, description="words of two or more letters that the best caption must have")

    def judge(self, columns: Columns, settings: Settings) -> Sequence[Verdict]:
        words = np.array([best_words(captions) for captions in columns["captions"]], np.float64)
        return fail_where(words < settings.min_words, reason="weak_caption", value=words,
                          threshold=settings.min_words)


def best_words(captions: Any) -> int:
    """Words of the wordiest caption of a row; 0 when all are empty, file names, addresses or stock words."""
    texts: Iterable[str | None] = captions if isinstance(captions, (list, tuple, np.ndarray)) else ()
    return max((useful_words(text) for text in texts if text), default=0)


def settings_in(checks: Mapping[str, CheckSettings]) -> Caption.Settings:
    """This check's settings among those of all checks."""
    found = checks["caption"]
    assert isinstance(found, Caption.Settings)
    return found


def is_weak(text: str, settings: Caption.Settings) -> bool:
    """Whether one caption says too little; never when the check is off."""
    return settings.action != "off" and useful_words(text) < settings.min_words


def useful_words(text: str) -> int:
    """How many words of two or more letters a caption has, in any script; 0 for file names and addresses."""
    text = text.strip()
    if _ADDRESS.match(text) or (_FILE.search(text) and len(text.split()) <= 3) or is_code(text):
        return 0
    words = _WORD.findall(text)
    return 0 if all(word.lower() in _BOILERPLATE for word in words) else len(words)


def is_code(text: str) -> bool:
    """Whether one word mixes letters with three or more digits, or has digits and separators only."""
    if any(character.isspace() for character in text):
        return False
    digits = sum(character.isdigit() for character in text)
    return digits >= 3 or (digits > 0 and not _WORD.search(text))
