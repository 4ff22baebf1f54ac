"""Blown up: far fewer pixels of detail than the file has, because a small picture was enlarged.

Two independent traces are added up in decibels. `native_sharpness`: how steep the steepest edges are for their height
(see `pipeline.edges`). `fine_detail`: how much the most detailed tiles hold in the finest third of the frequencies
(see `pipeline.spectrum`). An enlarged picture is poor in both; a soft but real photograph still has grain, noise or
one thing in focus, and codec noise in an enlarged one does not steepen its edges.

Calibration (`tests/benchmarks/calibrate.py` on 40 photographs and drawings): of whole pictures at 1024 px,
saved as PNG, JPEG or WebP, 1 of 40 was below -25 dB (a smoothed one, at -38); enlarged ×3 by bilinear, bicubic
or Lanczos interpolation, then JPEG q 90, 95 to 98 %, ×2 a third, ×1.5 a tenth. A Gaussian blur of σ = 1 px at
512 px leaves no more than an enlargement and falls below as well. So do full-size crops of soft 8 to 20
megapixel files, a quarter of them: at that size they hold no more either. Flat art without edges gives no value
and passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from pydantic import Field

from pipeline.checks.base import Check, CheckSettings, Columns, Verdict, fail_where
from pipeline.edges import edge_sharpness
from pipeline.image import Picture
from pipeline.spectrum import fine_detail


class BlownUp(Check):
    version: ClassVar[int] = 3
    rank: ClassVar[int] = 45
    columns: ClassVar[dict[str, str]] = {
        "native_sharpness": "slope over range of the sharpest edges at native size, per px; about 0.4 / blur σ",
        "fine_detail": "power above 0.3 cycles per px over that around 0.1, in the most detailed tiles, dB",
    }
    reasons: ClassVar[dict[str, str]] = {
        "blown_up": "Neither steep edges nor fine detail for its number of pixels: a small picture was enlarged. Look "
                    "for the original; lower filter.blown_up.min_detail to keep softer pictures.",
    }

    class Settings(CheckSettings):
        min_detail: float = Field(
            -25.0, le=20, description="drop pictures whose fine detail and edge sharpness together are below this, dB; "
            "0 is a picture as sharp as its pixels allow"
        )

    def measure(self, picture: Picture) -> dict[str, float]:
        grey = picture.levels
        return {"native_sharpness": edge_sharpness(grey), "fine_detail": fine_detail(grey)}

    def judge(self, columns: Columns, settings: Settings) -> Sequence[Verdict]:
        steepness = 20 * np.log10(np.maximum(columns["native_sharpness"], 1e-3))
        detail = columns["fine_detail"] + steepness
        return fail_where(detail < settings.min_detail, reason="blown_up", value=detail, threshold=settings.min_detail)
