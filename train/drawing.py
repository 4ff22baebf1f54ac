"""Pictures for `train sample`: drawn, written as PNG, listed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from PIL import Image

from pipeline import storage
from train.sample import Models, generate

LONGEST_NAME = 60


def draw_to_folder(models: Models, prompts: Sequence[str], folder: str, *, count: int, seed: int,
                   steps: int | None = None, guidance: float | None = None) -> list[dict[str, Any]]:
    """`count` pictures per prompt as `<prompt>-<seed>.png`; returns prompt, seed and file of each.

    A prompt's picture hangs on its seed alone, whatever else is drawn with it.
    """
    drawn = []
    for prompt in prompts:
        pictures = generate(models, [prompt] * count, seed, steps, guidance)
        for number, pixels in enumerate(pictures, start=seed):
            place = storage.join(folder, f"{file_stem(prompt)}-{number}.png")
            with storage.atomic_writer(place) as file:
                Image.fromarray(pixels).save(file, format="PNG")
            drawn.append({"prompt": prompt, "seed": number, "file": place})
    return drawn


def file_stem(prompt: str) -> str:
    """Letters and digits of a prompt, joined by hyphens."""
    return re.sub(r"[^\w]+", "-", prompt.lower()).strip("-")[:LONGEST_NAME] or "picture"
