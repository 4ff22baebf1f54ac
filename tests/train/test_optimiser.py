"""Which weights go to which optimiser, and that a checkpoint of both goes on as if nothing had happened."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from train.models.settings import OptimiserSettings
from train.optimiser import Optimiser

CPU = torch.device("cpu")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 16)
        self.inner = nn.Linear(16, 32)
        self.last = nn.Linear(32, 4)
        self.frozen = nn.Linear(16, 16).requires_grad_(False)

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.last(torch.tanh(self.inner(self.words(ids)))).square().mean()
        return out


def net() -> Net:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Net()


def walk(task: Net, optimiser: Optimiser, steps: int, lr: float = 0.01) -> None:
    for step in range(steps):
        optimiser.zero_grad()
        task(torch.arange(step, step + 8) % 20).backward()
        optimiser.step(lr)


def settings(**keys: Any) -> OptimiserSettings:
    return OptimiserSettings.model_validate({"lr": 0.01, "weight_decay": 0.0, **keys})


def test_muon_takes_inner_matrices_and_adamw_all_else() -> None:
    """With Muon's rate at almost nothing only its own weights stay where they are."""
    task = net()
    before = copy.deepcopy(task.state_dict())
    walk(task, Optimiser(task, settings(kind="muon", muon_lr=1e-12), CPU), 3)
    changed = {name for name, value in task.state_dict().items() if not torch.allclose(value, before[name], atol=1e-9)}
    assert changed == {"words.weight", "inner.bias", "last.weight", "last.bias"}


def test_adamw_alone_moves_every_trained_weight_as_torch_does() -> None:
    task, other = net(), net()
    walk(task, Optimiser(task, settings(weight_decay=0.1), CPU), 3)
    matrices = [other.words.weight, other.inner.weight, other.last.weight]
    plain = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1},
                               {"params": [other.inner.bias, other.last.bias], "weight_decay": 0.0}],
                              lr=0.01, betas=(0.9, 0.99))
    for step in range(3):
        plain.zero_grad()
        other(torch.arange(step, step + 8) % 20).backward()
        plain.step()
    for name, value in task.state_dict().items():
        assert torch.allclose(value, other.state_dict()[name], atol=1e-6), name


def test_muons_rate_follows_the_schedule() -> None:
    """Half the rate of AdamW is half the step of Muon."""
    steps = []
    for lr in (0.01, 0.005):
        task = net()
        before = task.inner.weight.detach().clone()
        walk(task, Optimiser(task, settings(kind="muon"), CPU), 1, lr)
        steps.append(task.inner.weight.detach() - before)
    assert torch.allclose(steps[0], 2 * steps[1], atol=1e-6)
    assert steps[0].abs().max() > 1e-4


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_a_saved_state_goes_on_bit_for_bit(kind: str) -> None:
    whole = net()
    walk(whole, Optimiser(whole, settings(kind=kind), CPU), 3)
    first = net()
    optimiser = Optimiser(first, settings(kind=kind), CPU)
    walk(first, optimiser, 3)
    file = io.BytesIO()
    torch.save({"task": first.state_dict(), "optimiser": optimiser.state_dict()}, file)
    file.seek(0)
    kept = torch.load(file, weights_only=True)
    second = net()
    second.load_state_dict(kept["task"])
    going_on = Optimiser(second, settings(kind=kind), CPU)
    going_on.load_state_dict(kept["optimiser"])
    walk(second, going_on, 2)
    walk(first, optimiser, 2)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
