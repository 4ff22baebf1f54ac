"""Zero-shot probabilities as columns, and the bounds that a recipe sets for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field, model_validator

from pipeline.errors import RecipeError
from pipeline.settings import Settings

Doubles = NDArray[np.float64]


class Bounds(Settings):
    min: float = Field(0.0, ge=0, le=1, description="least probability of this name, 0..1")
    max: float = Field(1.0, ge=0, le=1, description="largest probability of this name, 0..1")

    @model_validator(mode="after")
    def _in_order(self) -> Bounds:
        if self.min > self.max:
            raise ValueError(f"min {self.min:g} is above max {self.max:g}")
        return self


def probabilities(column: pa.ChunkedArray | pa.Array) -> dict[str, Doubles]:
    """Name → probability of each row, (n,), NaN where the row has none. `column` is `score`'s map `zero_shot`."""
    maps = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(maps, pa.ChunkedArray):  # how several chunks of nothing are combined
        maps = maps.chunk(0) if maps.num_chunks else pa.array([], column.type)
    if not len(maps) or pa.types.is_null(maps.type):
        return {}
    offsets = maps.offsets.to_numpy()
    held = slice(int(offsets[0]), int(offsets[-1]))
    encoded = maps.keys[held].dictionary_encode()
    codes, values = encoded.indices.to_numpy(), maps.items[held].to_numpy(zero_copy_only=False)
    rows = np.repeat(np.arange(len(maps)), np.diff(offsets))
    made = np.full((len(encoded.dictionary), len(maps)), np.nan)
    made[codes, rows] = values
    return dict(zip(encoded.dictionary.to_pylist(), made, strict=True))


def outside(column: pa.ChunkedArray | pa.Array, bounds: Mapping[str, Bounds],
            ) -> Iterator[tuple[str, NDArray[np.bool_], Doubles, float]]:
    """(name, rows outside, probability of every row, the bound) for each bound in the recipe's order. Rows without a
    probability are never outside."""
    known = probabilities(column) if bounds else {}
    for name, bound in bounds.items():
        if name in known:
            for failed, threshold in ((known[name] < bound.min, bound.min), (known[name] > bound.max, bound.max)):
                yield name, failed, known[name], threshold


def check_names(bounds: Mapping[str, Bounds], prompts: Mapping[str, object]) -> None:
    """Raises RecipeError for a bound on a name that has no prompts."""
    for name in bounds:
        if name not in prompts:
            hint = f"names are: {', '.join(prompts)[:300]}" if prompts else "give it prompts in [score.zero_shot]"
            raise RecipeError(f"select.zero_shot has a bound for {name!r}, which score.zero_shot does not name",
                              hint=hint)
