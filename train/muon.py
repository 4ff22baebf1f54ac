"""Muon: momentum whose matrices are made orthogonal before they are taken as a step (Jordan et al. 2024).

Every direction of a weight matrix then moves alike, not only those few that dominate its gradient. On the demo the
denoiser needs about half of the samples that AdamW needs, for a fixed time per step: a fifth more at 64 samples, a half
more at 16.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

QUINTIC = (3.4445, -4.7750, 2.0315)
"""Jordan's coefficients: a·x + b·x³ + c·x⁵ brings singular values from (0, 1] near 1 in few iterations."""

ITERATIONS = 4


class Muon(torch.optim.Optimizer):
    """For weights of two or more dimensions; a convolution's counts as a matrix (out, in · height · width).

    The step is lr · √max(1, rows / columns) · orthogonalised Nesterov momentum; `weight_decay` is decoupled.
    """

    def __init__(self, params: Iterable[Any], lr: float = 0.02, momentum: float = 0.95, weight_decay: float = 0.0
                 ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update of every weight that has a gradient."""
        assert closure is None, "Muon evaluates no closures"
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if weights:
                self._move(weights, group)

    def _move(self, weights: list[nn.Parameter], group: dict[str, Any]) -> None:
        moments = [self._moment(weight) for weight in weights]
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        torch._foreach_lerp_(moments, gradients, 1 - group["momentum"])
        ahead = torch._foreach_lerp(gradients, moments, group["momentum"])
        if group["weight_decay"]:
            torch._foreach_mul_(list[Tensor](weights), 1 - group["lr"] * group["weight_decay"])
        steps = orthogonalised([one.flatten(1) for one in ahead])
        for weight, step in zip(weights, steps, strict=True):
            rate = group["lr"] * max(1.0, step.shape[0] / step.shape[1]) ** 0.5
            weight.add_(step.reshape(weight.shape), alpha=-rate)

    def _moment(self, weight: nn.Parameter) -> Tensor:
        state = self.state[weight]
        if "moment" not in state:
            state["moment"] = torch.zeros_like(weight)
        moment: Tensor = state["moment"]
        return moment


def orthogonalised(matrices: Sequence[Tensor]) -> list[Tensor]:
    """Per matrix (r, c) one with the same singular vectors and singular values near 1 (about 0.7 to 1.2).

    Newton-Schulz iterations X ← p(X·Xᵀ)·X. All p(X·Xᵀ) are polynomials of the first Gram matrix and commute, so the
    iteration runs on the small square matrices G ← p(G)²·G and touches the wide ones twice, at start and end. Matrices
    with the same shorter side go through it together.
    """
    places: dict[int, dict[tuple[int, int], list[int]]] = defaultdict(lambda: defaultdict(list))
    for place, matrix in enumerate(matrices):
        rows, columns = matrix.shape
        places[min(rows, columns)][rows, columns].append(place)
    result = list(matrices)
    for alike in places.values():
        stacks = [torch.stack([matrices[place] for place in some]) for some in alike.values()]
        wides = [_wide(stack).float() for stack in stacks]
        factors = _inverse_roots(torch.cat([wide @ wide.transpose(1, 2) for wide in wides]))
        parts = torch.split(factors, [len(wide) for wide in wides])
        for some, stack, wide, part in zip(alike.values(), stacks, wides, parts, strict=True):
            made = part @ wide
            made = (made if stack.shape[1] <= stack.shape[2] else made.transpose(1, 2)).to(stack.dtype)
            for place, one in zip(some, made, strict=True):
                result[place] = one
    return result


def _wide(stack_brc: Tensor) -> Tensor:
    return stack_brc if stack_brc.shape[1] <= stack_brc.shape[2] else stack_brc.transpose(1, 2)


def _inverse_roots(grams_bnn: Tensor) -> Tensor:
    """F of every Gram matrix X·Xᵀ (b, n, n) such that F·X has singular values near 1: about (X·Xᵀ)^(-1/2).

    The matrices are first divided by (tr G⁴)^(1/8), which is at least X's largest singular value and at most n^(1/8)
    times it; Frobenius' norm, n^(1/2) times it at most, would cost one or two iterations more.
    """
    a, b, c = QUINTIC
    tiny = torch.finfo(grams_bnn.dtype).tiny
    norm = torch.linalg.matrix_norm(grams_bnn, keepdim=True).clamp_min(tiny)  # lest G² over- or underflows
    grams = grams_bnn / norm
    squares = grams @ grams
    size = torch.linalg.matrix_norm(squares, keepdim=True).clamp_min(tiny).sqrt()
    grams, squares = grams / size, squares / size.square()
    same = torch.eye(grams.shape[1], dtype=grams.dtype, device=grams.device)
    product: Tensor | None = None
    for turn in range(ITERATIONS):
        if turn:
            squares = grams @ grams
        factor = torch.add(a * same + b * grams, squares, alpha=c)
        product = factor if product is None else factor @ product
        if turn < ITERATIONS - 1:
            grams = factor @ grams @ factor
    assert product is not None
    result: Tensor = product * (norm * size).clamp_min(tiny).rsqrt()
    return result
