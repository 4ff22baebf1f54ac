"""Randomness per sample: a pure function of (seed, purpose, global sample number), never of ranks or workers.

Uniform numbers come from SplitMix64's output function (Steele, Lea and Flood 2014) over a keyed counter, all
samples of a batch at once; normal numbers from Philox4x64 (Salmon et al. 2011), whose counter's upper half is
the sample number, so that no two samples share a stream.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def key(seed: int, *purpose: str | int) -> int:
    """128 bits that stand for a seed and a purpose: BLAKE2b of both."""
    text = "\0".join([str(seed), *(str(part) for part in purpose)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


def generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """A numpy generator of its own for a seed and a purpose."""
    return np.random.Generator(np.random.Philox(key=key(seed, *purpose)))


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    values = (values ^ (values >> np.uint64(30))) * _MIX_1
    values = (values ^ (values >> np.uint64(27))) * _MIX_2
    return values ^ (values >> np.uint64(31))


def uniforms(seed: int, purpose: str, numbers: Sequence[int] | NDArray[np.int64]) -> NDArray[np.float64]:
    """One number in [0, 1) for each global sample number, shape (b,)."""
    whole = key(seed, purpose)
    low, high = np.uint64(whole & 0xFFFFFFFFFFFFFFFF), np.uint64(whole >> 64)
    with np.errstate(over="ignore"):
        counter = np.asarray(numbers, dtype=np.int64).astype(np.uint64) * _GOLDEN + low
        bits = _mixed(_mixed(counter) ^ high)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def normals(seed: int, purpose: str, numbers: Sequence[int] | NDArray[np.int64],
            shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Independent standard normal numbers for each global sample number, shape (b, *shape)."""
    whole = key(seed, purpose)
    out = np.empty((len(numbers), *shape), np.float32)
    for index, number in enumerate(numbers):
        stream = np.random.Generator(np.random.Philox(key=whole, counter=int(number) << 64))
        stream.standard_normal(out=out[index], dtype=np.float32)
    return out


@contextmanager
def seeded_torch(seed: int, *purpose: str | int, device: torch.device | None = None) -> Iterator[None]:
    """Inside, torch's default generators run from a seed of their own; outside they are untouched."""
    import torch

    devices = [device] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(key(seed, *purpose) & 0x7FFFFFFFFFFFFFFF)
        yield
