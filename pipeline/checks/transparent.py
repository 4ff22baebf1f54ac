"""Transparent: cut-outs and overlays, most of which is not there; they are laid on white."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from pipeline.checks.base import Action, Check, CheckSettings, Columns, Verdict, fail_where


class Transparent(Check):
    rank: ClassVar[int] = 72
    reads: ClassVar[tuple[str, ...]] = ("alpha_share",)
    reasons: ClassVar[dict[str, str]] = {
        "transparent": "More than filter.transparent.max_share of the pixels are not fully opaque, and lie on white "
                       "now. Set filter.transparent.action to drop to do without cut-outs and overlays.",
    }

    class Settings(CheckSettings):
        action: Action = Field("flag", description="drop: remove the row; flag: only note it; off: do not judge")
        max_share: float = Field(0.5, ge=0, le=1, description="share of pixels that may be less than opaque, 0..1")

    def judge(self, columns: Columns, settings: Settings) -> Sequence[Verdict]:
        share = columns["alpha_share"]
        return fail_where(share > settings.max_share, reason="transparent", value=share, threshold=settings.max_share)
