"""What makes machine code of a loop: numba, with the same options everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """The function in machine code; other threads go on while it runs."""
    options = {"nogil": True, "error_model": "numpy"}
    try:
        made: Function = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder that numba may write to
        made = numba.njit(**options)(function)
    return made
