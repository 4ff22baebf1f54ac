"""Aspect ratio: banners, dividers and strips, by longer over shorter side.

Default 3: the DataComp basic rule ("aspect ratio ≤ 3", Gadre et al. 2023, arXiv:2304.14108). Panoramas up to 3:1
pass; a strip beyond that loses two thirds of itself when it is cropped to a square.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from pydantic import Field

from pipeline.checks.base import Check, CheckSettings, Columns, Verdict, fail_where


class Aspect(Check):
    rank: ClassVar[int] = 11
    reads: ClassVar[tuple[str, ...]] = ("width", "height")
    reasons: ClassVar[dict[str, str]] = {
        "extreme_aspect": "Longer side over shorter side is above filter.aspect.max_ratio: a banner, divider or "
                          "strip. Raise max_ratio if you want wide panoramas.",
    }

    class Settings(CheckSettings):
        max_ratio: float = Field(3.0, ge=1, description="drop pictures whose longer side is more than this many "
                                                        "times the shorter, no unit")

    def judge(self, columns: Columns, settings: Settings) -> Sequence[Verdict]:
        width, height = columns["width"], columns["height"]
        ratio = np.maximum(width, height) / np.minimum(width, height)
        return fail_where(ratio > settings.max_ratio, reason="extreme_aspect", value=ratio,
                          threshold=settings.max_ratio)
