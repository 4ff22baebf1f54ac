"""The loops compiled by numba for this processor, when they are first called; the result is kept on disk.

What each is for is said in `plain`. Whole numbers are cast back to 32 bits after every step, for numba widens them and
the processor is then half as fast.
"""

# mypy: disable-error-code="assignment, no-any-return"
# The types are those that numba infers; mypy knows only what Python would make of the same lines.

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.kernels.jit import compiled
from pipeline.kernels.plain import BITS, aligned
from pipeline.kernels.tiled import diagonal_detail as diagonal_detail
from pipeline.kernels.tiled import doubled as doubled
from pipeline.kernels.tiled import extremes as extremes
from pipeline.kernels.tiled import largest as largest
from pipeline.kernels.tiled import marks as marks
from pipeline.kernels.tiled import on_the_grid as on_the_grid
from pipeline.kernels.tiled import steepest as steepest
from pipeline.kernels.tiled import tiles as tiles
from pipeline.kernels.tiled import windowed as windowed


def surveyed(rgb: NDArray[np.uint8], across: int, down: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    narrow = down * 255 < 1 << 16  # sums of 16 bits are twice as quick
    return _surveyed(rgb, across, down, np.empty(rgb.shape[1] * 3, np.uint16 if narrow else np.uint32))


@compiled
def _surveyed(rgb: NDArray[np.uint8], across: int, down: int, sums: NDArray[Any],
              ) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    height, width = rgb.shape[:2]
    rows, columns = (height + down - 1) // down, (width + across - 1) // across
    levels, made = np.empty((height, width), np.uint8), np.empty((rows, columns, 3), np.uint8)
    for row in range(rows):
        first, last = row * down, min((row + 1) * down, height)
        sums[:] = 0
        for y in range(first, last):
            line, level = rgb[y].reshape(-1), levels[y]
            for x in range(len(sums)):
                sums[x] += line[x]
            for x in range(width):
                red = np.uint32(np.uint32(line[3 * x]) * np.uint32(19595))
                green = np.uint32(np.uint32(line[3 * x + 1]) * np.uint32(38470))
                blue = np.uint32(np.uint32(line[3 * x + 2]) * np.uint32(7471))
                level[x] = np.uint8(np.uint32(red + green + blue + np.uint32(1 << 15)) >> np.uint32(16))
        for column in range(columns):
            left, right = column * across, min((column + 1) * across, width)
            count = (right - left) * (last - first)
            factor = np.uint64((1 << 24) // count)
            some = sums[3 * left:3 * right]
            red = green = blue = np.uint32(count // 2)
            for x in range(right - left):
                red = np.uint32(red + some[3 * x])
                green = np.uint32(green + some[3 * x + 1])
                blue = np.uint32(blue + some[3 * x + 2])
            cell = made[row, column]
            cell[0] = np.uint8((np.uint64(red) * factor) >> np.uint64(24))
            cell[1] = np.uint8((np.uint64(green) * factor) >> np.uint64(24))
            cell[2] = np.uint8((np.uint64(blue) * factor) >> np.uint64(24))
    return levels, made


@compiled
def histogram(levels: NDArray[np.uint8]) -> NDArray[np.int64]:
    counts = np.zeros((4, 256), np.int64)  # four, for equal neighbours would wait for one another
    for y in range(levels.shape[0]):
        for x in range(levels.shape[1]):
            counts[x & 3, levels[y, x]] += 1
    return counts.sum(0)


def lanczos_across(levels: NDArray[np.uint8], starts: NDArray[np.int64], weights: NDArray[np.int32],
                   ) -> NDArray[np.uint8]:
    room = aligned((4, -(-(levels.shape[1] + weights.shape[1]) // 16) * 16), np.int32)
    return _lanczos_across(levels, starts, weights, room)


@compiled
def _lanczos_across(levels: NDArray[np.uint8], starts: NDArray[np.int64], weights: NDArray[np.int32],
                    room: NDArray[np.int32]) -> NDArray[np.uint8]:
    taps, height = weights.shape[1], levels.shape[0]
    made = np.empty((height, len(starts)), np.uint8)
    for top in range(0, height, 4):  # four rows at a time, so that each weight is loaded once for them
        rows = (top, min(top + 1, height - 1), min(top + 2, height - 1), min(top + 3, height - 1))
        for j in range(4):
            row, wide = levels[rows[j]], room[j]
            for x in range(len(row)):
                wide[x] = row[x]
        for n in range(len(starts)):
            start, weight = starts[n], weights[n]
            first, second = room[0, start:start + taps], room[1, start:start + taps]
            third, fourth = room[2, start:start + taps], room[3, start:start + taps]
            a = b = c = d = np.int32(1 << (BITS - 1))
            for k in range(taps):
                a = np.int32(a + np.int32(first[k] * weight[k]))
                b = np.int32(b + np.int32(second[k] * weight[k]))
                c = np.int32(c + np.int32(third[k] * weight[k]))
                d = np.int32(d + np.int32(fourth[k] * weight[k]))
            made[rows[3], n] = min(max(d >> BITS, 0), 255)
            made[rows[2], n] = min(max(c >> BITS, 0), 255)
            made[rows[1], n] = min(max(b >> BITS, 0), 255)
            made[rows[0], n] = min(max(a >> BITS, 0), 255)
    return made


@compiled
def lanczos_down(levels: NDArray[np.uint8], starts: NDArray[np.int64], weights: NDArray[np.int32],
                 ) -> NDArray[np.uint8]:
    made = np.empty((len(starts), levels.shape[1]), np.uint8)
    total = np.empty(levels.shape[1], np.int32)
    for n in range(len(starts)):
        total[:] = 1 << (BITS - 1)
        for k in range(weights.shape[1]):
            weight = weights[n, k]
            if weight != 0:
                row = levels[starts[n] + k]
                for x in range(len(total)):
                    total[x] = np.int32(total[x] + np.int32(np.int32(row[x]) * weight))
        for x in range(len(total)):
            made[n, x] = min(max(total[x] >> BITS, 0), 255)
    return made


@compiled
def means_down(levels: NDArray[np.uint8], starts: NDArray[np.int64], weights: NDArray[np.uint16]) -> NDArray[np.uint8]:
    made = np.empty((len(starts), levels.shape[1]), np.uint8)
    total = np.empty(levels.shape[1], np.uint16)
    for n in range(len(starts)):
        total[:] = 128
        for k in range(weights.shape[1]):
            weight, row = weights[n, k], levels[starts[n] + k]
            if weight != 0:
                for x in range(len(total)):
                    total[x] = np.uint16(total[x] + np.uint16(np.uint16(row[x]) * weight))
        line = made[n]
        for x in range(len(total)):
            line[x] = np.uint8(total[x] >> np.uint16(8))
    return made


@compiled
def turned(levels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    height, width = levels.shape
    made = np.empty((width, height), np.uint8)
    for top in range(0, height, 32):  # squares that fit the processor's nearest memory
        for left in range(0, width, 32):
            some, turned_some = levels[top:top + 32, left:left + 32], made[left:left + 32, top:top + 32]
            for x in range(some.shape[1]):
                for y in range(some.shape[0]):
                    turned_some[x, y] = some[y, x]
    return made


@compiled
def plain_lines(levels: NDArray[np.uint8], most_span: int, most_drift: int) -> int:
    tone, height = 0, int(levels.shape[0])
    for y in range(levels.shape[0]):
        most, least = np.uint8(0), np.uint8(255)
        for x in range(levels.shape[1]):
            value = levels[y, x]
            most, least = max(most, value), min(least, value)
        twice = np.int64(most) + np.int64(least)
        if y == 0:
            tone = twice
        if np.int64(most) - np.int64(least) > most_span or abs(twice - tone) > 2 * most_drift:
            return y
    return height
