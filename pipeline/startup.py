"""What a command need not wait for while it starts: pandas, and looking for garbage among modules being loaded."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_YOUNG = 10_000
"""New objects between two looks for cycles; an event loop makes hundreds for each answer, and hardly any cycle."""


@contextmanager
def loading() -> Iterator[None]:
    """Load a command's modules in this block. For processes of our own only: it changes how memory is looked after.

    What is there when it ends stays to the end, and is not looked through again.
    """
    gc.disable()
    try:
        _pandas_later()
        yield
    finally:
        gc.freeze()
        gc.set_threshold(_YOUNG, *gc.get_threshold()[1:])
        gc.enable()


def _pandas_later() -> None:
    """pyarrow imports pandas, if there is one, with the first array that is made, only to ask whether it was made from
    pandas' data. Once it has missed it, it tries again when a data frame is wanted."""
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    missing = _Missing()
    sys.meta_path.insert(0, missing)
    try:
        pa.array([None])
    finally:
        sys.meta_path.remove(missing)


class _Missing:
    """Finds no pandas."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("not while a command starts", name=name)
