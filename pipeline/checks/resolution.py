"""Resolution: thumbnails and icons, by the shorter side.

Default 200 px: the DataComp basic rule ("shorter side ≥ 200", Gadre et al. 2023, arXiv:2304.14108), below which
a 256 px training crop would have to be enlarged by more than a quarter. A rule on the size in the header needs
no calibration; raise it to the side you train at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from pydantic import Field

from pipeline.checks.base import Check, CheckSettings, Columns, Verdict


class Resolution(Check):
    rank: ClassVar[int] = 10
    reads: ClassVar[tuple[str, ...]] = ("width", "height")
    reasons: ClassVar[dict[str, str]] = {
        "low_resolution": "The shorter side is below filter.resolution.min_side: a thumbnail or icon. Look for the "
                          "full-size picture behind it, or lower min_side if you train at small sizes.",
        "few_megapixels": "Width × height is below filter.resolution.min_megapixels.",
    }

    class Settings(CheckSettings):
        min_side: int = Field(200, ge=1, description="drop pictures whose shorter side is below this, in px")
        min_megapixels: float = Field(0.0, ge=0, description="drop pictures with fewer than this many million pixels")

    def judge(self, columns: Columns, settings: Settings) -> Sequence[Verdict]:
        width, height = columns["width"], columns["height"]
        side, megapixels = np.minimum(width, height), width * height / 1e6
        return [
            Verdict(side < settings.min_side, "low_resolution", side, settings.min_side),
            Verdict(megapixels < settings.min_megapixels, "few_megapixels", megapixels, settings.min_megapixels),
        ]
