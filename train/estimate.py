"""What a training will cost: a few real steps of each part, timed on this machine, then multiplied out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from train.distributed import Ranks
from train.feed import Batch
from train.models import build_text, build_vae
from train.models.settings import OptimiserSettings
from train.models.text import TextEncoder
from train.models.vae import Vae
from train.optimiser import Optimiser, trained
from train.session import Session
from train.tasks import Task, VaeTask
from train.vae_stage import latent_shape

TIMED_STEPS = 3
BYTES_PER_PARAMETER = 4 * 5
"""fp32 weight, gradient, AdamW's two moments, and the running average."""

WORDS = ["a small red circle beside a large blue square", "three things on a plain ground"]


def estimated(session: Session) -> list[dict[str, Any]]:
    """One row per part: parameters, steps, seconds and GB. Neither shards nor trained models are needed."""
    from train.denoiser_stage import fresh_task

    settings = session.settings
    vae = build_vae(settings.vae)
    vae.module.to(session.ranks.device)
    text = build_text(settings.text, session.recipe.name, captions=WORDS)
    text.module.to(session.ranks.device)
    rows = []
    if settings.vae.pretrained is None:
        rows.append(_row(session, VaeTask(vae), settings.vae.optimiser, lambda n: _pixel_batch(session, vae, n)))
    vae.module.requires_grad_(False)
    task = fresh_task(session, vae, text)
    rows.append(_row(session, task, settings.optimiser, lambda n: _latent_batch(session, vae, text, n)))
    return rows


def render(rows: list[dict[str, Any]]) -> str:
    """Lines for people."""
    lines = [f"{row['part']}: {row['parameters'] / 1e6:.2f} M parameters, {row['steps']} steps of {row['batch']}, "
             f"{row['samples_per_s']:.0f} samples/s, {row['seconds'] / 60:.1f} min, {row['state_gb']:.2f} GB for "
             "weights, optimiser and average" + (f", {row['peak_gb']:.2f} GB at the peak" if row["peak_gb"] else "")
             for row in rows]
    total = sum(row["seconds"] for row in rows)
    lines.append(f"in all {total / 60:.1f} min, besides reading and encoding the pictures, validation and grids")
    return "\n".join(lines) + "\n"


def _row(session: Session, task: Task, settings: OptimiserSettings, batch_of: Callable[[int], Batch]
         ) -> dict[str, Any]:
    ranks = session.ranks
    micro = max(1, settings.batch // (ranks.world * settings.accumulate))
    seconds = _seconds_per_micro_batch(task, batch_of(micro), settings, session) * settings.accumulate
    parameters = sum(p.numel() for p in task.parameters() if p.requires_grad)
    peak = torch.cuda.max_memory_allocated() / 1e9 if ranks.device.type == "cuda" else None
    return {"part": task.name, "parameters": parameters, "steps": settings.steps, "batch": settings.batch,
            "samples_per_s": round(settings.batch / seconds, 1), "seconds": round(seconds * settings.steps, 1),
            "state_gb": round(parameters * BYTES_PER_PARAMETER / 1e9, 3),
            "peak_gb": None if peak is None else round(peak, 2)}


def _seconds_per_micro_batch(task: Task, batch: Batch, settings: OptimiserSettings, session: Session) -> float:
    """Forward, backward and update; the fastest of a few, the first of which only warms up."""
    ranks, best = session.ranks, math.inf
    moved = batch.to(ranks.device)
    optimiser = Optimiser(task, settings, ranks.device)
    for _ in range(1 + TIMED_STEPS):
        _wait(ranks)
        begun = time.perf_counter()
        with torch.autocast(ranks.device.type, torch.bfloat16, enabled=session.precision == "bf16"):
            loss = task(moved).mean()
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(trained(task), settings.clip_norm)
        optimiser.step(0.0)
        _wait(ranks)
        best = min(best, time.perf_counter() - begun)
    return best


def _wait(ranks: Ranks) -> None:
    if ranks.device.type == "cuda":
        torch.cuda.synchronize(ranks.device)


def _pixel_batch(session: Session, vae: Vae, count: int) -> Batch:
    side = session.settings.resolution
    pixels = np.random.default_rng(0).integers(0, 256, (count, 3, side, side), dtype=np.uint8)
    return _batch(torch.from_numpy(pixels), latent_shape(vae, (3, side, side)))


def _latent_batch(session: Session, vae: Vae, text: TextEncoder, count: int) -> Batch:
    side = session.settings.resolution
    shape = latent_shape(vae, (3, side, side))
    batch = _batch(torch.randn(count, *shape, generator=torch.Generator().manual_seed(0)), shape)
    if not text.trainable:
        with torch.no_grad():
            text_bld, mask_bl = text.encode(batch.captions)
        batch = Batch(**{**vars(batch), "text": text_bld, "text_mask": mask_bl})
    return batch


def _batch(images: torch.Tensor, noise_shape: tuple[int, ...]) -> Batch:
    count = len(images)
    numbers = np.arange(count, dtype=np.int64)
    return Batch(numbers, numbers, images, torch.ones(count), (WORDS[0],) * count, torch.linspace(0.1, 0.9, count),
                 noise=torch.randn(count, *noise_shape, generator=torch.Generator().manual_seed(1)))
