"""Learning rate and EMA over samples seen: pure functions, so that a resumed run continues exactly."""

from __future__ import annotations

import math

from train.models.settings import OptimiserSettings

LONGEST_WARMUP_STEPS = 500
WARMUP_SHARE = 0.05


def warmup_samples(settings: OptimiserSettings) -> int:
    """Length of the linear warm-up in samples: what is set, or min(500 steps, 5 % of the run)."""
    steps = settings.warmup_steps
    if steps is None:
        steps = min(LONGEST_WARMUP_STEPS, round(WARMUP_SHARE * settings.steps))
    return steps * settings.batch


def lr_factor(position: float, total: float, warmup: float, final: float = 0.0) -> float:
    """Factor of the peak rate after `position` of `total` samples.

    Linear from 0 to 1 over `warmup` samples, then half a cosine down to `final` (Loshchilov, Hutter 2017).
    """
    if position < warmup:
        return position / warmup
    if position >= total:
        return final
    progress = (position - warmup) / (total - warmup)
    return final + (1.0 - final) * 0.5 * (1.0 + math.cos(math.pi * progress))


def learning_rate(settings: OptimiserSettings, position: int) -> float:
    """Rate of the step that begins at `position` samples seen, taken at the step's middle.

    So the first step already moves the weights and the last one does not waste its batch.
    """
    total = settings.steps * settings.batch
    factor = lr_factor(position + settings.batch / 2, total, warmup_samples(settings), settings.final_lr)
    return settings.lr * factor


def ema_decay(settings: OptimiserSettings, position: int) -> float:
    """Share of the average that survives the step ending at `position`; 0 copies the weights.

    0.5 ** (batch / half-life), with the half-life held to `ema_ramp` of the samples seen (EDM2, Karras et al.
    2024): the average forgets the first weights at any batch size.
    """
    half_life = float(settings.ema_half_life)
    if settings.ema_ramp:
        half_life = min(half_life, settings.ema_ramp * position)
    return 0.5 ** (settings.batch / half_life) if half_life > 0 else 0.0
