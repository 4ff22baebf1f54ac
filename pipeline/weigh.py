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

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field, model_validator

from pipeline import topics
from pipeline.captioners.vocabulary import SUBJECT_WORDS
from pipeline.classes import READS, Names, check_head, classes_of, objects
from pipeline.clusters import halves
from pipeline.errors import RecipeError
from pipeline.receipt import JsonObject, digest
from pipeline.schema import TOPICS, WEIGH, TableSchema
from pipeline.score import Model
from pipeline.settings import Settings
from pipeline.stage import ColumnStage

if TYPE_CHECKING:
    from pipeline.run import Run


class WeighSettings(Settings):
    classes: Literal["label", "zero_shot", "caption_words", "clusters", "none"] = Field(
        "label",
        description="where the class comes from: the source's label, the best zero-shot name of the score stage, "
                    "the first of `names` that the chosen caption contains, clusters of look-alikes named by the "
                    "nearest of `words`, or none",
    )
    head: str = Field("", description='zero_shot: the names of this head are the classes, e.g. "medium"; empty: names '
                                      "without a head")
    margin: float = Field(0.0, ge=0, le=1, description="zero_shot: pictures whose most probable name is not by this "
                                                       "much more probable than the next are unlabelled")
    clusters: int = Field(0, ge=0, description="clusters: how many; 0: the square root of the pictures, at most 200")
    words: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        SUBJECT_WORDS, min_length=1, description="clusters: words that may name one")
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
    reads: ClassVar[tuple[str, ...]] = ("id", "kept", "split", *READS)
    counted: ClassVar[str | None] = "class"

    def tables(self, run: Run) -> dict[str, TableSchema]:
        return {"": WEIGH, **({"topics": TOPICS} if run.recipe.weigh.classes == "clusters" else {})}

    def check(self, run: Run) -> None:
        """Raises RecipeError when classes are asked for that nothing can tell."""
        check_head(run.recipe.weigh, run.recipe.score.zero_shot)
        if run.recipe.weigh.classes == "clusters" and run.recipe.score.model == "none":
            raise RecipeError('weigh.classes = "clusters" needs CLIP embeddings, and score.model = "none" makes none',
                              hint="set score.model, or another weigh.classes")

    def settings(self, run: Run) -> JsonObject:
        return {**run.recipe.weigh.model_dump(mode="json"), "seed": run.recipe.seed}

    def columns_read(self, run: Run) -> Iterable[str]:
        return (*self.reads, "embedding") if run.recipe.weigh.classes == "clusters" else self.reads

    def namespaces(self, run: Run) -> dict[str, str]:
        settings = run.recipe.weigh
        if settings.classes != "clusters":
            return {}
        vectors = [part.sha256 for part in run.manifests.need("score").tables["embedding"]]
        return {"topics": digest([1, vectors, settings.clusters, list(settings.words), run.recipe.seed])}

    def compute(self, run: Run, columns: pa.Table) -> dict[str, pa.Table]:
        settings, aside = run.recipe.weigh, {}
        if settings.classes == "clusters":
            aside["topics"] = self._topics(run, columns)
            known = dict(zip(*(column.to_pylist() for column in aside["topics"].columns), strict=True))
            classes = objects([known.get(row_id) for row_id in columns.column("id").to_pylist()])
        else:
            classes = classes_of(columns, settings)
        classes[~np.asarray(columns.column("kept").to_numpy(zero_copy_only=False), bool)] = None
        trained = objects(columns.column("split").to_pylist()) == "train"
        weights = class_weights(Counter(classes[trained & (classes != np.array(None))].tolist()), settings)
        per_class = [None if name is None else weights.get(name, 1.0) for name in classes.tolist()]
        per_row = np.where(trained, np.array([1.0 if weight is None else weight for weight in per_class]), 0.0)
        return {"": pa.table([columns.column("id"), classes, per_class, per_row], schema=WEIGH.arrow), **aside}

    def _topics(self, run: Run, columns: pa.Table) -> pa.Table:
        """Every embedded row's cluster by name, of the last run when embeddings, words and number are the same."""
        known = self.cached(run, "topics")
        if known is not None:
            return known
        settings = run.recipe.weigh
        vectors_nd, there = halves(columns.column("embedding"))
        rows = np.flatnonzero(there)
        names: Names = np.empty(0, object)
        if len(rows):
            numbers, centres = topics.clustered(vectors_nd, rows, topics.count_for(len(rows), settings.clusters),
                                                run.recipe.seed)
            words = list(dict.fromkeys(settings.words))
            prompts = [topics.PROMPT.format(word) for word in words]
            embedded = Model.of(run.recipe.score, run.recipe.name).load().embed_texts(prompts)
            names = objects(topics.named(centres, words, embedded))[numbers]
        return pa.table([columns.column("id").take(pa.array(rows)), pa.array(names, pa.string())], schema=TOPICS.arrow)


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
