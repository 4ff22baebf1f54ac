"""Settings of the models, the objective, sampling and evaluation. Cheap to import: no torch.

`train.config.TrainSettings` nests them; `OptimiserSettings` is there for the VAE and the denoiser alike.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from pipeline.settings import Settings

TRAIN_TIMESTEPS = 1000
"""Timesteps run from 0 (a clean latent) to 1000 (noise), as in diffusers' schedulers."""


class OptimiserSettings(Settings):
    """AdamW or Muon with a linear warm-up and a cosine, the same for the VAE and the denoiser."""

    kind: Literal["adamw", "muon"] = Field(
        "adamw", description="muon: Muon for the matrices inside the networks, AdamW for tables, biases and norms")
    steps: int = Field(1000, ge=1, description="optimiser steps of `batch` samples each")
    batch: int = Field(
        64, ge=1, description="samples per optimiser step, over all ranks and accumulation together")
    accumulate: int = Field(
        1, ge=1, description="micro-batches per step on each rank; lowers memory, changes nothing")
    lr: float = Field(1e-3, gt=0, description="peak learning rate of AdamW")
    muon_lr: float = Field(0.02, gt=0, description="muon: its peak learning rate; follows the same curve")
    final_lr: float = Field(
        0.0, ge=0, le=1, description="share of the peak rate at the end of the cosine, 0..1")
    warmup_steps: int | None = Field(
        None, ge=0, description="linear warm-up in steps; unset: the smaller of 500 steps and 5 % of the run")
    betas: tuple[float, float] = Field((0.9, 0.99), description="AdamW's running-mean factors")
    weight_decay: float = Field(
        0.01, ge=0, description="decoupled weight decay; not applied to biases and norms")
    clip_norm: float = Field(
        1.0, gt=0, description="largest L2 norm of the whole gradient; longer ones are shortened")
    ema_half_life: int = Field(
        16_000, ge=0,
        description="samples after which a weight's share in the running average has halved; 0: no EMA")
    ema_ramp: float = Field(
        0.05, ge=0, le=1,
        description="the half-life is at most this share of the samples seen, so early weights fade")


class VaeSettings(Settings):
    """The autoencoder between pixels and latents. Pixels are -1..1, latents have about unit standard deviation."""

    kind: Literal["tiny", "kl"] = Field(
        "tiny",
        description="tiny: AutoencoderTiny, plain convolutions, quick on a CPU; kl: AutoencoderKL, Stable Diffusion's")
    pretrained: str | None = Field(
        None, description="folder or hub name of a ready diffusers VAE; then it is frozen and training skips it")
    subfolder: str | None = Field(
        None, description="folder inside `pretrained` that holds the VAE, e.g. vae for a whole pipeline")
    latent_channels: int = Field(4, ge=1, description="channels of a latent")
    downsample: int = Field(4, ge=1, description="pixels per latent cell along one side; a power of two")
    widths: tuple[int, ...] = Field(
        (32,), min_length=1,
        description="channels of each resolution level, finest first; tiny has one width for all levels")
    layers: int = Field(1, ge=1, description="residual blocks per level (tiny: on the two coarsest levels only)")
    kl_weight: float = Field(
        1e-6, ge=0, description="kl: weight of the KL divergence from a unit Gaussian, nats per latent value")
    latent_noise: float = Field(
        0.05, ge=0,
        description="tiny: standard deviation of the noise put on latents while training, so that near latents "
        "decode alike")
    latent_weight: float = Field(
        1e-3, ge=0, description="tiny: weight of the mean square of latents, which keeps them near the origin")
    edge_weight: float = Field(
        0.5, ge=0, description="weight of the L1 loss on horizontal and vertical pixel differences")
    optimiser: OptimiserSettings = Field(
        OptimiserSettings(steps=500, batch=32, lr=3e-3, ema_half_life=2_000), description="how the VAE is trained")

    @model_validator(mode="after")
    def _check(self) -> VaeSettings:
        if self.downsample & (self.downsample - 1):
            raise ValueError(f"downsample {self.downsample} is not a power of two")
        levels = self.downsample.bit_length()
        if not self.pretrained and self.kind == "tiny" and len(set(self.widths)) != 1:
            raise ValueError("AutoencoderTiny has one width for all levels: give one number")
        if not self.pretrained and self.kind == "kl" and len(self.widths) != levels:
            raise ValueError(f"downsample {self.downsample} has {levels} levels, widths {len(self.widths)}")
        return self


class TextSettings(Settings):
    """The text encoder whose token states condition the denoiser through cross-attention."""

    kind: Literal["words", "pretrained"] = Field(
        "words",
        description="words: a small CLIPTextModel trained with the denoiser, over the words of the captions; "
        "pretrained: a frozen CLIPTextModel")
    pretrained: str | None = Field(
        None, description="pretrained: folder or hub name with a CLIP text model and its tokenizer, "
        "e.g. openai/clip-vit-large-patch14")
    max_tokens: int = Field(
        32, ge=3, description="tokens per caption, start and end included; longer captions are cut")
    vocabulary: int = Field(8192, ge=1, description="words: at most so many words, the most frequent ones")
    width: int = Field(128, ge=8, description="words: channels of a token state")
    layers: int = Field(1, ge=0, description="words: transformer layers")
    heads: int = Field(4, ge=1, description="words: attention heads")

    @model_validator(mode="after")
    def _check(self) -> TextSettings:
        if self.kind == "pretrained" and not self.pretrained:
            raise ValueError("kind = 'pretrained' needs `pretrained`: a folder or a hub name")
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        return self


class DenoiserSettings(Settings):
    """The network that predicts what to take away: diffusers' UNet2DConditionModel."""

    kind: Literal["unet"] = Field("unet", description="unet: UNet2DConditionModel, Stable Diffusion's")
    widths: tuple[int, ...] = Field(
        (32, 64, 128), min_length=1, description="channels of each resolution level, finest first")
    layers: int = Field(1, ge=1, description="residual blocks per level and way")
    heads: int = Field(4, ge=1, description="attention heads")
    attention: tuple[bool, ...] | None = Field(
        None, description="which levels attend to the text, finest first; unset: all of them; the middle always does")
    pooled_text: bool = Field(
        True, description="add the caption, pooled to one vector, to the time embedding, which reaches every block")
    scale_shift: bool = Field(
        True, description="the time embedding scales and shifts a block's activations instead of only shifting them")

    @model_validator(mode="after")
    def _check(self) -> DenoiserSettings:
        if self.attention is not None and len(self.attention) != len(self.widths):
            raise ValueError(f"attention names {len(self.attention)} levels, widths {len(self.widths)}")
        if any(width % self.heads for width in self.widths):
            raise ValueError(f"every width must be a multiple of heads {self.heads}")
        return self


class ObjectiveSettings(Settings):
    """Noising, target and loss weight."""

    prediction: Literal["flow", "v", "epsilon"] = Field("flow", description="what the denoiser predicts")
    timesteps: Literal["uniform", "logit_normal"] = Field(
        "logit_normal", description="how training timesteps are drawn; logit_normal is SD3's, dense in the middle")
    shift: float = Field(
        1.0, gt=0, description="flow: timestep shift s, t becomes s·t / (1 + (s − 1)·t), in training and sampling")
    betas: Literal["scaled_linear", "linear", "cosine"] = Field(
        "scaled_linear", description="v, epsilon: noise schedule; scaled_linear is Stable Diffusion's")
    beta_start: float = Field(0.00085, gt=0, lt=1, description="v, epsilon: first beta of the linear schedules")
    beta_end: float = Field(0.012, gt=0, lt=1, description="v, epsilon: last beta of the linear schedules")
    zero_terminal_snr: bool = Field(
        False, description="v: rescale the schedule so that the last timestep is pure noise (Lin et al. 2024)")
    min_snr_gamma: float | None = Field(
        None, gt=0, description="v, epsilon: min-SNR-γ loss weight (Hang et al. 2023); 5 is usual; unset: off")

    @model_validator(mode="after")
    def _check(self) -> ObjectiveSettings:
        if self.prediction == "epsilon" and self.zero_terminal_snr:
            raise ValueError("zero_terminal_snr needs prediction = 'v': pure noise says nothing about epsilon")
        if self.prediction == "flow" and (self.min_snr_gamma is not None or self.zero_terminal_snr):
            raise ValueError("min_snr_gamma and zero_terminal_snr are for prediction = 'v' or 'epsilon'")
        if self.prediction != "flow" and self.shift != 1.0:
            raise ValueError("shift is for prediction = 'flow'")
        return self


class SampleSettings(Settings):
    """Drawing pictures."""

    steps: int = Field(25, ge=1, description="denoising steps")
    guidance: float = Field(3.0, ge=1, description="classifier-free guidance scale; 1: none")
    solver: Literal["euler", "dpm++"] = Field(
        "euler", description="euler: first order, which is DDIM for v and epsilon; dpm++: second order, fewer steps")
    batch: int = Field(64, ge=1, description="pictures drawn at a time")


class EvaluateSettings(Settings):
    """What `train evaluate` draws and measures."""

    prompts: tuple[str, ...] = Field(
        (), description="prompts to draw; empty: captions of held-out rows, or of training rows where there are none")
    prompt_count: int = Field(16, ge=1, description="how many captions to take when `prompts` is empty")
    per_prompt: int = Field(8, ge=1, description="pictures per prompt")
    reconstructions: int = Field(
        128, ge=0, description="real pictures put through the VAE, as the ceiling of what drawing can reach")
    clip_model: str = Field(
        "none", description="CLIP that scores pictures against their prompts: an open_clip name, demo, or none")
    clip_pretrained: str | None = Field(None, description="open_clip's name of its weights")
