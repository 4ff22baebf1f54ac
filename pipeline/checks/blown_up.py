"""Blown up: far fewer pixels of detail than the file has, because a small picture was enlarged.

`edge_sharpness` at native size: pictures at their own size gave 0.44 to 1.3 on 44 photographs and drawings (one soft
one 0.31), the same enlarged ×2 by bicubic interpolation 0.30 to 0.79, ×3 0.28 to 0.44, ×4 0.22 to 0.38.
Enlarging and blurring leave the same trace; the reason names the likelier cause, the plainer one first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from pipeline.checks.base import Check, CheckSettings, Columns, Verdict, fail_where
from pipeline.edges import edge_sharpness
from pipeline.image import Picture


class BlownUp(Check):
    rank: ClassVar[int] = 45
    columns: ClassVar[dict[str, str]] = {
        "native_sharpness": "slope over range of the sharpest edges at native size, per px; about 0.4 / blur σ",
    }
    reasons: ClassVar[dict[str, str]] = {
        "blown_up": "No edge is as sharp as its pixels allow: a small picture was enlarged. Lower "
                    "filter.blown_up.min_native_sharpness to keep softer pictures.",
    }

    class Settings(CheckSettings):
        min_native_sharpness: float = Field(
            0.36, ge=0, le=1.5, description="drop pictures whose sharpest edges are below this at native size, per px"
        )

    def measure(self, picture: Picture) -> dict[str, float]:
        return {"native_sharpness": edge_sharpness(picture.luma)}

    def judge(self, columns: Columns, settings: Settings) -> Sequence[Verdict]:
        sharpness = columns["native_sharpness"]
        return fail_where(sharpness < settings.min_native_sharpness, reason="blown_up", value=sharpness,
                          threshold=settings.min_native_sharpness)
