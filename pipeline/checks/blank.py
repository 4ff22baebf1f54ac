"""Blank: pictures that show nothing, by the range of their tones.

`tone_range` is the largest difference, over luma and the two chroma planes, between any two cells of a 32 × 32
grid of averages laid over the picture. Averaging a cell removes noise and compression artefacts, so a flat
picture has a range near 0 however noisy it is, while a small dark object on black still moves its own cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from pydantic import Field

from pipeline.checks.base import Check, CheckSettings, Columns, Verdict, fail_where
from pipeline.image import Picture


class Blank(Check):
    version: ClassVar[int] = 2
    rank: ClassVar[int] = 12
    columns: ClassVar[dict[str, str]] = {
        "tone_range": "largest difference between cells of a 32 × 32 grid in Y, Cb or Cr, in levels 0..255",
    }
    reasons: ClassVar[dict[str, str]] = {
        "blank": "All of the picture has nearly one colour: a placeholder, spacer or failed rendering. Lower "
                 "filter.blank.min_tone_range if you want such pictures.",
    }

    class Settings(CheckSettings):
        min_tone_range: float = Field(12.0, ge=0, le=255, description="drop pictures whose tones span fewer levels")

    def measure(self, picture: Picture) -> dict[str, float]:
        planes = np.ascontiguousarray(picture.small.reshape(-1, 3).T)
        return {"tone_range": float((planes.max(axis=1).astype(int) - planes.min(axis=1)).max())}

    def judge(self, columns: Columns, settings: Settings) -> Sequence[Verdict]:
        value = columns["tone_range"]
        return fail_where(value < settings.min_tone_range, reason="blank", value=value,
                          threshold=settings.min_tone_range)
