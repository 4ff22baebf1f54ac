"""The loops in numpy and Pillow: what `compiled` is held against, and what runs without it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

BITS = 22
"""Weights of a resampling are whole numbers of 2^-22, as Pillow's are."""
FINE = 1024
"""Distances from the quantiser's grid are whole numbers of 1/1024 step."""


def aligned(shape: tuple[int, ...], kind: type[np.generic]) -> NDArray[Any]:
    """Zeros that begin where a line of the processor's nearest memory does."""
    size = math.prod(shape) * np.dtype(kind).itemsize
    room = np.zeros(size + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start:start + size].view(kind).reshape(shape)


def surveyed(rgb: NDArray[np.uint8], across: int, down: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """A picture (H, W, 3) gone over once: its luma (H, W), Rec. 601 as Pillow converts RGB to L, and averages over
    cells of `down` × `across` pixels as `PIL.Image.reduce` takes them, smaller at the right and lower edge."""
    image = Image.fromarray(rgb)
    return np.asarray(image.convert("L")), np.asarray(image.reduce((across, down)))


def histogram(levels: NDArray[np.uint8]) -> NDArray[np.int64]:
    """How many pixels have each level, (256,)."""
    return np.bincount(levels.ravel(), minlength=256)


def lanczos_across(levels: NDArray[np.uint8], starts: NDArray[np.int64], weights: NDArray[np.int32],
                   ) -> NDArray[np.uint8]:
    """(H, W) → (H, N) by Pillow's Lanczos: value n of a row is the sum of `weights[n]`, in 2^-BITS, times its pixels
    from `starts[n]` on."""
    return np.asarray(Image.fromarray(levels).resize((len(starts), len(levels)), Image.Resampling.LANCZOS))


def lanczos_down(levels: NDArray[np.uint8], starts: NDArray[np.int64], weights: NDArray[np.int32],
                 ) -> NDArray[np.uint8]:
    """(H, W) → (N, W), as `lanczos_across`."""
    return np.asarray(Image.fromarray(levels).resize((levels.shape[1], len(starts)), Image.Resampling.LANCZOS))


def means_down(levels: NDArray[np.uint8], starts: NDArray[np.int64], weights: NDArray[np.uint16]) -> NDArray[np.uint8]:
    """(H, W) → (N, W): row n is the mean of the rows from `starts[n]` on under `weights[n]`, whose sum is 256."""
    total = np.full((len(starts), levels.shape[1]), 128, np.uint16)
    for tap in range(weights.shape[1]):
        total += levels[starts + tap] * weights[:, tap, None]
    return (total >> 8).astype(np.uint8)


def turned(levels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(H, W) → (W, H)."""
    return np.ascontiguousarray(levels.T)


def extremes(levels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Brightest and darkest value of each whole tile of 8 × 8 px: two of (H // 8, W // 8)."""
    rows, columns = levels.shape[0] // 8, levels.shape[1] // 8
    cells = levels[:rows * 8, :columns * 8].reshape(rows, 8, columns, 8)
    high, low = cells.max(1).reshape(rows, columns * 8), cells.min(1).reshape(rows, columns * 8)
    for _ in range(3):  # by halves: numpy is slow at reducing over few neighbours
        high, low = np.maximum(high[:, ::2], high[:, 1::2]), np.minimum(low[:, ::2], low[:, 1::2])
    return high, low


def tiles(levels: NDArray[Any], which: NDArray[np.int64], side: int) -> NDArray[Any]:
    """Whole tiles of `side` px, numbered along the rows of the picture's grid: (n, side, side)."""
    rows, columns = levels.shape[0] // side, levels.shape[1] // side
    grid = levels[:rows * side, :columns * side].reshape(rows, side, columns, side)
    return grid[which // columns, :, which % columns]


def windowed(levels: NDArray[np.uint8], which: NDArray[np.int64], window: NDArray[np.float32]) -> NDArray[np.float32]:
    """The tiles as wide as the window (S, S), a power of 2, less their mean and times the window: (n, S, S)."""
    some = tiles(levels, which, len(window))
    means = some.sum(axis=(1, 2), dtype=np.int32).astype(np.float32) / np.float32(window.size)
    made: NDArray[np.float32] = (some.astype(np.float32) - means[:, None, None]) * window
    return made


def marks(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A 64-bit number for the content of each row of words, (n, W): FNV-1a, a word a step, with its upper bits mixed
    into the lower ones."""
    state = np.full(len(words), 0xCBF29CE484222325, np.uint64)
    for word in words.T:
        state = (state ^ word) * np.uint64(0x100000001B3)
        state ^= state >> np.uint64(29)
    return state


def doubled(high: NDArray[Any], low: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Extremes of tiles → those of tiles twice as wide and high; an odd last row or column is left out."""
    rows, columns = (size - size % 2 for size in high.shape)
    highest = np.maximum(high[:rows:2, :columns], high[1:rows:2, :columns])
    lowest = np.minimum(low[:rows:2, :columns], low[1:rows:2, :columns])
    return np.maximum(highest[:, ::2], highest[:, 1::2]), np.minimum(lowest[:, ::2], lowest[:, 1::2])


def largest(values: NDArray[np.uint8], count: int) -> NDArray[np.int64]:
    """Places of the `count` largest values, or of all, in rising order; of equal values the first ones."""
    return np.sort(np.argsort(255 - values, kind="stable")[:count])


def steepest(levels: NDArray[Any]) -> NDArray[np.int32]:
    """Square of the steepest slope, per px, within each whole tile of 16 × 16 px: (H // 16, W // 16). Values below
    2^14."""
    rows, columns = levels.shape[0] // 16, levels.shape[1] // 16
    made = np.empty((rows, columns), np.int32)
    for row in range(rows):
        some = levels[row * 16:row * 16 + 16, :columns * 16].reshape(16, columns, 16).astype(np.int32)
        across = some[:-1, :, 1:] - some[:-1, :, :-1]
        down = some[1:, :, :-1] - some[:-1, :, :-1]
        made[row] = (across * across + down * down).max(axis=(0, 2))
    return made


def diagonal_detail(levels: NDArray[np.uint8], which: NDArray[np.int64], side: int, most_clipped: int,
                    ) -> NDArray[np.int32]:
    """Sum of the sizes of the diagonal Haar detail of each tile (numbered as in `tiles`), in half levels; -1 for tiles
    of which more than `most_clipped` pixels are black or white."""
    values = tiles(levels, which, side).astype(np.int32)
    clipped = ((values == 0) | (values == 255)).sum(axis=(1, 2))
    detail = values[:, ::2, ::2] - values[:, ::2, 1::2] - values[:, 1::2, ::2] + values[:, 1::2, 1::2]
    return np.where(clipped > most_clipped, -1, np.abs(detail).sum(axis=(1, 2))).astype(np.int32)


def on_the_grid(coefficients: NDArray[np.float32], steps: NDArray[np.float32]) -> NDArray[np.int64]:
    """Of coefficients (F, N) that are no smaller than half of their frequency's step in (Q, F): how many, and the sum
    of their squared distances from the nearest multiple of it, in (step / FINE)²: (2, Q)."""
    made = np.empty((2, len(steps)), np.int64)
    for quality, step in enumerate(steps):
        scaled = coefficients * (np.float32(1) / step)[:, None]
        nearest = np.floor(scaled + np.float32(0.5))
        off = ((scaled - nearest) * np.float32(FINE)).astype(np.int32) * (nearest != 0)
        made[:, quality] = np.count_nonzero(nearest), np.einsum("fn,fn->", off, off, dtype=np.int64)
    return made


def plain_lines(levels: NDArray[np.uint8], most_span: int, most_drift: int) -> int:
    """Lines from the first on that span at most `most_span` levels and whose middle stays within `most_drift` of the
    first one's: the number of the first that does not, or of all."""
    high, low = levels.max(1).astype(np.int32), levels.min(1).astype(np.int32)
    ends = (high - low > most_span) | (np.abs(high + low - high[0] - low[0]) > 2 * most_drift)
    return int(ends.argmax()) if ends.any() else len(levels)
