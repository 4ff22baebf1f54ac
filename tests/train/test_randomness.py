"""Statistics of the keyed numbers, and that a sample's numbers do not depend on its neighbours."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from train import randomness


def test_uniforms_are_uniform_and_uncorrelated_between_neighbours_purposes_and_seeds() -> None:
    numbers = np.arange(200_000)
    one = randomness.uniforms(1, "crop", numbers)
    assert one.min() >= 0
    assert one.max() < 1
    counts = np.bincount((one * 64).astype(int), minlength=64)
    chi2 = ((counts - 3125) ** 2 / 3125).sum()
    assert 25 < chi2 < 115  # 63 degrees of freedom: both ends beyond 4.5 standard deviations
    others = [randomness.uniforms(1, "flip", numbers), randomness.uniforms(2, "crop", numbers)]
    for other in [np.roll(one, 1), *others]:
        assert abs(np.corrcoef(one, other)[0, 1]) < 5 / np.sqrt(200_000)


def test_normals_have_the_moments_of_a_standard_normal() -> None:
    values = randomness.normals(1, "noise", np.arange(500), (4, 8, 8))
    n = values.size
    assert abs(values.mean()) < 5 / np.sqrt(n)
    assert values.var() == pytest.approx(1, abs=5 * np.sqrt(2 / n))
    assert (values**4).mean() == pytest.approx(3, abs=5 * np.sqrt(96 / n))
    assert abs(np.corrcoef(values[0].ravel(), values[1].ravel())[0, 1]) < 5 / 16


def test_a_samples_numbers_do_not_depend_on_its_batch() -> None:
    numbers = np.array([7, 1000, 5_000_000_000])
    together = randomness.normals(3, "noise", numbers, (2, 3))
    assert np.array_equal(together[2], randomness.normals(3, "noise", numbers[2:], (2, 3))[0])
    uniform = randomness.uniforms(3, "timestep", numbers)
    assert uniform[1] == randomness.uniforms(3, "timestep", [1000])[0]


def test_seeded_torch_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    with randomness.seeded_torch(5, "weights"):
        first = torch.randn(3)
    with randomness.seeded_torch(5, "weights"):
        assert torch.equal(first, torch.randn(3))
    assert torch.equal(before, torch.get_rng_state())
