"""Inner loops in machine code, and those over whole pictures also without.

The latter come in two versions that give the same numbers to the last bit. `plain` is numpy and Pillow; `compiled`,
which goes over the pixels once where numpy goes over them many times, needs numba (the extra `fast`). Sums are in whole
numbers, so that their order does not matter.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType


@cache
def kernels() -> ModuleType:
    """The compiled loops where numba is installed, else the plain ones. To be asked for when there is a picture:
    loading the compiler takes half a second."""
    try:
        from pipeline.kernels import compiled
    except ImportError:
        from pipeline.kernels import plain

        return plain
    return compiled
