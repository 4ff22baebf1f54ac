"""The loops of `compiled` that look at tiles."""

# mypy: disable-error-code="assignment, no-any-return"

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.kernels.jit import compiled
from pipeline.kernels.plain import FINE


@compiled
def extremes(levels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    rows, columns = levels.shape[0] // 8, levels.shape[1] // 8
    brightest, darkest = np.empty((rows, columns), levels.dtype), np.empty((rows, columns), levels.dtype)
    high, low = np.empty(columns * 8, levels.dtype), np.empty(columns * 8, levels.dtype)
    for row in range(rows):
        a, b, c, d = levels[row * 8], levels[row * 8 + 1], levels[row * 8 + 2], levels[row * 8 + 3]
        e, f, g, h = levels[row * 8 + 4], levels[row * 8 + 5], levels[row * 8 + 6], levels[row * 8 + 7]
        for x in range(len(high)):  # one array to a loop: two are not worked on many values at a time
            high[x] = max(max(max(a[x], b[x]), max(c[x], d[x])), max(max(e[x], f[x]), max(g[x], h[x])))
        for x in range(len(low)):
            low[x] = min(min(min(a[x], b[x]), min(c[x], d[x])), min(min(e[x], f[x]), min(g[x], h[x])))
        for x in range(len(high) - 1):  # every place takes in those after it; each eighth is wanted
            high[x] = max(high[x], high[x + 1])
        for x in range(len(high) - 2):
            high[x] = max(high[x], high[x + 2])
        for x in range(len(high) - 4):
            high[x] = max(high[x], high[x + 4])
        for x in range(len(low) - 1):
            low[x] = min(low[x], low[x + 1])
        for x in range(len(low) - 2):
            low[x] = min(low[x], low[x + 2])
        for x in range(len(low) - 4):
            low[x] = min(low[x], low[x + 4])
        for column in range(columns):
            brightest[row, column] = high[8 * column]
        for column in range(columns):
            darkest[row, column] = low[8 * column]
    return brightest, darkest


@compiled
def doubled(high: NDArray[Any], low: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    rows, columns = high.shape[0] // 2, high.shape[1] // 2
    brightest, darkest = np.empty((rows, columns), high.dtype), np.empty((rows, columns), low.dtype)
    for row in range(rows):
        upper, lower, made = high[2 * row], high[2 * row + 1], brightest[row]
        for x in range(columns):
            made[x] = max(max(upper[2 * x], upper[2 * x + 1]), max(lower[2 * x], lower[2 * x + 1]))
        upper, lower, made = low[2 * row], low[2 * row + 1], darkest[row]
        for x in range(columns):
            made[x] = min(min(upper[2 * x], upper[2 * x + 1]), min(lower[2 * x], lower[2 * x + 1]))
    return brightest, darkest


@compiled
def largest(values: NDArray[np.uint8], count: int) -> NDArray[np.int64]:
    counts, wanted = np.zeros(256, np.int64), min(count, len(values))
    for value in values:
        counts[value] += 1
    least, above = 255, 0
    while above + counts[least] < wanted:
        above += counts[least]
        least -= 1
    made, found, equal = np.empty(wanted, np.int64), 0, wanted - above
    for place in range(len(values)):
        if values[place] > least:
            made[found] = place
            found += 1
        elif values[place] == least and equal > 0:
            made[found] = place
            found += 1
            equal -= 1
    return made


@compiled
def tiles(levels: NDArray[np.uint8], which: NDArray[np.int64], side: int) -> NDArray[np.uint8]:
    made, columns = np.empty((len(which), side, side), np.uint8), levels.shape[1] // side
    for n in range(len(which)):
        top, left = which[n] // columns * side, which[n] % columns * side
        for y in range(side):
            line, row = levels[top + y, left:left + side], made[n, y]
            for x in range(side):
                row[x] = line[x]
    return made


@compiled
def windowed(levels: NDArray[np.uint8], which: NDArray[np.int64], window: NDArray[np.float32]) -> NDArray[np.float32]:
    side = window.shape[0]
    made, columns = np.empty((len(which), side, side), np.float32), levels.shape[1] // side
    for n in range(len(which)):
        top, left = which[n] // columns * side, which[n] % columns * side
        total = np.int32(0)
        for y in range(side):
            line = levels[top + y, left:left + side]
            for x in range(side):
                total = np.int32(total + np.int32(line[x]))
        mean = np.float32(total) / np.float32(side * side)
        for y in range(side):
            line, weight, row = levels[top + y, left:left + side], window[y], made[n, y]
            for x in range(side):
                row[x] = (np.float32(line[x]) - mean) * weight[x]
    return made


@compiled
def marks(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    made = np.empty(len(words), np.uint64)
    for n in range(len(words)):
        state = np.uint64(0xCBF29CE484222325)
        for word in words[n]:
            state = (state ^ word) * np.uint64(0x100000001B3)
            state ^= state >> np.uint64(29)
        made[n] = state
    return made


@compiled
def steepest(levels: NDArray[Any]) -> NDArray[np.int32]:
    rows, columns = levels.shape[0] // 16, levels.shape[1] // 16
    made, most = np.empty((rows, columns), np.int32), np.empty(columns * 16, np.int32)
    for row in range(rows):
        most[:] = 0
        for y in range(row * 16, row * 16 + 15):
            line, below = levels[y], levels[y + 1]
            for x in range(len(most) - 1):
                here = np.int32(line[x])
                across, down = np.int32(np.int32(line[x + 1]) - here), np.int32(np.int32(below[x]) - here)
                most[x] = max(most[x], np.int32(np.int32(across * across) + np.int32(down * down)))
        for x in range(15, len(most), 16):  # whose neighbour is in the next tile
            most[x] = 0
        for x in range(len(most) - 1):
            most[x] = max(most[x], most[x + 1])
        for x in range(len(most) - 2):
            most[x] = max(most[x], most[x + 2])
        for x in range(len(most) - 4):
            most[x] = max(most[x], most[x + 4])
        for x in range(len(most) - 8):
            most[x] = max(most[x], most[x + 8])
        for column in range(columns):
            made[row, column] = most[16 * column]
    return made


@compiled
def diagonal_detail(levels: NDArray[np.uint8], which: NDArray[np.int64], side: int, most_clipped: int,
                    ) -> NDArray[np.int32]:
    made, columns = np.empty(len(which), np.int32), levels.shape[1] // side
    for n in range(len(which)):
        top, left = which[n] // columns * side, which[n] % columns * side
        clipped, total = np.int32(0), np.int32(0)
        for y in range(top, top + side, 2):
            line, below = levels[y, left:left + side], levels[y + 1, left:left + side]
            for x in range(side):
                clipped += np.int32(line[x] == 0) + np.int32(line[x] == 255)
                clipped += np.int32(below[x] == 0) + np.int32(below[x] == 255)
            for x in range(0, side, 2):
                total += abs(np.int32(line[x]) - np.int32(line[x + 1]) - np.int32(below[x]) + np.int32(below[x + 1]))
        made[n] = -1 if clipped > most_clipped else total
    return made


@compiled
def on_the_grid(coefficients: NDArray[np.float32], steps: NDArray[np.float32]) -> NDArray[np.int64]:
    made = np.zeros((2, len(steps)), np.int64)
    for quality in range(len(steps)):
        for frequency in range(len(coefficients)):
            inverse, row = np.float32(1) / steps[quality, frequency], coefficients[frequency]
            found, squares = np.int32(0), np.int32(0)  # of at most 8,000 blocks: below 2^31
            for n in range(len(row)):
                scaled = row[n] * inverse
                nearest = np.floor(scaled + np.float32(0.5))
                counts = np.int32(nearest != 0)
                off = np.int32(np.int32((scaled - nearest) * np.float32(FINE)) * counts)
                found = np.int32(found + counts)
                squares = np.int32(squares + np.int32(off * off))
            made[0, quality] += found
            made[1, quality] += squares
    return made
