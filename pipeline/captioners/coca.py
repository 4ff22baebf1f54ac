"""CoCa: open_clip's captioning CLIP (Yu et al. 2022), greedy decoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pipeline import clip
from pipeline.captioners.base import Captioner, CaptionerSettings
from pipeline.errors import ModelError


class CocaSettings(CaptionerSettings):
    kind: Literal["coca"] = Field("coca", description="open_clip's CoCa")
    model: str = Field(
        "coca_ViT-L-14",
        description='open_clip CoCa architecture, "local-dir:/folder" or "hf-hub:name/repository"',
    )
    pretrained: str | None = Field(
        "mscoco_finetuned_laion2b_s13b_b90k",
        description="open_clip weights tag or a weights file; unused for folders",
    )
    precision: Literal["fp32", "bf16", "fp16"] = Field("fp32", description="number format of the model")
    device: str = Field("auto", description='torch device, e.g. "cuda:0"; auto: a GPU if there is one')
    batch: int = Field(32, ge=1, description="pictures per model batch; short batches are padded to it")


class Coca(Captioner):
    """Writes one caption per picture."""

    Settings = CocaSettings

    @classmethod
    def check(cls, settings: CaptionerSettings, recipe_name: str) -> None:
        given = cast(CocaSettings, settings)
        if given.model == clip.NONE or not clip.writes_captions(given.model):
            raise ModelError(
                f"{given.model} is no CoCa model and writes no captions",
                hint='e.g. model = "coca_ViT-L-14", pretrained = "mscoco_finetuned_laion2b_s13b_b90k"; '
                'or caption.when = "none"',
            )
        clip.check(given.model, given.pretrained, recipe_name=recipe_name)

    @classmethod
    def fingerprint(cls, settings: CaptionerSettings) -> dict[str, Any]:
        given = cast(CocaSettings, settings)
        return {"clip": clip.describe(given.model, given.pretrained).fingerprint}

    def __init__(self, settings: CaptionerSettings, recipe_name: str) -> None:
        given = cast(CocaSettings, settings)
        self.clip = clip.load(
            given.model, given.pretrained, recipe_name=recipe_name, device=given.device,
            precision=given.precision, batch=given.batch,
        )  # fmt: skip

    def write(self, pictures: Sequence[NDArray[np.uint8]]) -> list[list[str]]:
        return [[text] if text else [] for text in self.clip.generate(pictures)]
