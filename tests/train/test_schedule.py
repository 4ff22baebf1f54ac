"""Published values of the schedules."""

from __future__ import annotations

import pytest

from train.models.settings import OptimiserSettings
from train.schedule import ema_decay, learning_rate, lr_factor, warmup_samples


@pytest.mark.parametrize(("step", "factor"), [(250, 0.5), (500, 1.0), (5250, 0.5), (10_000, 0.0)])
def test_cosine_with_500_warmup_steps_of_10000(step: int, factor: float) -> None:
    assert lr_factor(step, 10_000, 500) == pytest.approx(factor, abs=1e-12)


def test_the_final_share_is_where_the_cosine_ends() -> None:
    assert lr_factor(10_000, 10_000, 500, final=0.1) == pytest.approx(0.1)
    assert lr_factor(5250, 10_000, 500, final=0.1) == pytest.approx(0.55)


@pytest.mark.parametrize(("steps", "warmup"), [(1000, 50), (10_000, 500), (1_000_000, 500)])
def test_warmup_is_the_smaller_of_500_steps_and_5_percent(steps: int, warmup: int) -> None:
    assert warmup_samples(OptimiserSettings(steps=steps, batch=32)) == warmup * 32


def test_the_rate_does_not_depend_on_how_samples_are_batched() -> None:
    small, large = OptimiserSettings(steps=4000, batch=16), OptimiserSettings(steps=1000, batch=64)
    middle_of_step = 32_000 + 32
    assert learning_rate(large, 32_000) == pytest.approx(learning_rate(small, middle_of_step - 8), rel=1e-9)
    assert learning_rate(large, 0) > 0
    assert learning_rate(large, 999 * 64) > 0


def test_ema_halves_over_its_half_life_at_any_batch_size() -> None:
    for batch in (10, 100, 1000):
        settings = OptimiserSettings(batch=batch, ema_half_life=1000, ema_ramp=0)
        assert ema_decay(settings, 10**9) ** (1000 / batch) == pytest.approx(0.5)
    ramped = OptimiserSettings(batch=10, ema_half_life=1000, ema_ramp=0.05)
    assert ema_decay(ramped, 2000) ** (100 / 10) == pytest.approx(0.5)
    assert ema_decay(ramped, 0) == 0.0
    assert ema_decay(OptimiserSettings(ema_half_life=0), 10**6) == 0.0
