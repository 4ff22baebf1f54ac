"""Animated: files of several frames, of which only the first is used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from pipeline.checks.base import Action, Check, CheckSettings, Columns, Verdict, fail_where


class Animated(Check):
    rank: ClassVar[int] = 71
    reads: ClassVar[tuple[str, ...]] = ("frames",)
    reasons: ClassVar[dict[str, str]] = {
        "animated": "The file has more than filter.animated.max_frames frames; only the first is used, and it may be a "
                    "title or an empty stage. Set filter.animated.action to drop to do without such files.",
    }

    class Settings(CheckSettings):
        action: Action = Field("flag", description="drop: remove the row; flag: only note it; off: do not judge")
        max_frames: int = Field(1, ge=1, description="frames that a picture may have")

    def judge(self, columns: Columns, settings: Settings) -> Sequence[Verdict]:
        frames = columns["frames"]
        return fail_where(frames > settings.max_frames, reason="animated", value=frames, threshold=settings.max_frames)
