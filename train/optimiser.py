"""The optimiser of a task: AdamW, or Muon for the matrices inside its networks and AdamW for all else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from train.models.settings import OptimiserSettings
from train.muon import Muon

SMALLEST_MATRIX_SIDE = 16
"""Thinner matrices, such as a last layer with one row per latent channel, have few directions to even out."""


class Optimiser:
    """One or two torch optimisers that step together. A checkpoint holds the state of both."""

    def __init__(self, task: nn.Module, settings: OptimiserSettings, device: torch.device) -> None:
        matrices = _matrices(task) if settings.kind == "muon" else []
        known = {id(weight) for weight in matrices}
        rest = [weight for weight in trained(task) if id(weight) not in known]
        groups = [{"params": [p for p in rest if p.ndim >= 2], "weight_decay": settings.weight_decay},
                  {"params": [p for p in rest if p.ndim < 2], "weight_decay": 0.0}]
        self._parts: list[torch.optim.Optimizer] = [torch.optim.AdamW(
            [group for group in groups if group["params"]], lr=settings.lr, betas=settings.betas,
            fused=device.type in ("cuda", "cpu"))]
        self._ratios = [1.0]
        if matrices:
            self._parts.append(Muon(matrices, settings.muon_lr, weight_decay=settings.weight_decay))
            self._ratios.append(settings.muon_lr / settings.lr)

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for part in self._parts:
            part.zero_grad(set_to_none=True)

    def step(self, lr: float) -> None:
        """Update with AdamW's rate `lr`; Muon's keeps its ratio to it."""
        for part, ratio in zip(self._parts, self._ratios, strict=True):
            for group in part.param_groups:
                group["lr"] = lr * ratio
            part.step()

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {str(number): part.state_dict() for number, part in enumerate(self._parts)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up what `state_dict` gave."""
        for number, part in enumerate(self._parts):
            part.load_state_dict(state[str(number)])


def trained(task: nn.Module) -> list[nn.Parameter]:
    """All parameters that are trained, in the order of definition."""
    return [parameter for parameter in task.parameters() if parameter.requires_grad]


def _matrices(task: nn.Module) -> list[nn.Parameter]:
    """Weights for Muon: matrices and convolutions, but no look-up tables, whose rows are apart from one another."""
    tables = {id(weight) for module in task.modules() if isinstance(module, nn.Embedding)
              for weight in module.parameters()}
    return [weight for weight in trained(task) if weight.ndim >= 2 and id(weight) not in tables
            and min(len(weight), weight[0].numel()) >= SMALLEST_MATRIX_SIDE]
