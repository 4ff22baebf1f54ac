"""Smaller versions of a plane of luma.

Each value is a weighted mean of the pixels under a window as wide as the reduction asks for (Pillow's
`ImagingResample`), rounded to 8 bits between the two sides.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pipeline.kernels import kernels
from pipeline.kernels.plain import BITS, aligned


def lanczos(levels: NDArray[np.uint8], width: int, height: int) -> NDArray[np.uint8]:
    """(H, W) → (height, width): what Pillow's LANCZOS makes of it, to the last bit."""
    tall = levels.shape[0] - height > max(0, 2 * (levels.shape[1] - width))
    for vertical in (tall, not tall):
        size, wanted = (levels.shape[0], height) if vertical else (levels.shape[1], width)
        if size != wanted:
            work = kernels().lanczos_down if vertical else kernels().lanczos_across
            levels = work(levels, *_lanczos_weights(size, wanted))
    return levels


def means(levels: NDArray[np.uint8], width: int, height: int) -> NDArray[np.uint8]:
    """(H, W) → (height, width), smaller on both sides or equal: each value the mean of what lies under a window about
    twice as wide as its share (Pillow's HAMMING, in 8 bits)."""
    lines = kernels().means_down(levels, *_mean_weights(levels.shape[0], height))
    made: NDArray[np.uint8] = kernels().means_down(kernels().turned(lines), *_mean_weights(levels.shape[1], width))
    return made.T


@lru_cache(64)
def _lanczos_weights(size: int, wanted: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """First pixel (wanted,) and weights (wanted, taps) of each value along one side; those not needed are 0.

    First pixels are multiples of 16, and `aligned` weights as many as a processor takes at once.
    """
    starts, weights = _weights(size, wanted, 3.0, lambda x: np.where((x >= -3) & (x < 3), np.sinc(x) * np.sinc(x / 3),
                                                                     0.0))
    taps = weights.shape[1]
    lines, made = starts // 16 * 16, aligned((wanted, -(-(taps + 15) // 64) * 64), np.int32)
    for row, start, weight in zip(made, starts - lines, weights, strict=True):
        row[start:start + taps] = np.trunc(weight * (1 << BITS) + np.copysign(0.5, weight))
    return lines, made


@lru_cache(64)
def _mean_weights(size: int, wanted: int) -> tuple[NDArray[np.int64], NDArray[np.uint16]]:
    """The same of a sinc under a Hamming window, in whole 256ths that add up to 256."""
    starts, weights = _weights(size, wanted, 1.0, lambda x: np.where(
        np.abs(x) < 1, np.sinc(x) * (0.54 + 0.46 * np.cos(np.pi * x)), 0.0))
    whole = np.floor(weights * 256).astype(np.uint16)
    order = np.argsort(whole - weights * 256, axis=1, kind="stable")  # the largest remainders first
    missing = np.arange(weights.shape[1]) < 256 - whole.sum(axis=1, keepdims=True, dtype=np.int64)
    np.put_along_axis(whole, order, np.take_along_axis(whole, order, 1) + missing.astype(np.uint16), 1)
    return starts, whole


def _weights(size: int, wanted: int, support: float, window: Callable[[NDArray[np.float64]], NDArray[np.float64]],
             ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    scale = size / wanted
    reach = support * max(scale, 1.0)
    centres = (np.arange(wanted) + 0.5) * scale
    first = np.maximum((centres - reach + 0.5).astype(np.int64), 0)
    end = np.minimum((centres + reach + 0.5).astype(np.int64), size)
    taps = int((end - first).max())
    starts = np.minimum(first, size - taps)
    at = starts[:, None] + np.arange(taps)
    weights = window((at - centres[:, None] + 0.5) / max(scale, 1.0))
    weights[(at < first[:, None]) | (at >= end[:, None])] = 0
    return starts, weights / weights.cumsum(1)[:, -1:]  # summed from left to right, as Pillow does
