"""Muon: momentum whose matrices are made orthogonal before they are taken as a step (Jordan et al. 2024).

Every direction of a weight matrix then moves alike, not only those few that dominate its gradient. On the demo the
denoiser needs about half of the samples that AdamW needs, for a tenth more time per sample.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

QUINTIC = (3.4445, -4.7750, 2.0315)
"""Jordan's coefficients: a·x + b·x³ + c·x⁵ brings singular values from (0, 1] near 1 in few iterations."""

ITERATIONS = 5


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
            alike: dict[tuple[int, int], list[nn.Parameter]] = defaultdict(list)
            for weight in group["params"]:
                if weight.grad is not None:
                    alike[len(weight), weight[0].numel()].append(weight)
            for shape, weights in alike.items():
                self._move(weights, shape, group)

    def _move(self, weights: list[nn.Parameter], shape: tuple[int, int], group: dict[str, Any]) -> None:
        """Weights of one shape together: their matrices are small, so a batch of them is quicker."""
        moments = [self._moment(weight) for weight in weights]
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        for moment, gradient in zip(moments, gradients, strict=True):
            moment.lerp_(gradient, 1 - group["momentum"])
        ahead = [gradient.lerp(moment, group["momentum"]) for moment, gradient in zip(moments, gradients, strict=True)]
        steps = orthogonalised(torch.stack([one.reshape(shape) for one in ahead]))
        rate = group["lr"] * max(1.0, shape[0] / shape[1]) ** 0.5
        for weight, step in zip(weights, steps, strict=True):
            weight.mul_(1 - group["lr"] * group["weight_decay"])
            weight.add_(step.reshape(weight.shape), alpha=-rate)

    def _moment(self, weight: nn.Parameter) -> Tensor:
        state = self.state[weight]
        if "moment" not in state:
            state["moment"] = torch.zeros_like(weight)
        moment: Tensor = state["moment"]
        return moment


def orthogonalised(matrices_brc: Tensor) -> Tensor:
    """Matrices (b, r, c) with the same singular vectors and singular values near 1 (about 0.7 to 1.2).

    Newton-Schulz iterations X ← p(X·Xᵀ)·X. All p(X·Xᵀ) are polynomials of the first Gram matrix and commute, so the
    iteration runs on the small square matrices G ← p(G)²·G and touches the wide ones twice, at start and end.
    """
    if matrices_brc.shape[1] > matrices_brc.shape[2]:
        return orthogonalised(matrices_brc.transpose(1, 2)).transpose(1, 2)
    a, b, c = QUINTIC
    wide = matrices_brc.float()
    wide = wide / (torch.linalg.vector_norm(wide, dim=(1, 2), keepdim=True) + 1e-7)
    gram = wide @ wide.transpose(1, 2)
    same = torch.eye(gram.shape[1], dtype=gram.dtype, device=gram.device)
    product = same.expand_as(gram)
    for turn in range(ITERATIONS):
        factor = a * same + b * gram + c * (gram @ gram)
        product = factor @ product
        if turn < ITERATIONS - 1:
            gram = factor @ gram @ factor
    result: Tensor = (product @ wide).to(matrices_brc.dtype)
    return result
