"""Blur: nothing in the picture is sharp at viewing size.

`edge_sharpness` at VIEWING_SIDE is about 0.4 / σ for an edge blurred by σ px. On 44 photographs and drawings the
untouched ones gave 0.56 to 1.3; blurred by σ = 2 px 0.13 to 0.34, by 3 px at most 0.28 (median 0.19), by 5 px
at most 0.19. The default takes σ ≥ 3 and leaves pictures that are merely soft; a sharp subject before a soft
background passes. Where no tile holds a whole edge at that size, the picture is looked at once more at half of it:
a strong blur spreads an edge over more than a tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pipeline.checks.base import Check, CheckSettings, Columns, Verdict, fail_where
from pipeline.edges import edge_sharpness
from pipeline.image import Picture


class Blur(Check):
    version: ClassVar[int] = 3
    rank: ClassVar[int] = 40
    columns: ClassVar[dict[str, str]] = {
        "sharpness": "slope over range of the sharpest edges, longer side at 512 px, per px; about 0.4 / blur σ",
    }
    reasons: ClassVar[dict[str, str]] = {
        "blurry": "Not even the sharpest edges are sharp at viewing size: out of focus, shaken or smoothed. "
                  "Lower filter.blur.min_sharpness to keep softer pictures.",
    }

    class Settings(CheckSettings):
        min_sharpness: float = Field(
            0.28, ge=0, le=1.5, description="drop pictures whose sharpest edges are below this, per px; photographs "
            "blurred with σ = 2 to 3 px at 512 px reach it"
        )

    def measure(self, picture: Picture) -> dict[str, float]:
        sharpness = edge_sharpness(picture.viewing)
        if np.isnan(sharpness):
            sharpness = edge_sharpness(_halved(picture.viewing), unit=4) / 2  # per px of the viewing size again
        return {"sharpness": sharpness}

    def judge(self, columns: Columns, settings: Settings) -> Sequence[Verdict]:
        sharpness = columns["sharpness"]
        return fail_where(sharpness < settings.min_sharpness, reason="blurry", value=sharpness,
                          threshold=settings.min_sharpness)


def _halved(luma: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """Sums of 2 × 2 pixels; an odd last row or column is left out."""
    height, width = (side - side % 2 for side in luma.shape)
    cells = luma[:height, :width].reshape(height // 2, 2, width // 2, 2)
    halved: NDArray[np.uint16] = cells.sum(axis=(1, 3), dtype=np.uint16)
    return halved
