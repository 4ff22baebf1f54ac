"""Tiles of a plane of luma, and order statistics over them: what several measures ask of the same picture.

The extremes of 8 × 8 px are kept for the last planes asked for and put together for larger tiles, so that a picture is
gone over once for all of them.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.kernels import kernels

CELL = 8
_KEPT = 2
"""Planes remembered: a picture's at full and at viewing size."""
_last = threading.local()


def spans(plane: NDArray[Any], side: int) -> NDArray[Any]:
    """Brightest minus darkest value of each whole tile of `side` px, a power of 2 from CELL: (H // side, W // side).

    `plane` (H, W) must not be changed between two calls.
    """
    known = [each for each in getattr(_last, "planes", ()) if each[0]() is not None]
    sizes = next((sizes for place, sizes in known if place() is plane), None)
    if sizes is None:
        sizes = [kernels().extremes(plane)]
        known.append((weakref.ref(plane), sizes))
    _last.planes = known[-_KEPT:]
    while len(sizes) <= (number := (side // CELL).bit_length() - 1):
        sizes.append(kernels().doubled(*sizes[-1]))
    high, low = sizes[number]
    made: NDArray[Any] = high - low
    return made


def percentile(values: NDArray[Any], share: float) -> float:
    """The value below which the `share`, 0..1, of the values lies, interpolated as `numpy.percentile` does, whose
    generality takes ten times as long."""
    ordered = np.sort(values, axis=None, kind="stable" if values.dtype.itemsize < 4 else None)
    place = share * (len(ordered) - 1)
    below = int(place)
    low, high = float(ordered[below]), float(ordered[min(below + 1, len(ordered) - 1)])
    return low + (high - low) * (place - below)
