"""Edge sharpness against the formula: slope of a blurred step over its height."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from pipeline.edges import edge_sharpness


def _steps(contrast: float = 120.0) -> np.ndarray:
    """Vertical bars wide enough for both levels to lie in a tile, edges in the tiles' middles."""
    row = np.zeros(256, np.float32)
    for start in range(8, 256, 32):
        row[start:start + 16] = contrast
    return np.tile(row + 60, (256, 1)).astype(np.float32)


@pytest.mark.parametrize("sigma", [1.0, 1.5, 2.0, 3.0])
def test_a_blurred_step_has_the_slope_of_the_formula(sigma: float) -> None:
    blurred = gaussian_filter(_steps(), (0, sigma), mode="wrap").astype(np.float32)
    expected = 1 / (sigma * np.sqrt(2 * np.pi))
    assert edge_sharpness(blurred) == pytest.approx(expected, rel=0.12)


def test_contrast_does_not_matter_but_flat_pictures_say_nothing() -> None:
    assert edge_sharpness(_steps(40)) == pytest.approx(edge_sharpness(_steps(180)))
    assert np.isnan(edge_sharpness(np.full((256, 256), 90, np.float32)))
    assert np.isnan(edge_sharpness(np.zeros((20, 400), np.float32)))


def test_a_sharp_subject_before_a_soft_background_is_sharp() -> None:
    soft = gaussian_filter(_steps(), 4, mode="wrap").astype(np.float32)
    subject = soft.copy()
    subject[96:160, 96:160] = _steps()[96:160, 96:160]
    assert edge_sharpness(subject) > 3 * edge_sharpness(soft)
