"""The `[train]` part of the recipe. Cheap to import (no torch): the recipe reads it through an entry point.

Counts of work are given in steps of `batch` samples; the trainer itself only knows samples seen.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from pydantic import Field, model_validator

from pipeline import storage
from pipeline.settings import Settings
from train.models.settings import (
    DenoiserSettings,
    EvaluateSettings,
    ObjectiveSettings,
    OptimiserSettings,
    SampleSettings,
    TextSettings,
    VaeSettings,
)


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
    crop: Literal["center", "random"] = Field("center", description="where to crop")
    zoom: float = Field(
        1.0, gt=0.1, le=1,
        description="smallest window, as a share of the largest one's side; below 1 sizes vary and `crop` has room")
    flip: bool = Field(
        False, description="mirror half of the pictures, but none whose caption says left or right")
    views: int = Field(
        8, ge=1, le=256, description="cached latents: versions of each picture that are encoded when crop, zoom or "
        "flip make them differ")
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
    evaluate: EvaluateSettings = Field(EvaluateSettings(), description="what `train evaluate` draws and measures")
    data: DataSettings = Field(DataSettings(), description="reading the shards")
    watch: WatchSettings = Field(WatchSettings(), description="validation, grids and logs")
    checkpoint: CheckpointSettings = Field(CheckpointSettings(), description="saving and resuming")

    @model_validator(mode="after")
    def _check(self) -> TrainSettings:
        cell = self.cell
        if self.resolution % cell:
            raise ValueError(
                f"resolution {self.resolution} is not a multiple of {cell} (vae.downsample {self.vae.downsample} × "
                f"{cell // self.vae.downsample} for the {len(self.denoiser.widths)} levels of the denoiser)")
        return self

    def forget(self, runs: str, sha256: Collection[bytes], captions: Collection[str], *, drawn: bool) -> None:
        """Called by curation when pictures are taken down; see `pipeline.takedown.settle.KeepsPictures`."""
        folder = storage.local(runs) or storage.join("runs", runs.rsplit("/", 1)[-1])
        cache = self.data.cache or storage.join(folder, "cache")
        if storage.names(folder) or storage.names(cache):
            from train.forgetting import forget

            forget(folder, cache, sha256, captions, drawn=drawn)

    @property
    def cell(self) -> int:
        """Pixels per cell of the denoiser's coarsest level: both sides of a picture are multiples of it."""
        return int(self.vae.downsample * 2 ** (len(self.denoiser.widths) - 1))
