"""Noising, targets, loss weights and timesteps: pure functions of their tensors.

Timesteps `t_b` are what networks and diffusers' schedulers take: 0 is a clean latent, 1000 noise. Flow matching
uses any real t with σ = t / 1000; v and epsilon use the integers 0 … 999 as an index into ᾱ.
"""

from __future__ import annotations

import torch
from torch import Tensor

from train.models.settings import TRAIN_TIMESTEPS, ObjectiveSettings


class Objective:
    """One prediction type on one noise schedule.

    flow (Lipman et al. 2023; Liu et al. 2023): x_t = (1 − σ)·x + σ·noise, target noise − x.
    epsilon (Ho et al. 2020), v (Salimans and Ho 2022): x_t = √ᾱ·x + √(1 − ᾱ)·noise, target noise, or
    √ᾱ·noise − √(1 − ᾱ)·x.
    """

    def __init__(self, settings: ObjectiveSettings) -> None:
        self.settings = settings
        self.alphas_cumprod = alphas_cumprod(settings)

    def timesteps(self, uniform_b: Tensor) -> Tensor:
        """Training timesteps (b,) from uniform numbers in [0, 1), by inverse distribution functions.

        logit_normal: the logistic function of a unit Gaussian (Esser et al. 2024). Monotonic in `uniform_b`.
        """
        share = uniform_b.double()
        if self.settings.timesteps == "logit_normal":
            share = torch.sigmoid(torch.special.ndtri(share.clamp(1e-7, 1 - 1e-7)))
        if self.settings.prediction == "flow":
            return (shifted(share, self.settings.shift) * TRAIN_TIMESTEPS).float()
        return (share * TRAIN_TIMESTEPS).long().clamp(max=TRAIN_TIMESTEPS - 1)

    def noised(self, latents_bchw: Tensor, noise_bchw: Tensor, t_b: Tensor) -> Tensor:
        """The latents at timesteps t_b."""
        signal, noise = self._shares(t_b)
        return signal * latents_bchw + noise * noise_bchw

    def target(self, latents_bchw: Tensor, noise_bchw: Tensor, t_b: Tensor) -> Tensor:
        """What the denoiser should predict from `noised(…)`."""
        if self.settings.prediction == "flow":
            return noise_bchw - latents_bchw
        if self.settings.prediction == "epsilon":
            return noise_bchw
        signal, noise = self._shares(t_b)
        return signal * noise_bchw - noise * latents_bchw

    def loss(self, prediction_bchw: Tensor, target_bchw: Tensor, t_b: Tensor) -> Tensor:
        """Weighted mean square error per sample (b,)."""
        error_b = (prediction_bchw - target_bchw).square().flatten(1).mean(1)
        return error_b * self.weight(t_b)

    def weight(self, t_b: Tensor) -> Tensor:
        """Loss weight (b,): 1, or min-SNR-γ (Hang et al. 2023): min(SNR, γ) / SNR for epsilon, / (SNR + 1) for v."""
        gamma = self.settings.min_snr_gamma
        if gamma is None:
            return torch.ones_like(t_b, dtype=torch.float32)
        snr = self.snr(t_b)
        return snr.clamp(max=gamma) / (snr if self.settings.prediction == "epsilon" else snr + 1)

    def snr(self, t_b: Tensor) -> Tensor:
        """Signal-to-noise ratio (b,) of power: ᾱ / (1 − ᾱ), or ((1 − σ) / σ)² for flow."""
        if self.settings.prediction == "flow":
            sigma = t_b.float() / TRAIN_TIMESTEPS
            return ((1 - sigma) / sigma).square()
        kept = self.alphas_cumprod.to(t_b.device)[t_b.long()]
        return kept / (1 - kept)

    def _shares(self, t_b: Tensor) -> tuple[Tensor, Tensor]:
        """How much of the latents and of the noise a noised latent holds, each (b, 1, 1, 1)."""
        if self.settings.prediction == "flow":
            sigma = t_b.float() / TRAIN_TIMESTEPS
            signal, noise = 1 - sigma, sigma
        else:
            kept = self.alphas_cumprod.to(t_b.device)[t_b.long()]
            signal, noise = kept.sqrt(), (1 - kept).sqrt()
        return signal[:, None, None, None], noise[:, None, None, None]


def shifted(t: Tensor, shift: float) -> Tensor:
    """Timestep shift for higher resolutions (Esser et al. 2024): t ↦ s·t / (1 + (s − 1)·t), on 0..1."""
    return shift * t / (1 + (shift - 1) * t)


def alphas_cumprod(settings: ObjectiveSettings) -> Tensor:
    """ᾱ at timesteps 0 … 999, float32 (1000,)."""
    steps = TRAIN_TIMESTEPS
    if settings.betas == "linear":
        betas = torch.linspace(settings.beta_start, settings.beta_end, steps, dtype=torch.float64)
    elif settings.betas == "scaled_linear":
        betas = torch.linspace(settings.beta_start**0.5, settings.beta_end**0.5, steps, dtype=torch.float64).square()
    else:  # Nichol and Dhariwal 2021
        at = torch.arange(steps + 1, dtype=torch.float64) / steps
        level = torch.cos((at + 0.008) / 1.008 * torch.pi / 2).square()
        betas = (1 - level[1:] / level[:-1]).clamp(max=0.999)
    kept = (1 - betas).cumprod(0)
    if settings.zero_terminal_snr:  # Lin et al. 2024, algorithm 1
        root = kept.sqrt()
        root = (root - root[-1]) * root[0] / (root[0] - root[-1])
        kept = root.square()
    return kept.float()
