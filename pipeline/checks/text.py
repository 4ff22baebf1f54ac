"""Text: how much of the picture is writing, found by a text detector; scanned pages, screenshots, memes, watermarks.

`text_share` is the area of the boxes that the detector draws around lines of writing, over the picture's, and
`text_lines` their number. The detector is PaddleOCR's, by way of rapidocr (the extra `ocr`), which looks at the picture
at 640 px and takes about 0.15 s of a core for it: more than all other checks together. So this check is off, and
measures nothing, until the recipe turns it on. It finds writing and cannot tell a street sign from a watermark.

Calibration: of 195 cuts of one megapixel from 39 photographs the most had a share of 0.025, 192 less than 0.004. Of 33
of them with two lines of large letters laid over, as in memes, all had 0.11 to 0.21; with one line of 6 % of the height
across the middle, as a watermark, 0.013 to 0.047; with one of 3 %, 30 of 33 more than 0.001 and at most 0.015. Pages of
small type had 0.42 and more.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from pipeline.checks.base import Action, Check, CheckSettings, Columns, Verdict
from pipeline.errors import ModelError
from pipeline.image import Picture

SIDE = 640
"""Longer side at which writing is looked for, px."""
_TALLEST = 0.2
"""Height of a line of writing over the picture's shorter side, at most: the detector takes some soft subjects, whole,
for one huge letter."""


class Text(Check):
    rank: ClassVar[int] = 55
    costly: ClassVar[bool] = True
    columns: ClassVar[dict[str, str]] = {
        "text_share": "share of the picture inside boxes around lines of writing, 0..1; null unless filter.text is on",
        "text_lines": "lines of writing found; null unless filter.text is on",
    }
    reasons: ClassVar[dict[str, str]] = {
        "much_text": "More than filter.text.max_share of the picture is writing: a page, a screenshot, a meme or a "
                     "large watermark, which a model learns to scribble. Raise max_share to keep it.",
        "many_lines": "More lines of writing than filter.text.max_lines.",
    }

    class Settings(CheckSettings):
        action: Action = Field("off", description="drop: remove the row; flag: only note it; off: do not look for it, "
                               "which saves most of the time that measuring takes; needs the extra `ocr`")
        max_share: float = Field(0.08, ge=0, le=1, description="share of the picture that may be writing, 0..1; 0.01 "
                                                               "leaves few watermarks")
        max_lines: int = Field(12, ge=0, description="lines of writing that a picture may have")

    def ready(self) -> None:
        """Raises ModelError without the extra `ocr`."""
        if find_spec("rapidocr") is None or find_spec("onnxruntime") is None:
            raise ModelError("filter.text needs a text detector, which is not installed",
                             hint='pip install "gristmill[ocr]", or set filter.text.action = "off"')

    def fingerprint(self) -> object:
        return [self.version, version("rapidocr")]

    def measure(self, picture: Picture) -> dict[str, float]:
        image = picture.pil()
        scale = min(1.0, SIDE / max(image.size))
        size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
        boxes = _detector()(np.asarray(image.resize(size, reducing_gap=3.0)), use_det=True, use_cls=False,
                            use_rec=False).boxes
        if boxes is None:
            return {"text_share": 0.0, "text_lines": 0.0}
        corners = np.asarray(boxes, np.float64)  # (n, 4, 2), in order around each box
        sides = np.linalg.norm(np.roll(corners, -1, 1) - corners, axis=2)
        lengths, heights = (sides[:, 0] + sides[:, 2]) / 2, (sides[:, 1] + sides[:, 3]) / 2
        lines = np.minimum(lengths, heights) <= _TALLEST * min(size)
        share = float((lengths * heights)[lines].sum()) / (size[0] * size[1])
        return {"text_share": min(1.0, share), "text_lines": float(lines.sum())}

    def judge(self, columns: Columns, settings: Settings) -> Sequence[Verdict]:
        share, lines = columns["text_share"], columns["text_lines"]
        return [Verdict(share > settings.max_share, "much_text", share, settings.max_share),
                Verdict(lines > settings.max_lines, "many_lines", lines, settings.max_lines)]


@cache
def _detector() -> Any:
    """One thread: there is a process per core."""
    from rapidocr import RapidOCR

    logging.getLogger("RapidOCR").setLevel(logging.ERROR)
    threads = {f"EngineConfig.onnxruntime.{kind}_op_num_threads": 1 for kind in ("intra", "inter")}
    limit = {"Det.limit_type": "max", "Det.limit_side_len": SIDE}
    return RapidOCR(params={**threads, **limit, "Global.log_level": "error"})
