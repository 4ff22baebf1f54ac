"""Running average of the trained weights, in fp32 and apart from them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Ema:
    """average ← decay · average + (1 − decay) · weights, over all parameters that are trained."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self.average: dict[str, Tensor] = {
            name: parameter.detach().clone().float()
            for name, parameter in module.named_parameters() if parameter.requires_grad}

    @torch.no_grad()
    def update(self, decay: float) -> None:
        weights = dict(self._module.named_parameters())
        ours = [weights[name].detach().float() for name in self.average]
        torch._foreach_lerp_(list(self.average.values()), ours, 1.0 - decay)

    def load(self, average: dict[str, Tensor]) -> None:
        for name, tensor in self.average.items():
            tensor.copy_(average[name])

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside, the module computes with the average; afterwards it has its own weights back, bit for bit."""
        weights = {name: p for name, p in self._module.named_parameters() if name in self.average}
        own = {name: parameter.detach().clone() for name, parameter in weights.items()}
        with torch.no_grad():
            for name, parameter in weights.items():
                parameter.copy_(self.average[name])
        try:
            yield
        finally:
            with torch.no_grad():
                for name, parameter in weights.items():
                    parameter.copy_(own[name])
