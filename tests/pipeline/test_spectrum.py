"""Fine detail: power between bands, against signals whose spectrum is known."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from pipeline.spectrum import fine_detail


def waves(*parts: tuple[float, float]) -> np.ndarray:
    """A sum of horizontal waves (amplitude, cycles per px) around grey."""
    x = np.arange(256)
    return np.tile(128 + sum(a * np.cos(2 * np.pi * f * x + 1) for a, f in parts), (256, 1)).round().astype(np.uint8)


@pytest.mark.parametrize("ratio", [1.0, 0.5, 0.25])
def test_decibels_between_the_bands(ratio: float) -> None:
    """Power goes with the square of the amplitude: 20·log10 of the ratio."""
    assert fine_detail(waves((40, 0.09375), (40 * ratio, 0.40625))) == pytest.approx(20 * np.log10(ratio), abs=0.5)


def test_contrast_does_not_matter() -> None:
    strong, weak = waves((60, 0.09375), (30, 0.40625)), waves((20, 0.09375), (10, 0.40625))
    assert fine_detail(strong) == pytest.approx(fine_detail(weak), abs=0.3)


def test_enlarging_takes_the_fine_detail_away() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (100, 100), np.uint8)
    original = Image.fromarray(noise)
    values = [fine_detail(np.asarray(original.resize((100 * f, 100 * f), Image.Resampling.BICUBIC))) for f in (1, 2, 3)]
    assert values[0] > values[1] > values[2]
    assert values[0] > 0 > -15 > values[2]


@pytest.mark.parametrize("shape", [(256, 256), (20, 300), (31, 31)])
def test_nothing_to_judge_by(shape: tuple[int, int]) -> None:
    assert np.isnan(fine_detail(np.full(shape, 50, np.uint8)))
