"""JPEG quality: from the tables in a file, and from the traces that an earlier JPEG left in the pixels.

The scale is IJG's (libjpeg, `jpeg_set_quality`): the standard luma table of ITU-T T.81, Annex K.1, times S / 100
with S = 5000 / q for q < 50 and 200 − 2q from there, rounded and kept within 1..255.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from pipeline.kernels import kernels
from pipeline.kernels.plain import FINE
from pipeline.tiles import spans

STANDARD_LUMA = np.array([
    16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24, 40, 57, 69, 56,
    14, 17, 22, 29, 51, 87, 80, 62, 18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92,
    49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99,
])  # fmt: skip
"""T.81 table K.1 in row order."""

BLOCK = 8
WORST, BEST = 1, 40
"""Qualities looked for in the pixels. Above 40 the steps are so fine that chance imitates them."""

_LOW = [(u, v) for u in range(5) for v in range(5) if 0 < u + v <= 4]
_BLOCKS = 1500
_EVIDENCE = 24
_LEAST_BLOCKS = 24


@cache
def ijg_tables() -> NDArray[np.int64]:
    """Luma tables for q = 1..100 in row order: int (100, 64)."""
    quality = np.arange(1, 101)
    scale = np.where(quality < 50, 5000 // quality, 200 - 2 * quality)
    return np.asarray(np.clip((STANDARD_LUMA * scale[:, None] + 50) // 100, 1, 255), np.int64)


def table_quality(tables: Mapping[int, Sequence[int]]) -> float:
    """IJG quality of a file's luma table (row order); NaN without tables.

    A table libjpeg writes for quality q reads back as exactly q. Any other table gets the quality whose table is
    nearest in the mean of the logarithms, i.e. the same coarseness on average.
    """
    if 0 not in tables or len(tables[0]) != STANDARD_LUMA.size:
        return float("nan")
    table = np.asarray(tables[0], np.int64)
    known = ijg_tables()
    exact = np.flatnonzero((known == table).all(axis=1))
    if len(exact):
        return float(exact[-1] + 1)
    coarseness = np.log(np.maximum(table, 1)).mean()
    return float(np.abs(np.log(known).mean(axis=1) - coarseness).argmin() + 1)


def traced_quality(luma: NDArray[np.uint8]) -> tuple[float, float]:
    """Quality of a coarse JPEG that these pixels once were, and how surely: (quality, evidence).

    In the blocks of a decoded JPEG every DCT coefficient lies near a multiple of its quantiser step (Fan and de
    Queiroz, "Identification of bitmap compression history", IEEE TIP 12(2), 2003). For each IJG quality the
    low-frequency coefficients larger than half a step are held against the nearest multiple. Chance gives a mean
    square of step²/12; evidence is 1 minus the observed share of that, 1 for perfect multiples and 0 for none.
    (NaN, 0) where the picture has too few such coefficients. Finds traces on the original grid only: a picture
    that was resized or cropped off the 8-pixel grid since shows none.
    """
    coefficients = _low_coefficients(luma)
    if coefficients is None:
        return float("nan"), 0.0
    best, best_evidence = float("nan"), 0.0
    counts, distances = kernels().on_the_grid(coefficients, _low_steps())
    for quality, count, off in zip(range(WORST, BEST + 1), counts.tolist(), distances.tolist(), strict=True):
        if count < _EVIDENCE:
            continue
        evidence = 1 - 12 * off / (count * FINE**2)
        if evidence > best_evidence + 0.02:
            best, best_evidence = float(quality), evidence
    return best, best_evidence


@cache
def _low_steps() -> NDArray[np.float32]:
    """Quantiser steps of the low frequencies for q = WORST..BEST: (40, 14)."""
    at = [u * BLOCK + v for u, v in _LOW]
    return ijg_tables()[WORST - 1:BEST, at].astype(np.float32)


def _low_coefficients(luma: NDArray[np.uint8]) -> NDArray[np.float32] | None:
    """Low-frequency DCT coefficients (14, blocks) of the most active blocks, each once; None with too few."""
    rows, columns = luma.shape[0] // BLOCK, luma.shape[1] // BLOCK
    if rows < 2 or columns < 2:
        return None
    activity = spans(luma, BLOCK).ravel()
    chosen = kernels().largest(activity, _BLOCKS)
    chosen = chosen[activity[chosen] > 2]
    blocks = kernels().tiles(luma, chosen, BLOCK).reshape(len(chosen), BLOCK * BLOCK)
    # One straight edge between two flat colours gives the same block a hundred times. That is one witness: a flag
    # has few different blocks, and chance alone puts those on the grid of some quality.
    _, different = np.unique(kernels().marks(blocks.view(np.uint64)), return_index=True)
    if len(different) < _LEAST_BLOCKS:
        return None
    if len(different) < len(blocks):
        blocks = blocks[np.sort(different)]
    coefficients: NDArray[np.float32] = _basis() @ blocks.astype(np.float32).T
    return coefficients


@cache
def _basis() -> NDArray[np.float32]:
    """T.81's orthonormal 8 × 8 DCT for the low frequencies, none of which sees a block's mean: (14, 64)."""
    frequency, place = np.meshgrid(np.arange(BLOCK), np.arange(BLOCK), indexing="ij")
    cosine = np.cos((2 * place + 1) * frequency * np.pi / 16) / 2
    cosine[0] /= np.sqrt(2)
    return np.stack([np.outer(cosine[u], cosine[v]).ravel() for u, v in _LOW]).astype(np.float32)
