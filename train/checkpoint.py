"""Checkpoints: one file per position, complete or absent, the oldest ones removed."""

from __future__ import annotations

import io
import re
from typing import Any

import torch

from pipeline import storage
from pipeline.errors import StorageError, TrainingError

VERSION = 1
_NAME = re.compile(r"checkpoint-(\d{12})\.pt")


def name_of(position: int) -> str:
    """File name of the checkpoint after `position` samples."""
    return f"checkpoint-{position:012d}.pt"


def positions(folder: str) -> list[int]:
    """Positions of all complete checkpoints, rising."""
    found = (_NAME.fullmatch(name) for name in storage.names(folder))
    return sorted(int(match[1]) for match in found if match)


def save(folder: str, position: int, state: dict[str, Any], *, keep: int) -> str:
    """Write the checkpoint, then remove all but the newest `keep`. Returns its path. Raises StorageError."""
    path = storage.join(folder, name_of(position))
    with storage.atomic_writer(path) as file:
        torch.save({"version": VERSION, "position": position, **state}, file)
    for old in positions(folder)[:-keep]:
        storage.remove(storage.join(folder, name_of(old)))
    for leftover in storage.leftovers(folder):
        storage.remove(storage.join(folder, leftover))
    return path


def load(folder: str, position: int | None = None, *, device: torch.device | str = "cpu") -> dict[str, Any] | None:
    """The newest checkpoint (or the one at `position`), or None. Raises TrainingError for a damaged one."""
    known = positions(folder)
    if position is None:
        if not known:
            return None
        position = known[-1]
    path = storage.join(folder, name_of(position))
    try:
        source = storage.local(path) or io.BytesIO(storage.read_bytes(path))
        state: dict[str, Any] = torch.load(source, map_location=device, weights_only=True)
    except StorageError:
        raise
    except Exception as error:
        raise TrainingError(f"{path} is damaged: {type(error).__name__}",
                            hint="remove it: training goes on from the one before") from error
    if state.get("version", 0) > VERSION:
        raise TrainingError(f"{path} was written by a newer version", hint="update gristmill")
    return state
