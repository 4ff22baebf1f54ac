"""Pairs within a Hamming distance against comparing all with all."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import nearby
from pipeline.nearby import near_pairs


def clustered(seed: int, count: int, centres: int) -> np.ndarray:
    """Hashes around a few centres, 0 to 14 bits away, so that every distance occurs; some equal."""
    rng = np.random.default_rng(seed)
    middle = rng.integers(0, 2**64, centres, np.uint64)[rng.integers(0, centres, count)]
    for _ in range(7):
        middle ^= np.uint64(1) << rng.integers(0, 64, count).astype(np.uint64) * rng.integers(0, 2, count).astype(
            np.uint64)
    return middle


def brute(hashes: np.ndarray, distance: int) -> list[tuple[int, int, int]]:
    found = [(a, b, (int(hashes[a]) ^ int(hashes[b])).bit_count())
             for a in range(len(hashes)) for b in range(a + 1, len(hashes))]
    return [pair for pair in found if pair[2] <= distance]


def listed(hashes: np.ndarray, distance: int) -> list[tuple[int, int, int]]:
    a, b, d = near_pairs(hashes, distance)
    return list(zip(a.tolist(), b.tolist(), d.tolist(), strict=True))


def by(patch: pytest.MonkeyPatch, how: str) -> None:
    """Search all with all, by bands in machine code, or by bands without numba."""
    patch.setattr(nearby, "DENSE", 10**9 if how == "dense" else 0)
    if how == "plain":
        patch.setitem(sys.modules, "pipeline.kernels.bands", None)


HOW = ("dense", "compiled", "plain")


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31), count=st.integers(0, 120), distance=st.integers(0, 13), how=st.sampled_from(HOW))
def test_equals_comparing_all_with_all(seed: int, count: int, distance: int, how: str) -> None:
    hashes = clustered(seed, count, 6)
    with pytest.MonkeyPatch.context() as patch:
        by(patch, how)
        assert listed(hashes, distance) == brute(hashes, distance)


@pytest.mark.parametrize("how", HOW[1:])
def test_bands_and_blocks_agree_on_many(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = clustered(1, 3000, 400)
    expected = listed(hashes, 8)
    assert len(expected) > 5000
    by(monkeypatch, how)
    monkeypatch.setattr(nearby, "_PAIRS_AT_ONCE", 1000)
    assert listed(hashes, 8) == expected


def test_nothing_to_pair() -> None:
    assert listed(np.array([], np.uint64), 8) == []
    assert listed(np.array([5], np.uint64), 8) == []
