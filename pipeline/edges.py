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
_AT_ONCE = 1024


def edge_sharpness(luma: NDArray[np.float32] | NDArray[np.uint8]) -> float:
    """Slope over range of the sharpest edges, per px: about 0.4 / σ, near 1 for a step between two pixels.

    `luma` (H, W) in levels of 255. NaN where fewer than three tiles have any contrast.
    """
    height, width = (side - side % TILE for side in luma.shape)
    if min(height, width) < 2 * TILE:
        return float("nan")
    grid = luma[:height, :width].reshape(height // TILE, TILE, width // TILE, TILE)
    # rows first: whole lines are compared at once, and only a sixteenth is left for the second step
    span = grid.max(1).max(2).astype(np.float32) - grid.min(1).min(2)
    telling = span >= max(_LEAST_RANGE, 0.5 * float(np.percentile(span, 99)))
    rows, columns = np.nonzero(telling)
    if len(rows) < _LEAST_TILES:
        return float("nan")
    slopes = [_steepest(grid[rows[start:start + _AT_ONCE], :, columns[start:start + _AT_ONCE]])
              for start in range(0, len(rows), _AT_ONCE)]
    return float(np.percentile(np.concatenate(slopes) / span[telling], _SHARPEST))


def _steepest(tiles: NDArray[np.float32] | NDArray[np.uint8]) -> NDArray[np.float32]:
    """Steepest slope of each tile (n, TILE, TILE), levels per px."""
    values = tiles.astype(np.float32)
    across = values[:, :-1, 1:] - values[:, :-1, :-1]
    down = values[:, 1:, :-1] - values[:, :-1, :-1]
    across *= across
    down *= down
    across += down
    steepest: NDArray[np.float32] = np.sqrt(across.reshape(len(values), -1).max(1))
    return steepest
