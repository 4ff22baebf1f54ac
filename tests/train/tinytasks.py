"""Tasks small enough for tests: a linear denoiser on pixels, through the real loop, feed and shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from train import randomness
from train.config import CheckpointSettings
from train.distributed import Ranks
from train.feed import Batch, Feed, PixelImages
from train.loop import Job, State, StepResult
from train.models.settings import OptimiserSettings
from train.pictures import Pictures, Variation
from train.plan import Plan
from train.shards import open_shards
from train.tasks import Task, to_signed

SIDE = 16


class Tiny(Task):
    """Predicts flow-matching's target, noise − x, with two convolutions and a caption's length as condition."""

    name = "tiny"

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        with randomness.seeded_torch(0, "tiny"):
            self.first = nn.Conv2d(3, 8, 3, padding=1)
            self.norm = nn.GroupNorm(2, 8)
            self.last = nn.Conv2d(8, 3, 3, padding=1)
            self.word = nn.Linear(1, 8)
        self.dropout = nn.Dropout(dropout)

    def forward(self, batch: Batch) -> Tensor:
        assert batch.noise is not None
        pixels, t = to_signed(batch.images), batch.times[:, None, None, None]
        noised = (1 - t) * pixels + t * batch.noise
        words = torch.tensor([[len(text) / 20] for text in batch.captions], device=pixels.device)
        hidden = self.norm(self.first(noised)) + self.word(words)[:, :, None, None]
        prediction = self.last(self.dropout(torch.tanh(hidden)))
        return (prediction - (batch.noise - pixels)).square().flatten(1).mean(1)


class Silent:
    """A watcher that keeps what it hears."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.events: list[tuple[str, dict[str, Any]]] = []

    def begin(self, state: State) -> None:
        pass

    def step(self, state: State, result: StepResult) -> None:
        self.losses.append(result.loss)

    def event(self, state: State, kind: str, **facts: Any) -> None:
        self.events.append((kind, facts))

    def went_back(self, state: State) -> None:
        pass


def tiny_job(shards_folder: Path, folder: Path, *, batch: int = 4, steps: int = 12, accumulate: int = 1,
             ranks: Ranks | None = None, workers: int = 0, every: int = 5, lr: float = 3e-3) -> Job:
    """A job over a shard folder made by `write_shards`."""
    shards = open_shards(str(shards_folder))
    rows = shards.rows("train")
    settings = OptimiserSettings(steps=steps, batch=batch, accumulate=accumulate, lr=lr, warmup_steps=2,
                                 ema_half_life=20)
    plan = Plan(seed=5, batch=batch, weights=shards.weights[rows], buckets=np.zeros(len(rows), int),
                shards=shards.shard_numbers[rows], shuffle_block=16)
    images = PixelImages(Pictures(shards, seed=5, vary=Variation(crop=True), cache_bytes=10**7), [(SIDE, SIDE)])
    feed = Feed(images, shards.row, seed=5, cfg_dropout=0.2, mix=True, noise_shape=lambda shape: shape)
    return Job(folder=str(folder), seed=5, settings=settings, plan=plan, rows=rows, feed=feed,
               checkpoint=CheckpointSettings(every=every, keep=2), ranks=ranks or Ranks(), workers=workers,
               identity={"lr": str(lr)})


def weights(task: nn.Module) -> Tensor:
    """All parameters in one vector."""
    return torch.cat([parameter.detach().flatten() for parameter in task.parameters()])
