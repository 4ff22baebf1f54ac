"""How much fine detail a picture has for the coarse detail beside it: the trace of its true resolution.

Natural edges and textures lose power smoothly towards high frequencies, whatever the subject (Field, "Relations
between the statistics of natural images", JOSA A 4(12), 1987). Enlarging by a factor f leaves next to nothing above
1/(2f) cycles per px; out-of-focus edges fall off as well, but sensor noise, grain and the edges in focus do not. So
the ratio of a high band to a low band, in the tiles that have any structure, tells enlargement from detail.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

SIDE = 32
"""Side of a tile, px."""
LOW, HIGH = (0.06, 0.13), (0.30, 0.50)
"""Bands, cycles per px. The high one lies above what an enlargement ×2 or more can hold."""

_TILES = 300
_LEAST_POWER = 4.0
_SHARE_OF_STRONGEST = 0.1
_PERCENTILE = 95
_ROUNDING = 0.05
"""Power in the high band that rounding to whole levels leaves: 1/12, of which the band holds about half."""


def fine_detail(luma: NDArray[np.uint8]) -> float:
    """Power in HIGH over power in LOW, in dB, of the most finely detailed tiles; NaN where nothing has structure.

    Looks at the 300 tiles of 32 × 32 whose levels span most, so the cost hardly grows with the picture.
    """
    tiles = _active_tiles(luma)
    if not len(tiles):
        return float("nan")
    low, high = _band_powers(tiles)
    strongest = float(np.sort(low)[-max(1, len(low) // 50)])
    telling = low >= max(_LEAST_POWER, _SHARE_OF_STRONGEST * strongest)
    if not telling.any():
        return float("nan")
    ratio = np.maximum(high[telling] - _ROUNDING, 1e-3) / low[telling]
    return float(np.percentile(10 * np.log10(ratio), _PERCENTILE))


def _active_tiles(luma: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The tiles (n, SIDE, SIDE) whose levels span most, of a grid over the picture."""
    rows, columns = luma.shape[0] // SIDE, luma.shape[1] // SIDE
    grid = luma[:rows * SIDE, :columns * SIDE].reshape(rows, SIDE, columns, SIDE)
    if grid.size == 0:
        return np.empty((0, SIDE, SIDE), np.uint8)
    span = (grid.max(1).max(2).astype(np.int16) - grid.min(1).min(2)).ravel()
    chosen = np.argsort(-span, kind="stable")[:_TILES]
    return grid[chosen // columns, :, chosen % columns]


def _band_powers(tiles: NDArray[np.uint8]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Variance (levels²) of each tile within LOW and within HIGH, by Hann-windowed periodogram."""
    window, low, high = _plan()
    import scipy.fft  # slow to import, and few commands need it

    values = tiles.astype(np.float32)
    values -= values.mean(axis=(1, 2), keepdims=True)
    spectrum = scipy.fft.rfft2(values * window).reshape(len(tiles), -1)
    power = (spectrum.real**2 + spectrum.imag**2) / SIDE**4
    return power @ low, power @ high


@cache
def _plan() -> tuple[NDArray[np.float32], NDArray[np.float64], NDArray[np.float64]]:
    """Window of unit mean square, and per band the weight of each bin of a half spectrum (both halves counted)."""
    hann = np.hanning(SIDE + 1)[:SIDE]
    window = np.outer(hann, hann)
    window /= np.sqrt((window**2).mean())
    across = np.fft.rfftfreq(SIDE)
    radius = np.hypot(np.fft.fftfreq(SIDE)[:, None], across[None])
    twice = np.where((across == 0) | (across == 0.5), 1.0, 2.0)[None]
    bands = [np.where((radius >= start) & (radius < end), twice, 0.0).ravel() for start, end in (LOW, HIGH)]
    return window.astype(np.float32), bands[0], bands[1]
