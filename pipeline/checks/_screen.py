"""`useful_words` of many captions at once: those that no rule of `_wording` can touch are counted in Arrow, the others
one by one. The same numbers in a fraction of the time.

A caption is plain when it is written in Latin, Greek or Cyrillic letters, has two words with a space between them, at
least one of them in no list of `_wording`, and nothing in it that a rule looks for. `_suspect` must therefore match
wherever such a rule may apply; that it matches more often costs time only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.checks import _wording
from pipeline.checks._wording import LONGEST, useful_words

_LETTERS = r"a-zA-ZÀ-ÖØ-öø-įĲ-žΆΈ-ώЀ-ҁҊ-ԯ"  # not ı, İ and ſ, which pass for i and s where case makes no difference
_PLAIN = rf"^[{_LETTERS}0-9 _!\"'()*+,./:;=?|~°«»·×÷‘’‚“”„†•…–—-]+$"  # none of @ # < & [ { % $
_TWO_WORDS = r"[\pL0-9_].* .*[\pL0-9_]"
_SPACES, _BETWEEN = r"\s+", r"[^\pL]+"


def words_of(texts: Sequence[str]) -> NDArray[np.int64]:
    """`useful_words` of each text."""
    counts = plainly(texts)
    for row in np.flatnonzero(counts < 0).tolist():
        counts[row] = useful_words(texts[row])
    return counts


def plainly(texts: Sequence[str]) -> NDArray[np.int64]:
    """`useful_words` of plain captions; -1 for those that the rules have to look at."""
    given = pa.array(texts, pa.string())
    tidy = pc.utf8_trim_whitespace(pc.replace_substring_regex(given, _SPACES, " "))
    plain = pc.and_(pc.match_substring_regex(tidy, _PLAIN), pc.match_substring_regex(tidy, _TWO_WORDS))
    rows = np.flatnonzero(pc.and_(plain, pc.less_equal(pc.utf8_length(given), LONGEST)))
    some = tidy.take(pa.array(rows))
    rows = rows[~np.asarray(pc.match_substring_regex(some, _suspect(), ignore_case=True))]
    counts = np.full(len(texts), -1, np.int64)
    counts[rows] = _counted(tidy.take(pa.array(rows)))
    return counts


def _counted(texts: pa.Array) -> NDArray[np.int64]:
    """Words of two and more letters of each text; -1 where all of them are in a list."""
    split = pc.split_pattern_regex(texts, _BETWEEN)
    tokens, ends = split.flatten(), split.offsets.to_numpy()
    words = np.asarray(pc.greater_equal(pc.utf8_length(tokens), 2))
    known = np.asarray(pc.is_in(pc.utf8_lower(tokens), value_set=_listed()))
    counts, telling = (np.diff(np.concatenate([[0], np.cumsum(each)])[ends]) for each in (words, words & ~known))
    return np.where(telling > 0, counts, -1)


@cache
def _listed() -> pa.Array:
    return pa.array(sorted(_wording._CALENDAR | _wording._NOISE | _wording._GLUE), pa.string())


@cache
def _suspect() -> str:
    """What `_wording` looks for, for a caption that is plain otherwise and has single spaces."""
    start = r"^[ |–—:·,-]*"  # `stripped` takes these off
    found = [
        r"\.[^ ]", ":/", "lorem ipsum", _wording._BROKEN.pattern, _wording._STRONG.pattern, _wording._SUFFIX.pattern,
        *(start + pattern.pattern.removeprefix("^") for pattern in
          (_wording._PREFIX, _wording._CAMERA, _wording._CREDIT, _wording._PART)),
        *map(re.escape, sorted(_wording._PAGE)),
    ]
    return "|".join(f"(?:{_for_re2(pattern)})" for pattern in found)


def _for_re2(pattern: str) -> str:
    """Python's pattern as RE2 reads it, whose \\w, \\d and \\s are those of ASCII."""
    pattern = re.sub(r"\\u([0-9a-f]{4})", r"\\x{\1}", pattern.replace(r"[\w-]", r"[\pL0-9_-]"))
    return pattern.replace("\\ ", " ").replace("(?P<who>", "(")
