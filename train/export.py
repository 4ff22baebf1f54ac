"""The trained models as a diffusers pipeline directory, which `DiffusionPipeline.from_pretrained` opens as it is."""

from __future__ import annotations

import os
import tempfile
from typing import Any, cast

from pipeline.errors import StorageError, TrainingError
from train.models.loading import quiet
from train.sample import Models, scheduler

READ_ME = """\
# {name}

A text-to-image pipeline trained by Gristmill: StableDiffusionPipeline with {vae}, {text} and {unet}.
It draws {side} x {side} pixels. `train sample --seed S` draws picture i from seed S + i; the same here:

```python
import torch
from diffusers import DiffusionPipeline

pipeline = DiffusionPipeline.from_pretrained("{name}")
prompts = ["a red circle", "a blue star"]
seeds = [torch.Generator().manual_seed({seed} + i) for i in range(len(prompts))]
pictures = pipeline(prompts, generator=seeds, num_inference_steps={steps}, guidance_scale={guidance}).images
```
"""


def export(models: Models, folder: str) -> str:
    """Write a StableDiffusionPipeline to a local folder and return it; whatever was there is replaced at the end.

    Raises TrainingError for a model that this pipeline cannot hold, StorageError when the folder cannot be written.
    """
    pipeline = as_pipeline(models)
    target = os.path.abspath(folder)
    if os.path.lexists(target) and not os.path.isdir(target):
        raise StorageError(f"{folder} is a file", hint="give a folder, new or with an older pipeline")
    if os.path.isdir(target) and os.listdir(target) and not os.path.exists(os.path.join(target, "model_index.json")):
        raise StorageError(f"{folder} exists and holds no pipeline", hint="give an empty or a new folder")
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".export-", dir=os.path.dirname(target)) as rough:
            made = os.path.join(rough, "pipeline")
            with quiet():
                pipeline.save_pretrained(made, safe_serialization=True)
            with open(os.path.join(made, "README.md"), "w", encoding="utf-8") as file:
                file.write(_read_me(models, os.path.basename(target)))
            _replace(target, made, os.path.join(rough, "before"))
    except OSError as error:
        raise StorageError(f"cannot write {folder}: {error.strerror or error}",
                           hint="give a folder on a disk with room, to which you may write") from error
    return folder


def _replace(target: str, made: str, before: str) -> None:
    """Put `made` in the target's place; what was there comes back when that fails."""
    if os.path.exists(target):
        os.rename(target, before)
    try:
        os.rename(made, target)
    except OSError:
        if os.path.exists(before):
            os.rename(before, target)
        raise


def as_pipeline(models: Models) -> Any:
    """The models as a StableDiffusionPipeline in memory, sharing their weights. Raises TrainingError."""
    from diffusers import StableDiffusionPipeline

    if models.vae.shift:
        raise TrainingError(
            f"the VAE shifts its latents by {models.vae.shift:g}, which StableDiffusionPipeline does not undo",
            hint="export is for VAEs without shift_factor, such as Stable Diffusion's, SDXL's or one trained here")
    with quiet():
        return StableDiffusionPipeline(
            vae=models.vae.module, text_encoder=models.text.module, tokenizer=models.text.tokenizer,
            unet=cast(Any, models.denoiser).model,
            scheduler=scheduler(models.objective.settings, models.settings.sample.solver),
            safety_checker=None, feature_extractor=None, requires_safety_checker=False)


def _read_me(models: Models, name: str) -> str:
    sample = models.settings.sample
    return READ_ME.format(
        name=name, vae=type(models.vae.module).__name__, text=type(models.text.module).__name__,
        unet=type(cast(Any, models.denoiser).model).__name__, side=models.settings.resolution, seed=0,
        steps=sample.steps, guidance=sample.guidance)
