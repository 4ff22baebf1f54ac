"""`weigh`: the class of each picture and how often training should see it. Columns only.

The weight of a class of n rows is, before normalising,

    inverse     1 / n
    sqrt        1 / √n
    effective   (1 − β) / (1 − βⁿ)     effective number of samples, Cui et al. 2019, arXiv:1901.05555
    capped      min(1, t / n)          MetaCLIP's balancing, Xu et al. 2023, arXiv:2309.16671
    temperature n^(1/T − 1)            shares ∝ n^(1/T), as in multilingual sampling; T = 1 changes nothing
    target      share / n              shares of the classes given by hand
    none        1

then divided so that the mean over training rows is 1, kept within `min_weight` and `max_weight`, and divided again.
Unlabelled rows weigh 1 and are left out of the mean.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field, model_validator

from pipeline.errors import RecipeError
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
    method: Literal["inverse", "sqrt", "effective", "capped", "temperature", "target", "none"] = Field(
        "sqrt", description="how a class's weight follows from its number of pictures n: 1/n, 1/√n, effective number "
        "(Cui 2019), min(1, cap/n) (MetaCLIP), n^(1/temperature − 1), shares given in `target`, or all 1"
    )
    beta: float = Field(0.999, gt=0, lt=1, description="effective: β of the number of samples, no unit")
    cap: int = Field(20_000, ge=1, description="capped: pictures that a class counts for at most")
    temperature: float = Field(2.0, ge=1, description="temperature: T; 1 keeps the shares, large ones make them equal")
    target: dict[str, float] = Field(
        {}, description="target: class → its share of what training sees, 0..1, together 1; other classes weigh 0"
    )
    max_weight: float = Field(
        8.0, ge=1, description="no sample is seen more often than this per epoch; small classes would be memorised"
    )
    min_weight: float = Field(
        0.0, ge=0, le=1, description="no sample is seen less often than this per epoch, on average"
    )

    @model_validator(mode="after")
    def _shares(self) -> WeighSettings:
        if self.method == "target" and abs(sum(self.target.values()) - 1) > 1e-6:
            raise ValueError(f"target: the shares make {sum(self.target.values()):g} together, not 1")
        if any(share < 0 for share in self.target.values()):
            raise ValueError("target: a share is below 0")
        return self


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
    missing = sorted(settings.target.keys() - counts.keys())
    if settings.method == "target" and missing:
        raise RecipeError(f"weigh.target names {missing[0]!r}, which no training picture is of",
                          hint=f"classes: {', '.join(names)[:300]}")
    shares = np.array([settings.target.get(name, 0.0) for name in names])
    raw = {
        "inverse": 1 / n, "sqrt": 1 / np.sqrt(n), "none": np.ones_like(n),
        "effective": (1 - settings.beta) / (1 - settings.beta ** n),
        "capped": np.minimum(1.0, settings.cap / n), "temperature": n ** (1 / settings.temperature - 1),
        "target": shares / n,
    }[settings.method]
    weights = within(raw * n.sum() / (raw * n).sum(), n, settings.min_weight, settings.max_weight)
    return dict(zip(names, weights.tolist(), strict=True))


def within(weights: NDArray[np.float64], n: NDArray[np.float64], least: float, most: float) -> NDArray[np.float64]:
    """Weights scaled together, then cut to least..most, so that their mean over all rows (n of each class) is 1.

    The scale that does it is found by bisection: the mean grows with it. Where no scale reaches 1 (all classes at a
    bound, or of weight 0) the nearest mean stays. A weight of 0 is never raised.
    """
    floor = np.where(weights > 0, least, 0.0)

    def cut(scale: float) -> NDArray[np.float64]:
        return np.clip(weights * scale, floor, most)

    if (cut(1.0) == weights).all():
        return weights
    low, high = 0.0, 1.0
    while (cut(high) * n).sum() < n.sum() and high < 1e12:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if (cut(middle) * n).sum() < n.sum() else (low, middle)
    return cut(high)
