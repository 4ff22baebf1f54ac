"""How sharp a picture's sharpest edges are, whatever its content.

A step of height C blurred by a Gaussian of standard deviation σ has a steepest slope of C / (σ·√(2π)). So, tile by
tile, slope divided by range tells σ, and not how much detail there is: a drawing with three clean edges scores
as high as a meadow. Only tiles of high contrast count, and of these the sharpest decide, so a sharp subject before a
soft background is sharp.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

TILE = 16
"""Side of a tile, px: an edge must lie in it with both its levels, so slopes below about 1/TILE look alike."""
_LEAST_RANGE = 24.0
_SHARPEST = 95.0
_LEAST_TILES = 3
_BAND = 16 * TILE


def edge_sharpness(luma: NDArray[np.float32] | NDArray[np.uint8]) -> float:
    """Slope over range of the sharpest edges, per px: about 0.4 / σ, near 1 for a step between two pixels.

    `luma` (H, W) in levels of 255. NaN where fewer than three tiles have any contrast.
    """
    height, width = (side - side % TILE for side in luma.shape)
    if min(height, width) < 2 * TILE:
        return float("nan")
    # band by band: all tiles of a large poster at once would take some twenty times its pixels in memory
    bands = [_tiles(luma[top:min(top + _BAND, height), :width]) for top in range(0, height, _BAND)]
    steepest, span = (np.concatenate(parts) for parts in zip(*bands, strict=True))
    telling = span >= max(_LEAST_RANGE, 0.5 * float(np.percentile(span, 99)))
    if telling.sum() < _LEAST_TILES:
        return float("nan")
    return float(np.percentile(steepest[telling] / span[telling], _SHARPEST))


def _tiles(band: NDArray[np.float32] | NDArray[np.uint8]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Steepest slope and range of each tile, levels per px and levels."""
    height, width = band.shape
    grid = band.astype(np.float32).reshape(height // TILE, TILE, width // TILE, TILE)
    tiles = grid.swapaxes(1, 2).reshape(-1, TILE, TILE)
    across = np.diff(tiles, axis=2)[:, :-1]
    down = np.diff(tiles, axis=1)[:, :, :-1]
    steepest = np.sqrt((across * across + down * down).reshape(len(tiles), -1).max(1))
    return steepest, tiles.max((1, 2)) - tiles.min((1, 2))
