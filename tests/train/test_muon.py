"""Orthogonalisation against the exact polar factor, and the laws of the step."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from train.muon import Muon, orthogonalised


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def moved(weight: Tensor, gradient: Tensor, **keys: float) -> Tensor:
    parameter = nn.Parameter(weight.clone())
    parameter.grad = gradient.clone()
    Muon([parameter], **keys).step()
    return parameter.detach()


@pytest.mark.parametrize("shape", [(3, 16, 64), (2, 64, 16), (4, 32, 32), (1, 1, 40)])
def test_singular_values_come_near_one(shape: tuple[int, int, int]) -> None:
    """Of a matrix with singular values from 1 to 0.01; Jordan et al. give 0.7 to 1.2 for their coefficients."""
    u, _, vt = torch.linalg.svd(random(*shape), full_matrices=False)
    spread = torch.logspace(0, -2, u.shape[-1])
    values = torch.linalg.svdvals(torch.stack(orthogonalised(list(u * spread @ vt))))
    assert 0.65 < values.min() <= values.max() < 1.25


@pytest.mark.parametrize("shape", [(2, 16, 64), (2, 64, 16), (2, 24, 24)])
def test_singular_vectors_stay(shape: tuple[int, int, int]) -> None:
    """The result is U·diag(near one)·Vᵀ, so in the basis of U and V it is diagonal."""
    matrices = random(*shape).double()
    u, _, vt = torch.linalg.svd(matrices, full_matrices=False)
    inside = u.transpose(1, 2) @ torch.stack(orthogonalised(list(matrices))) @ vt.transpose(1, 2)
    off_diagonal = inside - torch.diag_embed(torch.diagonal(inside, dim1=1, dim2=2))
    assert off_diagonal.abs().max() < 1e-3


@given(st.floats(1e-3, 1e3))
@settings(max_examples=30)
def test_the_first_step_does_not_depend_on_the_gradients_size(factor: float) -> None:
    weight, gradient = random(16, 48, seed=1), random(16, 48, seed=2)
    assert torch.allclose(moved(weight, gradient), moved(weight, gradient * factor), atol=1e-4)


def test_a_convolution_is_the_matrix_of_its_rows() -> None:
    weight, gradient = random(16, 8, 3, 3, seed=3), random(16, 8, 3, 3, seed=4)
    flat = moved(weight.flatten(1), gradient.flatten(1))
    as_given = moved(weight, gradient)
    in_other_order = moved(weight.to(memory_format=torch.channels_last), gradient)
    assert torch.equal(as_given.flatten(1), flat)
    assert torch.equal(in_other_order.flatten(1), flat)


def test_tall_matrices_take_longer_steps() -> None:
    """lr · √(rows / columns): with lr 1 and orthogonal columns the step's largest singular value is near √4."""
    weight = torch.zeros(64, 16)
    step = moved(weight, random(64, 16), lr=1.0, momentum=0.0)
    assert torch.linalg.svdvals(step).max() == pytest.approx(2.0, rel=0.25)


def test_weight_decay_shrinks_by_its_share_of_the_rate() -> None:
    weight, gradient = random(16, 16, seed=5), random(16, 16, seed=6)
    plain, decayed = moved(weight, gradient, lr=0.1), moved(weight, gradient, lr=0.1, weight_decay=0.5)
    assert torch.allclose(plain - decayed, weight * 0.05, atol=1e-6)


def test_equal_shapes_share_a_batch_without_touching_each_other() -> None:
    weights, gradients = [random(16, 32, seed=n) for n in (1, 2)], [random(16, 32, seed=n) for n in (3, 4)]
    together = [nn.Parameter(weight.clone()) for weight in weights]
    for parameter, gradient in zip(together, gradients, strict=True):
        parameter.grad = gradient
    Muon(together).step()
    for parameter, weight, gradient in zip(together, weights, gradients, strict=True):
        assert torch.allclose(parameter, moved(weight, gradient), atol=1e-6)


def test_a_weight_without_gradient_stays() -> None:
    weight = random(16, 32, seed=7)
    assert torch.equal(moved(weight, torch.zeros(16, 32)), weight)


def test_matrices_of_many_shapes_go_through_together() -> None:
    matrices = [random(16, 64, seed=1), random(64, 16, seed=2), random(16, 16, seed=3), random(24, 48, seed=4)]
    for alone, together in zip(matrices, orthogonalised(matrices), strict=True):
        assert torch.allclose(orthogonalised([alone])[0], together, atol=1e-5)
