"""How sharp a picture's sharpest edges are, whatever its content.

A step of height C blurred by a Gaussian of standard deviation σ has a steepest slope of C / (σ·√(2π)). So, tile by
tile, slope divided by range tells σ, and not how much detail there is: a drawing with three clean edges scores
as high as a meadow. Only tiles of high contrast count, and of these the sharpest decide, so a sharp subject before a
soft background is sharp.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.kernels import kernels
from pipeline.tiles import percentile, spans

TILE = 16
"""Side of a tile, px: an edge must lie in it with both its levels, so slopes below about 1/TILE look alike."""
_LEAST_RANGE = 24.0
_SHARPEST = 0.95
_LEAST_TILES = 3


def edge_sharpness(luma: NDArray[np.uint8] | NDArray[np.uint16], *, unit: int = 1) -> float:
    """Slope over range of the sharpest edges, per px: about 0.4 / σ, near 1 for a step between two pixels.

    `luma` (H, W) in levels of 255 times `unit` (at most 64). NaN where fewer than three tiles have any contrast.
    """
    if not luma.flags.c_contiguous:
        luma = luma.T  # lines are quick, and tiles and slopes are the same either way round
    if min(luma.shape) < 2 * TILE:
        return float("nan")
    span = spans(luma, TILE)
    telling = span >= max(_LEAST_RANGE * unit, 0.5 * percentile(span, 0.99))
    if np.count_nonzero(telling) < _LEAST_TILES:
        return float("nan")
    slopes = np.sqrt(kernels().steepest(luma)[telling].astype(np.float32))
    return percentile(slopes / span[telling].astype(np.float32), _SHARPEST)
