"""Compression: pictures crushed by JPEG, now or earlier in their life.

Two measures. `jpeg_quality` reads the file's own quantisation tables on the IJG scale (exact for libjpeg's
tables). `traced_quality` looks for a coarse JPEG in the *pixels*, so that a crushed picture saved again as PNG,
WebP or fine JPEG is found as well (see `pipeline.quantisation`). A row fails by the lower of the two.

Calibration (`tests/benchmarks/calibrate.py`): after JPEG at quality 5 to 20, saved again as PNG, WebP q 95 or
JPEG q 95, the traced quality is the true one with evidence ≥ 0.85 for nearly all pictures with some contrast;
untouched pictures show 0.4 at most, and JPEG q 50 imitates a coarser one with 0.6 at most: 0.75 lies between.
Flat drawings: equal blocks count once and fewer than 24 different ones give no trace, since in 4,900 PNG clip arts
the nine that looked like a coarse JPEG were all flags and icons of a few straight edges. A crushed drawing saved
again as PNG, on the other hand, often shows no more than 0.3 to 0.6 (its whites and blacks were clipped) and passes.
Default `min_quality` 25: blocks at q ≤ 20 are plain to see at normal viewing distance, at 30 hardly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from pydantic import Field

from pipeline.checks.base import Check, CheckSettings, Columns, Verdict, fail_where
from pipeline.image import Picture
from pipeline.quantisation import table_quality, traced_quality


class Compression(Check):
    version: ClassVar[int] = 3
    rank: ClassVar[int] = 20
    columns: ClassVar[dict[str, str]] = {
        "jpeg_quality": "IJG quality of the file's luma table, 1..100; null when it is no JPEG",
        "traced_quality": "IJG quality of a coarse JPEG (40 or less) that the pixels once went through; "
                          "null without trace",
        "trace_evidence": "how surely traced_quality is right, 0..1",
    }
    reasons: ClassVar[dict[str, str]] = {
        "heavy_compression": "JPEG quality below filter.compression.min_quality, in the file itself or in an earlier "
                             "life of the picture: visible blocks and ringing, which a model learns to draw. Look "
                             "for a better copy.",
    }

    class Settings(CheckSettings):
        min_quality: int = Field(25, ge=0, le=100, description="drop pictures of a lower JPEG quality, IJG scale")
        min_evidence: float = Field(0.75, ge=0, le=1, description="believe a traced quality from this evidence on")

    def measure(self, picture: Picture) -> dict[str, float]:
        traced, evidence = traced_quality(picture.levels)
        return {
            "jpeg_quality": table_quality(picture.header.quantisation),
            "traced_quality": traced,
            "trace_evidence": evidence,
        }

    def judge(self, columns: Columns, settings: Settings) -> Sequence[Verdict]:
        traced = np.where(columns["trace_evidence"] >= settings.min_evidence, columns["traced_quality"], np.nan)
        quality = np.fmin(columns["jpeg_quality"], traced)
        return fail_where(quality < settings.min_quality, reason="heavy_compression", value=quality,
                          threshold=settings.min_quality)
