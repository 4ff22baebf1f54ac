"""Bars: letterboxes and pillarboxes, plain bands on two opposite sides that a player or an upload added.

Lines of pixels from an edge inwards make a band while they are plain (at most `_SPAN` levels from darkest to brightest)
and of the outermost line's tone, if the picture then begins along most of the band: a subject on a plain ground meets
it in a few places only. Bands above *and* below, or left *and* right, are bars; the box inside lies at `border_top` …
`border_right`, and `shard.crop_borders` cuts it out. Only noted by default, since drawings can look the same: of 300
clip arts 18 were called so, of 47 photographs and 100 scenes of the demo none. Of 40 photographs at 1024 px with bars
of a fifth of their height above and below (black, dark grey or white; JPEG q 60 and 90) 95 % have both bars found,
nine tenths of these to the very line; the others are dark or pale where they meet the bar.
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
"""Lines by which a JPEG block and rescaling may smear a band's end, at most. They are the band's while most of them are
of its tone."""
_SIDES = ("border_top", "border_bottom", "border_left", "border_right")


class Bars(Check):
    version: ClassVar[int] = 2
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
        across, down = _shares(columns)
        share = np.where((across > 0) & (down > 0), 0.0, np.maximum(across, down))
        return fail_where(share > settings.max_share, reason="letterbox", value=share, threshold=settings.max_share)


def inside(columns: Columns) -> NDArray[np.float64]:
    """What bars leave of each picture, (rows, 4): left, top, right and bottom, px, the latter two exclusive. `columns`
    as `judge` is given them; NaN where they are null."""
    across, down = _shares(columns)
    top, bottom, left, right = (columns[side] for side in _SIDES)
    return np.stack([np.where(down > 0, left, 0), np.where(across > 0, top, 0),
                     columns["width"] - np.where(down > 0, right, 0),
                     columns["height"] - np.where(across > 0, bottom, 0)], axis=1)


def _band(lines: NDArray[np.uint8]) -> int:
    """How many lines, from the first on, make a band; 0 where the picture does not begin along most of it."""
    end = int(kernels().plain_lines(lines, _SPAN, _DRIFT))
    if end < 1 or end + _INSIDE >= len(lines):
        return 0
    tone = (float(lines[0].max()) + float(lines[0].min())) / 2
    begun = np.mean(np.abs(lines[end:end + _INSIDE + 1].astype(np.float32) - tone) > _SPAN, axis=1) > 0.5
    return end + int(begun.argmax()) if begun[-1] else 0


def _shares(columns: Columns) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Share of the height that bars above and below take, and of the width left and right: 0 where only one end has
    any, NaN where it is not known."""
    pairs = ((*_SIDES[:2], "height"), (*_SIDES[2:], "width"))
    across, down = (np.where((columns[one] == 0) | (columns[other] == 0), 0.0,
                             (columns[one] + columns[other]) / columns[side]) for one, other, side in pairs)
    return across, down
