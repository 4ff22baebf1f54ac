"""Exposure: pictures in which even the brightest parts are nearly black, or even the darkest nearly white.

The brightest and the darkest parts are the 99th and the 1st percentile of luma, taken from every eighth row, so a night
scene with a few lit windows passes and a lens cap does not. Calibration: of 44 photographs without black drawings the
darkest had highlights of 85, the demo's night scenes 71; 40 of 255 is a screen on which nothing is made out in
daylight. Drawings of thin lines on white have no dark percentile at all, so nothing is called too bright unless asked
for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from pydantic import Field

from pipeline.checks.base import Check, CheckSettings, Columns, Verdict, fail_where
from pipeline.image import Picture
from pipeline.kernels import kernels

_EVERY = 8
"""Every eighth row is looked at."""


class Exposure(Check):
    version: ClassVar[int] = 2
    rank: ClassVar[int] = 14
    columns: ClassVar[dict[str, str]] = {
        "shadows": "1st percentile of luma, levels 0..255",
        "highlights": "99th percentile of luma, levels 0..255",
    }
    reasons: ClassVar[dict[str, str]] = {
        "too_dark": "Even the brightest hundredth is nearly black: underexposed, or a lens cap. Lower "
                    "filter.exposure.min_highlights to keep darker pictures.",
        "too_bright": "Even the darkest hundredth is nearly white: overexposed or faded. Raise "
                      "filter.exposure.max_shadows to keep brighter pictures.",
    }

    class Settings(CheckSettings):
        min_highlights: float = Field(40.0, ge=0, le=255, description="drop pictures whose 99th percentile of luma is "
                                                                      "below this, levels 0..255")
        max_shadows: float = Field(255.0, ge=0, le=255, description="drop pictures whose 1st percentile of luma is "
                                   "above this, levels 0..255; 255: none, since drawings on white are as bright")

    def measure(self, picture: Picture) -> dict[str, float]:
        counted = np.cumsum(kernels().histogram(picture.levels[::_EVERY]))
        shadows, highlights = np.searchsorted(counted, np.array([0.01, 0.99]) * counted[-1])
        return {"shadows": float(shadows), "highlights": float(highlights)}

    def judge(self, columns: Columns, settings: Settings) -> Sequence[Verdict]:
        shadows, highlights = columns["shadows"], columns["highlights"]
        return [
            *fail_where(highlights < settings.min_highlights, reason="too_dark", value=highlights,
                        threshold=settings.min_highlights),
            *fail_where(shadows > settings.max_shadows, reason="too_bright", value=shadows,
                        threshold=settings.max_shadows),
        ]
