"""Bars: letterboxes and pillarboxes, plain bands on two opposite sides that a player or an upload added.

Lines of pixels from an edge inwards make a band while they are plain (at most `_SPAN` levels from darkest to brightest)
and of the outermost line's tone, if the picture then begins along most of the band: a subject on a plain ground meets
it in a few places only. Bands above *and* below, or left *and* right, are bars; the box inside lies at `border_top` …
`border_right`. Only noted by default, since drawings can look the same: of 300 clip arts 18 were called so, of 47
photographs and 100 scenes of the demo none. Of the photographs with bars of a sixth of their height added (black, dark
grey or white; JPEG q 60 and 90) 88 % are found to within 8 px; the others are dark or pale where they meet the bar.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pipeline.checks.base import Action, Check, CheckSettings, Columns, Verdict, fail_where
from pipeline.image import Picture
from pipeline.kernels import kernels

_SPAN, _DRIFT = 10, 4
_INSIDE = 10
"""Lines by which a JPEG block and rescaling may smear a band's end, at most."""
_SIDES = ("border_top", "border_bottom", "border_left", "border_right")


class Bars(Check):
    rank: ClassVar[int] = 60
    columns: ClassVar[dict[str, str]] = {
        side: f"plain lines at the {side.removeprefix('border_')} edge, px" for side in _SIDES
    }
    reads: ClassVar[tuple[str, ...]] = ("width", "height")
    reasons: ClassVar[dict[str, str]] = {
        "letterbox": "Plain bands on two opposite sides take more than filter.bars.max_share of the picture; a model "
                     "learns to draw them. Look for the uncropped original, or raise max_share.",
    }

    class Settings(CheckSettings):
        action: Action = Field("flag", description="drop: remove the row; flag: only note it; off: do not judge")
        max_share: float = Field(0.1, ge=0, le=1, description="share of the height or width that bars may take, 0..1")

    def measure(self, picture: Picture) -> dict[str, float]:
        luma = picture.levels
        bands = (_band(luma), _band(luma[::-1]), _band(luma.T), _band(luma.T[::-1]))
        return dict(zip(_SIDES, map(float, bands), strict=True))

    def judge(self, columns: Columns, settings: Settings) -> Sequence[Verdict]:
        across = _bars(columns["border_top"], columns["border_bottom"], columns["height"])
        down = _bars(columns["border_left"], columns["border_right"], columns["width"])
        share = np.where((across > 0) & (down > 0), 0.0, np.maximum(across, down))
        return fail_where(share > settings.max_share, reason="letterbox", value=share, threshold=settings.max_share)


def _band(lines: NDArray[np.uint8]) -> int:
    """How many lines, from the first on, make a band; 0 where the picture does not begin along most of it."""
    end = int(kernels().plain_lines(lines, _SPAN, _DRIFT))
    if end < 1 or end + _INSIDE >= len(lines):
        return 0
    tone = (float(lines[0].max()) + float(lines[0].min())) / 2
    return end if np.mean(np.abs(lines[end + _INSIDE].astype(np.float32) - tone) > _SPAN) > 0.5 else 0


def _bars(one: NDArray[np.float64], other: NDArray[np.float64], side: NDArray[np.float64]) -> NDArray[np.float64]:
    """Share of the side that bands at both its ends take; 0 where only one end has any, NaN where it is not known."""
    return np.where((one == 0) | (other == 0), 0.0, (one + other) / side)
