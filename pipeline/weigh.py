"""`weigh`: the class of each picture and how often training should see it. Columns only.

The weight of a class of n rows is, before normalising,

    inverse     1 / n
    sqrt        1 / √n
    effective   (1 − β) / (1 − βⁿ)     effective number of samples, Cui et al. 2019, arXiv:1901.05555
    none        1

then divided so that the mean over training rows is 1, capped at `max_weight`, and divided again.
Unlabelled rows weigh 1 and are left out of the mean.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from pipeline.receipt import JsonObject
from pipeline.schema import WEIGH, TableSchema
from pipeline.settings import Settings
from pipeline.stage import ColumnStage

if TYPE_CHECKING:
    from pipeline.run import Run


class WeighSettings(Settings):
    classes: Literal["label", "zero_shot", "caption_words", "none"] = Field(
        "label",
        description="where the class comes from: the source's label, the best zero-shot name of the score stage, "
                    "the first of `names` that the chosen caption contains, or none",
    )
    names: tuple[Annotated[str, Field(min_length=1, pattern=r"\S")], ...] = Field(
        (), description="class names looked for by caption_words: one or several whole words, any case; the first in "
        "the caption counts, of two at one place the longer")
    method: Literal["inverse", "sqrt", "effective", "none"] = Field(
        "sqrt", description="how a class's weight follows from its size; see `curate schema`"
    )
    beta: float = Field(0.999, gt=0, lt=1, description="β of the effective number of samples, no unit")
    max_weight: float = Field(
        8.0, ge=1, description="no sample is seen more often than this per epoch; small classes would be memorised"
    )


class WeighStage(ColumnStage):
    name: ClassVar[str] = "weigh"
    inputs: ClassVar[tuple[str, ...]] = ("ingest", "score", "select")
    reads: ClassVar[tuple[str, ...]] = ("id", "label", "kept", "split", "caption", "zero_shot")
    counted: ClassVar[str | None] = "class"

    def tables(self, run: Run) -> dict[str, TableSchema]:
        return {"": WEIGH}

    def settings(self, run: Run) -> JsonObject:
        return run.recipe.weigh.model_dump(mode="json")

    def compute(self, run: Run, columns: pa.Table) -> dict[str, pa.Table]:
        settings = run.recipe.weigh
        rows = columns.to_pylist()
        classes = [class_of(row, settings) if row["kept"] else None for row in rows]
        training = [row["split"] == "train" for row in rows]
        weights = class_weights(
            Counter(c for c, trained in zip(classes, training, strict=True) if trained and c is not None), settings
        )
        per_class = [None if c is None else weights.get(c, 1.0) for c in classes]
        per_row = [(1.0 if w is None else w) if trained else 0.0
                   for w, trained in zip(per_class, training, strict=True)]
        return {"": pa.table([columns.column("id"), classes, per_class, per_row], schema=pa.schema(
            [pa.field(c.name, c.type) for c in WEIGH.columns]))}


def class_of(row: dict[str, object], settings: WeighSettings) -> str | None:
    """The row's class name, None when unlabelled."""
    if settings.classes == "label":
        return None if row["label"] is None else str(row["label"])
    if settings.classes == "zero_shot":
        scores = dict(row["zero_shot"] or [])  # type: ignore[call-overload]
        return max(sorted(scores), key=lambda name: scores[name]) if scores else None
    if settings.classes == "caption_words":
        found = [(match.start(), -len(name), name) for name in settings.names
                 if (match := _whole(name).search(str(row["caption"] or "")))]
        return min(found)[2] if found else None
    return None


@cache
def _whole(name: str) -> re.Pattern[str]:
    """The words of a class name one after another, whole and in any case."""
    words = r"\s+".join(re.escape(word) for word in name.split())
    return re.compile(rf"(?<!\w){words}(?!\w)", re.IGNORECASE)


def class_weights(counts: Counter[str], settings: WeighSettings) -> dict[str, float]:
    """Weight per class; their mean over the counted rows is 1 (up to the cap)."""
    names = sorted(counts)
    n = np.array([counts[name] for name in names], float)
    if not names:
        return {}
    raw = {
        "inverse": 1 / n, "sqrt": 1 / np.sqrt(n), "none": np.ones_like(n),
        "effective": (1 - settings.beta) / (1 - settings.beta ** n),
    }[settings.method]
    weights = raw * n.sum() / (raw * n).sum()
    for _ in range(len(names)):  # capping one class lifts the others, which may then reach the cap themselves
        over = weights >= settings.max_weight
        room = n.sum() - settings.max_weight * n[over].sum()
        if not over.any() or over.all() or room <= 0:
            break
        lifted = np.where(over, settings.max_weight, raw * room / (raw * n)[~over].sum())
        if np.allclose(lifted, weights):
            break
        weights = lifted
    return {name: float(min(w, settings.max_weight)) for name, w in zip(names, weights, strict=True)}
