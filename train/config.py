"""The `[train]` part of the recipe. Cheap to import (no torch): the recipe reads it through an entry point.

Counts of work are given in steps of `batch` samples; the trainer itself only knows samples seen.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from pipeline.settings import Settings


class OptimiserSettings(Settings):
    """AdamW with a linear warm-up and a cosine, the same for the VAE and the denoiser."""

    steps: int = Field(1000, ge=1, description="optimiser steps of `batch` samples each")
    batch: int = Field(
        64, ge=1, description="samples per optimiser step, over all ranks and accumulation together")
    accumulate: int = Field(
        1, ge=1, description="micro-batches per step on each rank; lowers memory, changes nothing")
    lr: float = Field(1e-3, gt=0, description="peak learning rate of AdamW")
    final_lr: float = Field(
        0.0, ge=0, le=1, description="share of the peak rate at the end of the cosine, 0..1")
    warmup_steps: int | None = Field(
        None, ge=0, description="linear warm-up in steps; unset: the smaller of 500 steps and 5 % of the run")
    betas: tuple[float, float] = Field((0.9, 0.99), description="AdamW's running-mean factors")
    weight_decay: float = Field(
        0.01, ge=0, description="AdamW's decoupled weight decay; not applied to biases and norms")
    clip_norm: float = Field(
        1.0, gt=0, description="largest L2 norm of the whole gradient; longer ones are shortened")
    ema_half_life: int = Field(
        16_000, ge=0,
        description="samples after which a weight's share in the running average has halved; 0: no EMA")
    ema_ramp: float = Field(
        0.05, ge=0, le=1,
        description="the half-life is at most this share of the samples seen, so early weights fade")


class VaeSettings(Settings):
    """The autoencoder between pixels and latents."""

    kind: Literal["dc", "kl"] = Field(
        "dc", description="dc: deep compression autoencoder (quick on CPU); kl: AutoencoderKL")
    pretrained: str | None = Field(
        None,
        description="folder or hub name of a ready diffusers VAE; then it is frozen and `train vae` does "
        "nothing")
    latent_channels: int = Field(8, ge=1, description="channels of a latent")
    downsample: int = Field(8, ge=1, description="pixels per latent cell along one side; a power of two")
    widths: tuple[int, ...] = Field(
        (32, 64, 96, 128), description="channels of each resolution level, finest first")
    layers: int = Field(1, ge=1, description="blocks per resolution level")
    kl_weight: float = Field(1e-6, ge=0, description="weight of the KL term (kl only), per latent value")
    edge_weight: float = Field(
        0.5, ge=0, description="weight of the L1 loss on horizontal and vertical differences")
    optimiser: OptimiserSettings = Field(
        OptimiserSettings(steps=600, batch=32, lr=2e-3, ema_half_life=2_000),
        description="how the VAE is trained")


class TextSettings(Settings):
    """The text encoder that conditions the denoiser."""

    kind: Literal["clip", "words"] = Field(
        "clip",
        description="clip: an open_clip text tower, frozen; words: a small word-level encoder trained along")
    model: str = Field("demo", description="clip: open_clip model name, `local-dir:` path, or demo")
    pretrained: str | None = Field(None, description="clip: open_clip's name of the weights")
    max_tokens: int = Field(32, ge=2, description="tokens per caption; longer captions are cut")
    width: int = Field(128, ge=8, description="words: channels of a token")
    layers: int = Field(2, ge=0, description="words: transformer layers")


class DenoiserSettings(Settings):
    """The network that predicts what to take away."""

    kind: Literal["unet", "transformer"] = Field(
        "unet", description="unet: UNet2DConditionModel; transformer: DiT blocks")
    widths: tuple[int, ...] = Field(
        (64, 128, 192), description="unet: channels per level; transformer: one width")
    layers: int = Field(1, ge=1, description="unet: blocks per level; transformer: blocks in all")
    heads: int = Field(4, ge=1, description="attention heads")
    patch: int = Field(1, ge=1, description="transformer: latent cells per token along one side")


class ObjectiveSettings(Settings):
    """Noising, target and loss weight."""

    prediction: Literal["flow", "v", "epsilon"] = Field("flow", description="what the denoiser predicts")
    timesteps: Literal["uniform", "logit_normal"] = Field(
        "logit_normal", description="how training timesteps are drawn; logit_normal is SD3's, flow only")
    shift: float = Field(
        1.0, gt=0, description="timestep shift s: t becomes s·t / (1 + (s − 1)·t); flow only")
    min_snr_gamma: float | None = Field(
        None, gt=0, description="min-SNR-γ loss weight (v, epsilon); 5 is usual; unset: off")


class SampleSettings(Settings):
    """Drawing pictures."""

    steps: int = Field(25, ge=1, description="denoising steps")
    guidance: float = Field(3.0, ge=0, description="classifier-free guidance scale; 1: none")


class WatchSettings(Settings):
    """What is looked at while training."""

    log_every: int = Field(10, ge=1, description="steps between lines in log.jsonl and TensorBoard")
    every: int = Field(
        200, ge=1, description="steps between validations, each with a sample grid for the denoiser")
    validation_samples: int = Field(
        256, ge=0, description="held-out rows (and as many training rows) used for the losses")
    prompts: tuple[str, ...] = Field(
        (), description="prompts of the sample grid; empty: captions of held-out rows")
    grid: int = Field(4, ge=0, description="pictures per prompt in the grid; 0: no grids")
    grid_prompts: int = Field(
        8, ge=1, description="how many held-out captions make the grid when `prompts` is empty")
    tensorboard: bool = Field(True, description="write TensorBoard event files beside log.jsonl")


class CheckpointSettings(Settings):
    """Saving and resuming."""

    every: int = Field(
        200, ge=1, description="steps between checkpoints; one is always written at the end and on ctrl-C")
    keep: int = Field(2, ge=1, description="how many of the newest checkpoints stay")


class DataSettings(Settings):
    """Reading the shards."""

    shards: str | None = Field(
        None, description="URL of the folder with index.json; unset: <workdir>/data/<name>/shards")
    aspect: Literal["square", "buckets"] = Field(
        "square", description="square: every picture is cropped to 1:1; buckets: to its aspect-ratio bucket")
    crop: Literal["center", "random"] = Field(
        "center", description="where to crop along the longer side; cached latents: center")
    flip: bool = Field(
        False, description="mirror half of the pictures; wrong where captions say left and right")
    captions: Literal["best", "mix"] = Field(
        "mix", description="best: always the chosen caption; mix: half of the time another acceptable one")
    workers: int = Field(
        2, ge=0, description="threads that read and decode ahead; 0: none; never changes the order")
    prefetch: int = Field(4, ge=1, description="batches prepared ahead")
    shuffle_block: int = Field(
        16_384, ge=1, description="samples among which repeats are spread and rows shuffled")
    max_repeats: float = Field(10.0, gt=0, description="cap on a sample's weight, in repeats per epoch")
    cache: str | None = Field(
        None, description="folder for bytes of remote shards; unset: <workdir>/runs/<name>/cache")
    cache_gb: float = Field(
        20.0, ge=0, description="size bound of that folder, 10⁹ bytes; the oldest reads go first")
    retries: int = Field(4, ge=0, description="further tries of a failed read, with growing pauses")
    pixel_cache_mb: int = Field(
        512, ge=0, description="memory for pictures already decoded and resized, 10⁶ bytes")
    cache_latents: bool = Field(
        True, description="encode every picture once and train the denoiser on stored latents")


class TrainSettings(Settings):
    """Everything the trainer needs to know beyond the shards."""

    resolution: int = Field(
        64, ge=8, description="side of a square picture; buckets keep about this area squared, px")
    seed: int | None = Field(
        None, description="seed of the plan, noise and weights; unset: the recipe's seed")
    device: str = Field("auto", description="auto, cpu, cuda or mps")
    precision: Literal["auto", "fp32", "bf16"] = Field(
        "auto",
        description="compute precision; master weights and EMA stay fp32; auto: bf16 on GPUs that have it")
    threads: int | None = Field(None, ge=1, description="CPU threads for torch; unset: torch's own choice")
    cfg_dropout: float = Field(0.1, ge=0, le=1, description="share of samples trained with an empty caption")
    optimiser: OptimiserSettings = Field(
        OptimiserSettings(steps=3000, batch=64, lr=1e-3), description="how the denoiser is trained")
    vae: VaeSettings = Field(VaeSettings(), description="autoencoder")
    text: TextSettings = Field(TextSettings(), description="text encoder")
    denoiser: DenoiserSettings = Field(DenoiserSettings(), description="denoiser")
    objective: ObjectiveSettings = Field(ObjectiveSettings(), description="noising and loss")
    sample: SampleSettings = Field(SampleSettings(), description="drawing pictures")
    data: DataSettings = Field(DataSettings(), description="reading the shards")
    watch: WatchSettings = Field(WatchSettings(), description="validation, grids and logs")
    checkpoint: CheckpointSettings = Field(CheckpointSettings(), description="saving and resuming")

    @model_validator(mode="after")
    def _check(self) -> TrainSettings:
        if self.resolution % self.vae.downsample:
            raise ValueError(
                f"resolution {self.resolution} is not a multiple of vae.downsample {self.vae.downsample}")
        if self.data.cache_latents and (self.data.crop == "random" or self.data.flip):
            raise ValueError("data.crop = 'random' and data.flip need data.cache_latents = false")
        return self
