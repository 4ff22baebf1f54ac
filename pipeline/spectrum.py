"""How much fine detail a picture has for the coarse detail beside it: the trace of its true resolution.

Natural edges and textures lose power smoothly towards high frequencies, whatever the subject (Field, "Relations
between the statistics of natural images", JOSA A 4(12), 1987). Enlarging by a factor f leaves next to nothing above
1/(2f) cycles per px; out-of-focus edges fall off as well, but sensor noise, grain and the edges in focus do not. So
the ratio of a high band to a low band, in the tiles that have any structure, tells enlargement from detail.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

from pipeline.kernels import kernels
from pipeline.tiles import percentile, spans

SIDE = 32
"""Side of a tile, px."""
LOW, HIGH = (0.06, 0.13), (0.30, 0.50)
"""Bands, cycles per px. The high one lies above what an enlargement ×2 or more can hold."""

_TILES = 300
_LEAST_POWER = 4.0
_SHARE_OF_STRONGEST = 0.1
_PERCENTILE = 0.95
_ROUNDING = 0.05
"""Power in the high band that rounding to whole levels leaves: 1/12, of which the band holds about half."""


def fine_detail(luma: NDArray[np.uint8]) -> float:
    """Power in HIGH over power in LOW, in dB, of the most finely detailed tiles; NaN where nothing has structure.

    Looks at the 300 tiles of 32 × 32 whose levels span most, so the cost hardly grows with the picture.
    """
    if min(luma.shape) < SIDE:
        return float("nan")
    chosen = kernels().largest(spans(luma, SIDE).ravel(), _TILES)
    low, high = _band_powers(luma, chosen)
    strongest = float(np.sort(low)[-max(1, len(low) // 50)])
    telling = low >= max(_LEAST_POWER, _SHARE_OF_STRONGEST * strongest)
    if not telling.any():
        return float("nan")
    ratio = np.maximum(high[telling] - _ROUNDING, 1e-3) / low[telling]
    return 10 * math.log10(percentile(ratio, _PERCENTILE))


def _band_powers(luma: NDArray[np.uint8], chosen: NDArray[np.int64]) -> NDArray[np.float32]:
    """Variance (levels²) of each chosen tile within LOW and within HIGH, by Hann-windowed periodogram: (2, n)."""
    window, bands = _plan()
    import scipy.fft  # slow to import, and few commands need it

    spectra = scipy.fft.rfft2(kernels().windowed(luma, chosen, window))
    parts = spectra.reshape(len(chosen), -1).view(np.float32)  # real and imaginary in turns
    parts *= parts
    return bands @ parts.T


@cache
def _plan() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Window of unit mean square, and for LOW and HIGH the weight of each bin of a half spectrum (both halves counted)
    that makes the sum of its squares a variance in levels²: (2, 2 × bins)."""
    hann = np.hanning(SIDE + 1)[:SIDE]
    window = np.outer(hann, hann)
    window /= np.sqrt((window**2).mean())
    across = np.fft.rfftfreq(SIDE)
    radius = np.hypot(np.fft.fftfreq(SIDE)[:, None], across[None])
    twice = np.where((across == 0) | (across == 0.5), 1.0, 2.0)[None]
    bands = [np.where((radius >= start) & (radius < end), twice, 0.0).ravel() for start, end in (LOW, HIGH)]
    return window.astype(np.float32), (np.repeat(np.stack(bands), 2, axis=1) / SIDE**4).astype(np.float32)
