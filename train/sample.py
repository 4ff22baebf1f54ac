"""Drawing pictures: classifier-free guidance over diffusers' own schedulers, so that an exported pipeline agrees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from train.config import TrainSettings
from train.models.settings import TRAIN_TIMESTEPS, ObjectiveSettings
from train.models.text import TextEncoder
from train.models.vae import Vae
from train.objective import Objective

PREDICTION_NAMES = {"epsilon": "epsilon", "v": "v_prediction"}
BETA_NAMES = {"scaled_linear": "scaled_linear", "linear": "linear", "cosine": "squaredcos_cap_v2"}


@dataclass(frozen=True)
class Models:
    """All that drawing takes, on one device."""

    vae: Vae
    text: TextEncoder
    denoiser: nn.Module
    objective: Objective
    settings: TrainSettings

    @property
    def device(self) -> torch.device:
        return next(self.denoiser.parameters()).device


@torch.no_grad()
def generate(
    models: Models, prompts: Sequence[str], seed: int, steps: int | None = None, guidance: float | None = None
) -> NDArray[np.uint8]:
    """One square picture per prompt: uint8 (n, H, W, 3). `steps` and `guidance` default to the recipe's.

    Picture i starts from the noise of seed + i, drawn on the CPU: the same on every device and whatever else is
    drawn beside it, and what diffusers draws from `torch.Generator().manual_seed(seed + i)`.
    """
    settings = models.settings.sample
    steps = settings.steps if steps is None else steps
    guidance = settings.guidance if guidance is None else guidance
    drawn = []
    for begin in range(0, len(prompts), settings.batch):
        part = list(prompts[begin:begin + settings.batch])
        latents = _denoised(models, part, start_noise(models, seed + begin, len(part)), steps, guidance)
        drawn.append(to_pixels(models.vae.decode(latents)))
    side = models.settings.resolution
    return np.concatenate(drawn) if drawn else np.zeros((0, side, side, 3), np.uint8)


def start_noise(models: Models, seed: int, count: int) -> Tensor:
    """Unit Gaussian noise (count, c, h, w) on the CPU, row i from seed + i."""
    side = models.settings.resolution // models.vae.downsample
    shape = (models.vae.latent_channels, side, side)
    return torch.stack([
        torch.randn(shape, generator=torch.Generator().manual_seed(seed + index)) for index in range(count)])


def _denoised(models: Models, prompts: list[str], noise_bchw: Tensor, steps: int, guidance: float) -> Tensor:
    """Latents (b, c, h, w). Guidance g: unconditional + g · (conditional − unconditional) (Ho and Salimans 2022)."""
    text_bld, mask_bl = models.text.encode(prompts)
    guided = guidance != 1.0
    if guided:
        empty_bld, empty_bl = models.text.encode([""] * len(prompts))
        text_bld, mask_bl = torch.cat([empty_bld, text_bld]), torch.cat([empty_bl, mask_bl])
    solver = scheduler(models.objective.settings, models.settings.sample.solver)
    solver.set_timesteps(steps, device=models.device)
    latents: Tensor = noise_bchw.to(models.device) * solver.init_noise_sigma
    for t in solver.timesteps:
        doubled = solver.scale_model_input(torch.cat([latents, latents]) if guided else latents, t)
        prediction = models.denoiser(doubled, t.expand(len(doubled)), text_bld, mask_bl)
        if guided:
            without, given = prediction.chunk(2)
            prediction = without + guidance * (given - without)
        latents = solver.step(prediction, t, latents).prev_sample
    return latents


def to_pixels(drawn_bchw: Tensor) -> NDArray[np.uint8]:
    """Decoded pictures of -1..1 as uint8 (b, H, W, 3), rounded as diffusers rounds them."""
    shares = (drawn_bchw.float() / 2 + 0.5).clamp(0, 1)
    return (shares.permute(0, 2, 3, 1).cpu().numpy() * 255).round().astype(np.uint8)


def scheduler(settings: ObjectiveSettings, solver: Literal["euler", "dpm++"]) -> Any:
    """The diffusers scheduler that solves what a denoiser with this objective has learnt.

    euler: the first-order step, which for v and epsilon is DDIM (Song et al. 2021). dpm++: the second-order multistep
    DPM-Solver++ (Lu et al. 2022), whose first-order form on flow sigmas is the Euler step; FlowMatchEuler's own class
    would do, but StableDiffusionPipeline cannot run it.
    """
    from diffusers import DDIMScheduler, DPMSolverMultistepScheduler

    order = 1 if solver == "euler" else 2
    if settings.prediction == "flow":
        return DPMSolverMultistepScheduler(
            num_train_timesteps=TRAIN_TIMESTEPS, prediction_type="flow_prediction", use_flow_sigmas=True,
            flow_shift=settings.shift, solver_order=order, steps_offset=1)
    # Trailing spacing starts at the last timestep, whose signal is the one that training saw (Lin et al. 2024).
    shared: dict[str, Any] = {
        "num_train_timesteps": TRAIN_TIMESTEPS, "beta_schedule": BETA_NAMES[settings.betas],
        "beta_start": settings.beta_start, "beta_end": settings.beta_end,
        "prediction_type": PREDICTION_NAMES[settings.prediction], "timestep_spacing": "trailing", "steps_offset": 1,
        "rescale_betas_zero_snr": settings.zero_terminal_snr}
    if solver == "euler":
        return DDIMScheduler(clip_sample=False, set_alpha_to_one=True, **shared)
    return DPMSolverMultistepScheduler(solver_order=order, **shared)
