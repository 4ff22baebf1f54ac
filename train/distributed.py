"""Ranks: who takes part in training, and the few things that ranks say to each other.

Started plainly there is one rank; started by `torchrun` the ranks find each other through its environment
variables, over NCCL on GPUs and Gloo on CPUs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from pipeline.errors import TrainingError

T = TypeVar("T")

TIMEOUT = timedelta(minutes=30)


@dataclass(frozen=True)
class Ranks:
    """This process's place: `rank` of `world`, computing on `device`."""

    rank: int = 0
    world: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def main(self) -> bool:
        """The rank that writes logs, checkpoints and grids."""
        return self.rank == 0

    def summed(self, values: Tensor) -> Tensor:
        """Sum over ranks, element by element."""
        if self.world > 1:
            dist.all_reduce(values)
        return values

    def gathered(self, value: T) -> list[T]:
        """Every rank's value, in rank order."""
        if self.world == 1:
            return [value]
        out: list[Any] = [None] * self.world
        dist.all_gather_object(out, value)
        return out

    def from_main(self, value: T) -> T:
        """The main rank's value, on all ranks: for what is found on disk, which another rank may see differently."""
        if self.world == 1:
            return value
        held: list[Any] = [value]
        dist.broadcast_object_list(held, src=0)
        found: T = held[0]
        return found

    def barrier(self) -> None:
        if self.world > 1:
            dist.barrier()

    def wrapped(self, task: nn.Module) -> nn.Module:
        """The task, its gradients averaged over ranks when there are several."""
        if self.world == 1:
            return task
        devices = [self.device.index] if self.device.type == "cuda" else None
        return DistributedDataParallel(task, device_ids=devices)

    def check_batch(self, batch: int, accumulate: int) -> None:
        """Raises TrainingError when a batch cannot be shared out evenly."""
        if batch % (self.world * accumulate):
            raise TrainingError(
                f"a batch of {batch} cannot be shared by {self.world} ranks with {accumulate} accumulation steps",
                hint=f"choose a batch that is a multiple of {self.world * accumulate}")


def pick_device(name: str, local_rank: int = 0) -> torch.device:
    """`auto` takes a GPU if there is one. Raises TrainingError for one that is not there."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise TrainingError(f"no device is called {name!r}", hint="use auto, cpu, cuda or mps") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise TrainingError("train.device is cuda but no GPU is visible", hint="use device = 'auto' or 'cpu'")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise TrainingError("train.device is mps but there is none", hint="use device = 'auto' or 'cpu'")
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", local_rank)
    return device


@contextmanager
def joined(device: str = "auto") -> Iterator[Ranks]:
    """Join the other ranks, if any, for the length of the block."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    place = pick_device(device, int(os.environ.get("LOCAL_RANK", "0")))
    if place.type == "cuda":
        torch.cuda.set_device(place)
    if world == 1:
        yield Ranks(device=place)
        return
    dist.init_process_group("nccl" if place.type == "cuda" else "gloo", timeout=TIMEOUT)
    try:
        yield Ranks(dist.get_rank(), dist.get_world_size(), place)
    finally:
        dist.destroy_process_group()


def without_sync(module: nn.Module, wanted: bool) -> Any:
    """A context in which backward leaves gradients unreduced: for all but the last accumulation turn."""
    if wanted and isinstance(module, DistributedDataParallel):
        return module.no_sync()
    return nullcontext()
