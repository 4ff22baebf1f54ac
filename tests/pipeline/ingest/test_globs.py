"""Patterns with stars, held against the regular expression that they stand for."""

from __future__ import annotations

import re
import time

from hypothesis import given
from hypothesis import strategies as st

from pipeline.ingest import globs


@given(st.text("ab*", max_size=8), st.text("ab", max_size=10), st.booleans())
def test_as_a_regular_expression_says(pattern: str, text: str, whole: bool) -> None:
    pieces = pattern.split("*")
    expression = ".*".join(map(re.escape, pieces)) + ("" if whole else ".*")
    assert globs.matches(pieces, text, whole=whole) == bool(re.fullmatch(expression, text))


def test_a_hostile_pattern_ends() -> None:
    begun = time.process_time()
    assert not globs.matches(["a"] * 5_000, "a" * 100_000 + "b", whole=True)
    assert time.process_time() - begun < 5  # backtracking would take longer than the universe has
