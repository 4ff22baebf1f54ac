"""Noise: grain that drowns the picture, by its strength where the picture is smooth.

`noise` is the standard deviation of luma noise: √(π/2) times the mean size of a second difference across both
diagonals, here the diagonal Haar detail, as in Immerkær, "Fast noise variance estimation", CVIU 64(2), 1996. It is
taken for each 16 × 16 tile, and of these the 20th percentile, since texture looks like noise but seldom fills a whole
picture. Calibration on 47 photographs of one megapixel: untouched 0 to 5.9 (98th percentile), a close view of grain
12.1; with white noise of σ = 20, saved as JPEG q 90, 16.1 to 23.7, of σ = 30 22 to 30.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pipeline.checks.base import Check, CheckSettings, Columns, Verdict, fail_where
from pipeline.image import Picture
from pipeline.kernels import kernels
from pipeline.tiles import percentile

TILE = 16
_TILES = 600
_LEAST_TILES = 10
_MOST_CLIPPED = 0.1
"""Share of black and white pixels in a tile that is looked at: what is cut off there has no noise."""
_PERCENTILE = 0.2


class Noise(Check):
    version: ClassVar[int] = 2
    rank: ClassVar[int] = 48
    columns: ClassVar[dict[str, str]] = {
        "noise": "standard deviation of noise in the smoother tiles, levels of luma",
    }
    reasons: ClassVar[dict[str, str]] = {
        "noisy": "Grain as strong as the picture's own contrasts: high ISO, or a scan of coarse print. Raise "
                 "filter.noise.max_noise to keep it.",
    }

    class Settings(CheckSettings):
        max_noise: float = Field(18.0, ge=0, description="drop pictures with more noise, levels of luma")

    def measure(self, picture: Picture) -> dict[str, float]:
        return {"noise": noise_level(picture.levels)}

    def judge(self, columns: Columns, settings: Settings) -> Sequence[Verdict]:
        value = columns["noise"]
        return fail_where(value > settings.max_noise, reason="noisy", value=value, threshold=settings.max_noise)


def noise_level(luma: NDArray[np.uint8]) -> float:
    """Levels of luma (H, W); NaN where fewer than ten tiles have tones between black and white."""
    rows, columns = (side // TILE for side in luma.shape)
    if not rows or not columns:
        return float("nan")
    detail = kernels().diagonal_detail(luma, _spread(rows * columns), TILE, int(_MOST_CLIPPED * TILE**2))
    sizes = detail[detail >= 0]
    if len(sizes) < _LEAST_TILES:
        return float("nan")
    return percentile(sizes, _PERCENTILE) / (2 * (TILE // 2) ** 2) * math.sqrt(math.pi / 2)


@lru_cache(64)
def _spread(tiles: int) -> NDArray[np.int64]:
    """Numbers of _TILES tiles, or all, at equal distances."""
    return np.unique(np.linspace(0, tiles - 1, _TILES).astype(np.int64))
