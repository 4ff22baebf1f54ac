"""The compact index against a dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipeline.keyindex import UNKNOWN, KeyIndex

NUL_LADEN = st.tuples(st.sampled_from([b"\0", b"\1", b"a"]), st.integers(0, 16)).map(
    lambda run: (run[0] * run[1]).ljust(16, b"\0"))
KEYS = st.one_of(st.binary(min_size=16, max_size=16), NUL_LADEN)
ENTRIES = st.dictionaries(KEYS, st.integers(0, UNKNOWN - 1), max_size=12)


@given(st.lists(ENTRIES, max_size=8), st.lists(KEYS, max_size=8), st.sampled_from([0, 3, 1000]))
def test_it_says_what_a_dictionary_would(entered: list[dict[bytes, int]], others: list[bytes], waiting: int) -> None:
    index, expected = KeyIndex(waiting), dict[bytes, int]()
    for entries in entered:
        index.put(list(entries), list(entries.values()))
        expected |= entries
    asked = [*expected, *others, *expected]
    assert index.get(asked).tolist() == [expected.get(key, UNKNOWN) for key in asked]
