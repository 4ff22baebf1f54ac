"""Models small enough for tests, with fresh weights."""

from __future__ import annotations

from typing import Any

import torch

from train.config import TrainSettings
from train.models import build_denoiser, build_text, build_vae
from train.objective import Objective
from train.sample import Models

CAPTIONS = ["a red circle", "a blue square", "a teal star"]


def tiny_models(objective: dict[str, Any] | None = None, sample: dict[str, Any] | None = None,
                vae: dict[str, Any] | None = None) -> Models:
    """Untrained models for 32 × 32 pixels whose latents have unit deviation."""
    settings = TrainSettings.model_validate({
        "resolution": 32, "vae": vae or {"widths": (8,), "layers": 1, "latent_channels": 4, "downsample": 8},
        "text": {"width": 16, "heads": 2, "max_tokens": 10}, "denoiser": {"widths": (16, 32), "heads": 2},
        "objective": objective or {}, "sample": {"steps": 4, **(sample or {})}})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = build_vae(settings.vae)
        text = build_text(settings.text, "any", captions=CAPTIONS * 2)
        denoiser = build_denoiser(settings.denoiser, text.width, (made.latent_channels, 4, 4))
        made.fit_scale(made.encode(torch.rand(8, 3, 32, 32) * 2 - 1))
    for module in (made.module, text.module, denoiser):
        module.eval().requires_grad_(False)
    return Models(made, text, denoiser, Objective(settings.objective), settings)
