"""The search for near hashes in one band of their bits, in machine code, for `nearby`."""

from __future__ import annotations

# mypy: disable-error-code="assignment, no-any-return"
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.kernels.jit import compiled

Found = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]


@compiled
def _bits(value: np.uint64) -> np.uint64:
    """Number of bits set; compilers know this formula and put one instruction in its place."""
    value -= (value >> np.uint64(1)) & np.uint64(0x5555555555555555)
    value = (value & np.uint64(0x3333333333333333)) + ((value >> np.uint64(2)) & np.uint64(0x3333333333333333))
    value = (value + (value >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (value * np.uint64(0x0101010101010101)) >> np.uint64(56)


@compiled
def _twice(array: NDArray[Any]) -> NDArray[Any]:
    made = np.empty(2 * len(array), array.dtype)
    made[:len(array)] = array
    return made


@compiled
def search(values: NDArray[np.uint64], order: NDArray[np.int64], first: NDArray[np.int64], flips: NDArray[np.int64],
           earlier: NDArray[np.uint64], radius: int, most: int) -> Found:
    """Pairs within `most` bits whose keys in this band differ by one of `flips` (0 among them), each once.

    `values` in the order of their keys, `order` the place each came from; those of key k stand from `first[k]` on.
    `earlier` are the masks of the bands searched before: pairs that differ by at most `radius` bits in one of these
    were found there.
    """
    a, b, distances = np.empty(1024, np.int64), np.empty(1024, np.int64), np.empty(1024, np.uint8)
    count = 0
    for key in range(len(first) - 1):
        begin, end = first[key], first[key + 1]
        if begin == end:
            continue
        for flip in flips:
            other = key ^ flip
            if other < key:
                continue  # seen from the other side
            start, stop = first[other], first[other + 1]
            if start == stop:
                continue
            for one in range(begin, end):
                value = values[one]
                for two in range(one + 1 if other == key else start, stop):
                    differing = value ^ values[two]
                    distance = _bits(differing)
                    if distance > most:
                        continue
                    known = False
                    for mask in earlier:
                        known |= _bits(differing & mask) <= radius
                    if known:
                        continue
                    if count == len(a):
                        a, b, distances = _twice(a), _twice(b), _twice(distances)
                    a[count], b[count], distances[count] = order[one], order[two], distance
                    count += 1
    return a[:count], b[:count], distances[:count]
