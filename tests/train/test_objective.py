"""Objectives against published values and diffusers' schedulers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from diffusers import DDPMScheduler, FlowMatchEulerDiscreteScheduler
from diffusers.training_utils import compute_snr
from hypothesis import given, settings
from hypothesis import strategies as st

from train.models.settings import ObjectiveSettings
from train.objective import Objective, alphas_cumprod, shifted


def objective(**keys: Any) -> Objective:
    return Objective(ObjectiveSettings.model_validate({"timesteps": "uniform", **keys}))


def batch(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(4, 2, 3, 3, generator=generator), torch.randn(4, 2, 3, 3, generator=generator)


STABLE_DIFFUSION = {0: 0.99915, 250: 0.673793, 500: 0.276333, 750: 0.056170, 999: 0.00466010}
SIGNAL_TO_NOISE = {0: 1175.47, 250: 2.06553, 500: 0.381850, 750: 0.059513, 999: 0.00468192}


def test_stable_diffusions_schedule_has_its_published_values() -> None:
    kept = alphas_cumprod(ObjectiveSettings(prediction="epsilon"))
    for t, value in STABLE_DIFFUSION.items():
        assert float(kept[t]) == pytest.approx(value, rel=2e-5)
    times = torch.tensor(list(SIGNAL_TO_NOISE))
    ratios = objective(prediction="epsilon").snr(times).tolist()
    assert ratios == pytest.approx(list(SIGNAL_TO_NOISE.values()), rel=5e-5)


def test_zero_terminal_snr_rescales_the_schedule() -> None:
    kept = alphas_cumprod(ObjectiveSettings(prediction="v", zero_terminal_snr=True))
    assert float(kept[0]) == pytest.approx(0.99915, rel=1e-5)
    assert float(kept[500]) == pytest.approx(0.241019, rel=1e-5)
    assert float(kept[999]) == 0.0


@pytest.mark.parametrize(("ours", "theirs"), [
    ("scaled_linear", "scaled_linear"), ("linear", "linear"), ("cosine", "squaredcos_cap_v2")])
@pytest.mark.parametrize("zero", [False, True])
def test_schedules_are_those_of_diffusers(ours: Any, theirs: str, zero: bool) -> None:
    kept = alphas_cumprod(ObjectiveSettings(prediction="v", betas=ours, zero_terminal_snr=zero))
    oracle = DDPMScheduler(beta_schedule=theirs, beta_start=0.00085, beta_end=0.012, rescale_betas_zero_snr=zero)
    torch.testing.assert_close(kept, oracle.alphas_cumprod, rtol=2e-4, atol=1e-7)


@pytest.mark.parametrize("prediction", ["epsilon", "v"])
def test_noising_and_target_are_those_of_diffusers(prediction: str) -> None:
    mine, (latents, noise), t = objective(prediction=prediction), batch(), torch.tensor([0, 250, 500, 999])
    oracle = DDPMScheduler(beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012)
    torch.testing.assert_close(mine.noised(latents, noise, t), oracle.add_noise(latents, noise, t))
    target = noise if prediction == "epsilon" else oracle.get_velocity(latents, noise, t)
    torch.testing.assert_close(mine.target(latents, noise, t), target)


def test_flow_goes_straight_from_latents_to_noise() -> None:
    mine, (latents, noise) = objective(), batch()
    assert torch.equal(mine.noised(latents, noise, torch.zeros(4)), latents)
    torch.testing.assert_close(mine.noised(latents, noise, torch.full((4,), 1000.0)), noise)
    halfway = mine.noised(latents, noise, torch.full((4,), 500.0))
    torch.testing.assert_close(halfway, (latents + noise) / 2)
    assert torch.equal(mine.target(latents, noise, torch.zeros(4)), noise - latents)


def test_flow_noising_is_that_of_diffusers() -> None:
    mine, (latents, noise) = objective(shift=3.0), batch()
    oracle = FlowMatchEulerDiscreteScheduler(shift=3.0)
    t = oracle.timesteps[torch.tensor([0, 300, 700, 999])]
    torch.testing.assert_close(mine.noised(latents, noise, t), oracle.scale_noise(latents, t, noise))


def test_min_snr_weights_have_their_published_values() -> None:
    t = torch.tensor([0, 100])
    assert objective(prediction="epsilon", min_snr_gamma=5).weight(t).tolist() == pytest.approx(
        [0.00425362, 0.591443], rel=1e-4)
    assert objective(prediction="v", min_snr_gamma=5).weight(t).tolist() == pytest.approx([0.00425, 0.528882], rel=1e-4)


@pytest.mark.parametrize("prediction", ["epsilon", "v"])
def test_min_snr_weights_follow_diffusers_snr(prediction: str) -> None:
    t = torch.arange(1000)
    snr = compute_snr(DDPMScheduler(beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012), t)
    expected = torch.minimum(snr, torch.full_like(snr, 5.0)) / (snr if prediction == "epsilon" else snr + 1)
    torch.testing.assert_close(objective(prediction=prediction, min_snr_gamma=5.0).weight(t), expected)


def test_v_weights_stay_finite_at_zero_signal() -> None:
    mine = objective(prediction="v", zero_terminal_snr=True, min_snr_gamma=5.0)
    assert mine.weight(torch.tensor([999])).tolist() == [0.0]


def test_loss_is_the_weighted_mean_square_of_each_sample() -> None:
    mine, (a, b), t = objective(prediction="v", min_snr_gamma=5.0), batch(), torch.tensor([0, 100, 500, 999])
    plain = torch.tensor([float(((x - y) ** 2).mean()) for x, y in zip(a, b, strict=True)])
    torch.testing.assert_close(mine.loss(a, b, t), plain * mine.weight(t))
    torch.testing.assert_close(objective().loss(a, b, t.float()), plain)


@pytest.mark.parametrize(("t", "expected"), [(0.25, 0.5), (0.5, 0.75), (0.9, 0.964286)])
def test_shift_of_three(t: float, expected: float) -> None:
    assert float(shifted(torch.tensor(t), 3.0)) == pytest.approx(expected, abs=1e-6)
    assert float(objective(shift=3.0).timesteps(torch.tensor([t]))) == pytest.approx(1000 * expected, abs=1e-3)


def test_integer_timesteps_are_uniform() -> None:
    uniform = (torch.arange(4000) + 0.5) / 4000
    t = objective(prediction="v").timesteps(uniform)
    assert t.dtype == torch.long
    assert torch.bincount(t, minlength=1000).tolist() == [4] * 1000


def test_logit_normal_timesteps_are_a_gaussians_logistic() -> None:
    uniform = (torch.arange(10_000, dtype=torch.float64) + 0.5) / 10_000
    logits = torch.logit(objective(timesteps="logit_normal").timesteps(uniform).double() / 1000)
    assert float(logits.mean()) == pytest.approx(0.0, abs=1e-3)
    assert float(logits.std()) == pytest.approx(1.0, abs=2e-3)
    inside_one_sigma = float((logits.abs() < 1).double().mean())
    assert inside_one_sigma == pytest.approx(math.erf(1 / math.sqrt(2)), abs=1e-3)


@settings(max_examples=40)
@given(st.floats(0, 1, exclude_max=True, width=32), st.sampled_from(["flow", "v", "epsilon"]),
       st.sampled_from(["uniform", "logit_normal"]), st.integers(0, 2**16))
def test_every_uniform_number_gives_a_usable_timestep(u: float, prediction: str, timesteps: str, seed: int) -> None:
    mine, (latents, noise) = objective(prediction=prediction, timesteps=timesteps), batch(seed)
    t = mine.timesteps(torch.full((4,), u))
    assert bool(((t >= 0) & (t <= 1000)).all())
    assert bool(torch.isfinite(mine.noised(latents, noise, t)).all())


@settings(max_examples=40)
@given(st.integers(0, 999), st.integers(0, 2**16))
def test_v_and_epsilon_tell_the_same_latents(t: int, seed: int) -> None:
    """From x_t: x = √ᾱ·x_t − √(1 − ᾱ)·v and noise = √(1 − ᾱ)·x_t + √ᾱ·v (Salimans and Ho 2022)."""
    mine, (latents, noise), times = objective(prediction="v"), batch(seed), torch.full((4,), t)
    x_t, v = mine.noised(latents, noise, times), mine.target(latents, noise, times)
    kept = alphas_cumprod(mine.settings)[t]
    torch.testing.assert_close(kept.sqrt() * x_t - (1 - kept).sqrt() * v, latents, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close((1 - kept).sqrt() * x_t + kept.sqrt() * v, noise, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("keys", [
    {"prediction": "epsilon", "zero_terminal_snr": True}, {"prediction": "flow", "min_snr_gamma": 5.0},
    {"prediction": "v", "shift": 3.0}])
def test_settings_that_contradict_each_other_are_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="prediction"):
        objective(**keys)
