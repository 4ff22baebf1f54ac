"""Colour: pictures without any, for sets that are about colour.

`colourfulness` is the distance from grey in the CbCr plane that the most colourful hundredth of a 32 × 32 grid of
averages reaches, so one red boat on a grey sea is colour enough, and the coloured noise of a grey photograph is not.
Only noted by default: a grey photograph is no fault. A JPEG of a grey picture stays below 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from pydantic import Field

from pipeline.checks.base import Action, Check, CheckSettings, Columns, Verdict, fail_where
from pipeline.image import Picture
from pipeline.tiles import percentile


class Colour(Check):
    version: ClassVar[int] = 2
    rank: ClassVar[int] = 70
    columns: ClassVar[dict[str, str]] = {
        "colourfulness": "distance from grey in the CbCr plane, 99th percentile of a 32 × 32 grid, levels 0..181",
    }
    reasons: ClassVar[dict[str, str]] = {
        "greyscale": "No part of the picture has a colour. Set filter.colour.action to drop for sets that are about "
                     "colour, or to off where grey is as good.",
    }

    class Settings(CheckSettings):
        action: Action = Field("flag", description="drop: remove the row; flag: only note it; off: do not judge")
        min_colourfulness: float = Field(4.0, ge=0, le=181, description="pictures below this are called greyscale, "
                                                                        "levels of Cb and Cr")

    def measure(self, picture: Picture) -> dict[str, float]:
        chroma = picture.small[..., 1:].astype(np.float32) - 128
        return {"colourfulness": percentile(np.hypot(chroma[..., 0], chroma[..., 1]), 0.99)}

    def judge(self, columns: Columns, settings: Settings) -> Sequence[Verdict]:
        value = columns["colourfulness"]
        return fail_where(value < settings.min_colourfulness, reason="greyscale", value=value,
                          threshold=settings.min_colourfulness)
