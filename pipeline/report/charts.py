"""Numbers → shapes: histogram bins, axis ticks and bars, in per cent of the space they are drawn in.

The page draws bars as inline SVG and sets labels as text beside them: those stay readable at any width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

BINS = 56
LOG_SPAN = 40.0
"""From this ratio between the 99.5th and the 0.5th percentile on, the axis is logarithmic."""


@dataclass(frozen=True)
class Bar:
    """One histogram bar. All in per cent: `x`, `width` of the width; `passed`, `failed` stacked heights."""

    x: float
    width: float
    passed: float
    failed: float
    label: str


@dataclass(frozen=True)
class Tick:
    x: float
    label: str


@dataclass(frozen=True)
class Histogram:
    """`threshold_x` is None without a threshold; `beyond` rows lie off the axis, in the outermost bars."""

    bars: tuple[Bar, ...]
    ticks: tuple[Tick, ...]
    threshold_x: float | None
    threshold: str
    logarithmic: bool
    highest: int
    beyond: int


def histogram(values: Floats, failed: Bools, threshold: float | None) -> Histogram | None:
    """Bin `values` (n,), stacked by `failed` (n,), on an axis that always shows the threshold.

    Values that are not finite are left out; None when nothing is left. The axis spans the 0.2nd to the 99.8th
    percentile, so that one odd value does not flatten the rest.
    """
    finite = np.isfinite(values)
    values, failed = values[finite].astype(np.float64), failed[finite]
    if values.size == 0:
        return None
    if threshold is not None and not math.isfinite(threshold):
        threshold = None
    low, high = _span(values, threshold)
    logarithmic = _is_logarithmic(values, low)
    scale = np.log10 if logarithmic else np.asarray
    anchor = None if threshold is None else float(scale(threshold))
    edges = _edges(float(scale(low)), float(scale(high)), anchor, whole=bool(np.all(values == np.round(values))))
    places = np.clip(scale(np.clip(values, low, high)), edges[0], edges[-1])
    passed_counts, _ = np.histogram(places[~failed], edges)
    failed_counts, _ = np.histogram(places[failed], edges)
    highest = int((passed_counts + failed_counts).max())
    unscaled = 10.0**edges if logarithmic else edges

    def across(value: float) -> float:
        return float(100 * (scale(value) - edges[0]) / (edges[-1] - edges[0]))

    width = 100 / (len(edges) - 1)
    bars = tuple(
        Bar(index * width, width, _height(int(good), highest), _height(int(bad), highest),
            f"{number(unscaled[index])} to {number(unscaled[index + 1])}: {good:,} pass, {bad:,} fail")
        for index, (good, bad) in enumerate(zip(passed_counts, failed_counts, strict=True)) if good or bad
    )
    first, last = (float(unscaled[index]) for index in (0, -1))
    marks = log_ticks(first, last) if logarithmic else ticks(first, last)
    return Histogram(
        bars, tuple(Tick(across(mark), number(mark)) for mark in marks),
        None if threshold is None else across(threshold), "" if threshold is None else number(threshold),
        logarithmic, highest, int(((values < low) | (values > high)).sum()),
    )


def _span(values: Floats, threshold: float | None) -> tuple[float, float]:
    low, high = (float(value) for value in np.quantile(values, [0.002, 0.998]))
    if threshold is not None:
        low, high = min(low, threshold), max(high, threshold)
    if high - low <= 1e-12 * max(abs(low), abs(high), 1.0):
        pad = max(abs(low) * 0.05, 0.5)
        return low - pad, high + pad
    return low, high


def _is_logarithmic(values: Floats, low: float) -> bool:
    if low <= 0 or float(values.min()) <= 0:
        return False
    few, many = np.quantile(values, [0.005, 0.995])
    return bool(many / few > LOG_SPAN)


def _edges(low: float, high: float, anchor: float | None, *, whole: bool) -> Floats:
    """Borders of about BINS equal bins over `low`…`high`. `anchor`, the threshold, is one of them, so that no bar
    mixes its two sides. Whole numbers of a short span get a bin each."""
    span = high - low
    width = 1.0 if whole and span <= BINS else span / (BINS - 1)
    if anchor is None:
        anchor = math.floor(low) if width == 1 else low
    first, last = math.floor((low - anchor) / width), math.floor((high - anchor) / width) + 1
    return anchor + width * np.arange(first, last + 1, dtype=np.float64)


def _height(rows: int, highest: int) -> float:
    """Per cent of the chart's height; a bar that is not empty stays visible."""
    return max(1.5, 96 * rows / highest) if rows else 0.0


def ticks(low: float, high: float, about: int = 6) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten apart) between `low` and `high`."""
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
    first = math.ceil(low / step - 1e-9)
    return [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten between `low` and `high`, with 2 and 5 times them where there are few."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if len(exponents) <= 4 else (1,)
    return [factor * 10.0**exponent for exponent in exponents for factor in factors
            if low <= factor * 10.0**exponent <= high]


def number(value: float | int | None) -> str:
    """A number as people read it: at most four significant digits, thousands separated."""
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 1e9 or size < 1e-4:
        return f"{value:.3g}"
    if size >= 1000 or float(value).is_integer():
        return f"{value:,.0f}"
    text = f"{value:.{max(0, 3 - math.floor(math.log10(size)))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
