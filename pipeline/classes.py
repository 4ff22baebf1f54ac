"""The class of each picture by its source's label, the zero-shot names, or words of its caption; see also `topics`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.errors import RecipeError
from pipeline.zeroshot import probabilities

if TYPE_CHECKING:
    from pipeline.weigh import WeighSettings

Names = NDArray[np.object_]
READS = ("label", "caption", "zero_shot")


def classes_of(rows: pa.Table, settings: WeighSettings) -> Names:
    """Class name of each row of `READS`, (n,), None when unlabelled; for all kinds but `clusters`."""
    if settings.classes == "label":
        return objects([None if label is None else str(label) for label in rows.column("label").to_pylist()])
    if settings.classes == "zero_shot":
        return most_probable(rows.column("zero_shot"), settings.head, settings.margin)
    if settings.classes == "caption_words":
        return objects([None if text is None else first_named(text, settings.names)
                        for text in rows.column("caption").to_pylist()])
    return np.full(rows.num_rows, None, object)


def most_probable(column: pa.ChunkedArray | pa.Array, head: str, margin: float) -> Names:
    """The most probable name of the head, without the head; None where the next one is nearer than `margin` or nothing
    is known. Of equally probable names the first in the alphabet."""
    known = {name: shares for name, shares in probabilities(column).items() if name.rpartition("/")[0] == head}
    found: Names = np.full(len(column), None, object)
    if known:
        names = sorted(known)
        shares = np.stack([known[name] for name in names])
        told = ~np.isnan(shares).all(0)
        ordered = np.sort(np.nan_to_num(shares, nan=-1.0), axis=0)
        sure = ordered[-1] - (ordered[-2] if len(names) > 1 else 0.0) >= margin
        best = np.nan_to_num(shares, nan=-1.0).argmax(0)
        places = np.flatnonzero(told & sure)
        found[places] = objects([name.rpartition("/")[2] for name in names])[best[places]]
    return found


def first_named(text: str, names: Sequence[str]) -> str | None:
    """The first of these names in the text, whole words in any case; of two at one place the longer."""
    found = [(match.start(), -len(name), name) for name in names if (match := _whole(name).search(text))]
    return min(found)[2] if found else None


@cache
def _whole(name: str) -> re.Pattern[str]:
    """The words of a class name one after another, whole and in any case."""
    words = r"\s+".join(re.escape(word) for word in name.split())
    return re.compile(rf"(?<!\w){words}(?!\w)", re.IGNORECASE)


def check_head(settings: WeighSettings, prompts: Mapping[str, object]) -> None:
    """Raises RecipeError when classes are to come from zero-shot names that the recipe does not have."""
    heads = sorted({name.rpartition("/")[0] for name in prompts})
    if settings.classes == "zero_shot" and settings.head not in heads:
        named = ", ".join(head or '""' for head in heads)
        which = f"head {settings.head!r}" if settings.head else "names without a head"
        raise RecipeError(f"weigh.classes is zero_shot, and score.zero_shot has no {which}",
                          hint=f"set weigh.head to one of: {named}" if heads else "give prompts in [score.zero_shot]")


def objects(values: Sequence[str | None]) -> Names:
    made: Names = np.empty(len(values), object)
    made[:] = values
    return made
