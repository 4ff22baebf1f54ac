"""Sampling against flows and noise schedules whose solution is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.train.tinymodels import CAPTIONS, tiny_models
from train.models.settings import ObjectiveSettings
from train.objective import Objective
from train.sample import Models, generate, scheduler, start_noise, to_pixels

Solver = Literal["euler", "dpm++"]

OBJECTIVES: list[dict[str, Any]] = [
    {"prediction": "flow"}, {"prediction": "flow", "shift": 3.0}, {"prediction": "v"}, {"prediction": "epsilon"},
    {"prediction": "v", "zero_terminal_snr": True}, {"prediction": "v", "betas": "cosine"}]


class KnowsThePicture(nn.Module):
    """The ideal denoiser of a data set with one picture: what it predicts is exact at every timestep."""

    def __init__(self, objective: Objective, latent_chw: Tensor) -> None:
        super().__init__()
        self.objective, self.latent = objective, nn.Parameter(latent_chw)
        self.seen: list[float] = []

    def forward(self, noisy: Tensor, t: Tensor, text: Tensor, mask: Tensor) -> Tensor:
        self.seen.append(float(t[0]))
        clean = self.latent.expand_as(noisy)
        times = t.expand(len(noisy))
        # noised = signal · clean + noise share · noise, solved for the noise.
        zero, one = torch.zeros_like(clean), torch.ones_like(clean)
        signal = self.objective.noised(one, zero, times)
        share = self.objective.noised(zero, one, times)
        noise = (noisy - signal * clean) / share
        return self.objective.target(clean, noise, times)


def knowing(objective: dict[str, Any], solver: Solver = "euler") -> tuple[Models, Tensor]:
    models = tiny_models(objective, {"solver": solver, "steps": 8})
    latent = torch.randn(4, 4, 4, generator=torch.Generator().manual_seed(5))
    return replace(models, denoiser=KnowsThePicture(models.objective, latent)), latent


@pytest.mark.parametrize("solver", ["euler", "dpm++"])
@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda keys: "-".join(str(value) for value in keys.values()))
def test_the_ideal_denoiser_of_one_picture_draws_that_picture(objective: dict[str, Any], solver: Solver) -> None:
    """For one data point every solver step is exact, whatever the schedule: the end is the picture."""
    models, latent = knowing(objective, solver)
    drawn = generate(models, ["anything", "else"], seed=1, guidance=1.0)
    expected = to_pixels(models.vae.decode(latent[None]))
    assert drawn.shape == (2, 32, 32, 3)
    assert drawn.dtype == np.uint8
    assert np.abs(drawn.astype(int) - expected).max() <= 1


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda keys: "-".join(str(value) for value in keys.values()))
def test_timesteps_fall_from_noise_on_and_are_all_different(objective: dict[str, Any]) -> None:
    models, _ = knowing(objective)
    generate(models, ["anything"], seed=1)
    seen = models.denoiser.seen
    assert isinstance(seen, list)
    assert len(seen) == 8
    assert seen == sorted(set(seen), reverse=True)
    assert seen[0] >= 998


def test_the_first_order_step_on_flow_is_eulers() -> None:
    """x ← x + (σ' − σ) · v (Esser et al. 2024), for any v."""
    solver = scheduler(ObjectiveSettings(shift=2.0), "euler")
    solver.set_timesteps(5)
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(1, 2, 3, 3, generator=generator)
    for step, t in enumerate(solver.timesteps):
        v = torch.randn(1, 2, 3, 3, generator=generator)
        expected = x + (solver.sigmas[step + 1] - solver.sigmas[step]) * v
        x = solver.step(v, t, x).prev_sample
        torch.testing.assert_close(x, expected, rtol=1e-4, atol=1e-5)
    assert float(solver.sigmas[-1]) == 0.0


class Constant(nn.Module):
    """Predicts the mean of its text states: guidance then is plain arithmetic."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))
        self.batches: list[int] = []

    def forward(self, noisy: Tensor, t: Tensor, text: Tensor, mask: Tensor) -> Tensor:
        self.batches.append(len(noisy))
        return text.mean((1, 2))[:, None, None, None].expand_as(noisy)


@pytest.mark.parametrize("guidance", [1.0, 2.5])
def test_guidance_goes_from_the_empty_caption_past_the_prompt(guidance: float) -> None:
    """On flow with a constant prediction p the end is noise − σ_max · (p₀ + g · (p − p₀))."""
    constant = Constant()
    models = replace(tiny_models(), denoiser=constant)
    given, empty = (models.text.encode([caption])[0].mean() for caption in (CAPTIONS[0], ""))
    solver = scheduler(models.objective.settings, "euler")
    solver.set_timesteps(4)
    latents = start_noise(models, 3, 1) - solver.sigmas[0] * (empty + guidance * (given - empty))
    drawn = generate(models, [CAPTIONS[0]], seed=3, guidance=guidance)
    assert np.abs(drawn.astype(int) - to_pixels(models.vae.decode(latents))).max() <= 1
    assert constant.batches == [1 if guidance == 1.0 else 2] * 4


def test_a_picture_hangs_on_its_prompt_and_seed_not_on_its_batch() -> None:
    models = tiny_models()
    whole = generate(models, CAPTIONS, seed=10)
    assert np.abs(generate(models, CAPTIONS[1:2], seed=11)[0].astype(int) - whole[1]).max() <= 1
    small = replace(models, settings=tiny_models(sample={"batch": 2}).settings)
    assert np.abs(generate(small, CAPTIONS, seed=10).astype(int) - whole).max() <= 1
    assert not np.array_equal(generate(models, CAPTIONS, seed=20), whole)


def test_no_prompts_no_pictures() -> None:
    assert generate(tiny_models(), [], seed=0).shape == (0, 32, 32, 3)


def test_pixels_are_rounded_and_kept_in_range() -> None:
    values = torch.tensor([-2.0, -1.0, 0.0, 1 / 255, 1.0, 2.0])
    assert to_pixels(values.reshape(1, 1, 1, 6)).ravel().tolist() == [0, 0, 128, 128, 255, 255]
