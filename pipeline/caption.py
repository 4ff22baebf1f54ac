"""`caption`: words for pictures that need some, by one or more captioners, scored against the stored embedding.

Which rows need words is decided from columns: `why_captioned`. Each captioner keeps its texts in a side table of its
own (`caption/<name>`), so adding one runs only that one, and only for rows let in. The main table scores the texts
against `score`'s embedding without a look at the picture.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field, field_validator

from pipeline import clip_files
from pipeline.captioners import registry
from pipeline.captioners.base import CaptionerSettings
from pipeline.checks.caption import Caption, is_weak, settings_in
from pipeline.receipt import JsonObject
from pipeline.rowstage import RowStage, Step
from pipeline.schema import CANDIDATE, CAPTION, ID, STRINGS, VALUE_KEY, Column, TableSchema
from pipeline.score import BLOCK, BYTES, Model, cosines, missing, picture_at, vectors
from pipeline.settings import Settings

if TYPE_CHECKING:
    from pipeline.run import Run
    from pipeline.stage import Rows

    AnyCaptioner = CaptionerSettings
else:  # every registered captioner's settings, told apart by `kind`
    _KINDS = [captioner.Settings for captioner in registry().values()]
    AnyCaptioner = Annotated[reduce(or_, _KINDS), Field(discriminator="kind")] if len(_KINDS) > 1 else _KINDS[0]

REASON_READS = ("id", "kept", "pooled_captions", "caption_scores")
LONGEST_REPEAT = 3


class CaptionSettings(Settings):
    when: Literal["none", "weak", "all"] = Field(
        "weak",
        description="which pictures get new captions. weak: those whose captions are missing, all too little for the "
        "check `caption`, or all below min_score",
    )
    min_score: float = Field(
        0.2, ge=-1, le=1, description="originals all below this CLIP cosine need a better caption; no unit"
    )
    sample: float = Field(0.0, ge=0, le=1, description="share of the other pictures that are captioned as well, 0..1")
    captioners: tuple[AnyCaptioner, ...] = Field((), description="who writes; none: nobody, whatever `when` says")

    @field_validator("captioners")
    @classmethod
    def _names_differ(cls, captioners: tuple[CaptionerSettings, ...]) -> tuple[CaptionerSettings, ...]:
        twice = [label for label, count in Counter(given.label for given in captioners).items() if count > 1]
        if twice:
            raise ValueError(f"two captioners are called {twice[0]!r}; give one of them another name")
        return captioners


class CaptionStage(RowStage):
    name: ClassVar[str] = "caption"
    version: ClassVar[int] = 1
    inputs: ClassVar[tuple[str, ...]] = ("ingest", "dedupe", "filter", "score")
    counted: ClassVar[str | None] = "why_captioned"
    carried: tuple[str, ...] = ("id", "why_captioned")

    def check(self, run: Run) -> None:
        for given in _writers(run.recipe.caption):
            registry()[given.kind].check(given, run.recipe.name)

    def settings(self, run: Run) -> JsonObject:
        caption, score, weak = run.recipe.caption, run.recipe.score, settings_in(run.recipe.checks)
        return {
            **caption.model_dump(mode="json", exclude={"captioners"}), "weak": weak.model_dump(mode="json"),
            "captioners": [_deciding(given) for given in _writers(caption)],
            "score": {"model": score.model, "precision": score.precision},
            "seed": run.recipe.seed if caption.sample else None,
        }

    def fingerprints(self, run: Run) -> JsonObject:
        found: JsonObject = {
            given.label: registry()[given.kind].fingerprint(given) for given in _writers(run.recipe.caption)
        }
        if found and run.recipe.score.model != clip_files.NONE:
            found["score"] = Model.of(run.recipe.score, run.recipe.name).namespace()
        return found

    def tables(self, run: Run) -> dict[str, TableSchema]:
        writers = _writers(run.recipe.caption)
        return {"": CAPTION, **{given.label: text_table(given.label) for given in writers}}

    def source_rows(self, run: Run) -> Rows:
        weak = settings_in(run.recipe.checks)
        return _WithReason(self.rows(run), run.recipe.caption, weak, run.recipe.seed)

    def steps(self, run: Run) -> list[Step]:
        writers = _writers(run.recipe.caption)
        written = [
            Step(
                table=given.label, values=text_table(given.label),
                namespace={"captioner": _deciding(given), "version": registry()[given.kind].version,
                           "fingerprint": registry()[given.kind].fingerprint(given)},
                reads=BYTES, key=("sha256",), wanted=_needs_words, wanted_reads=("why_captioned",),
                worker=partial(WriteCaptions, given, run.recipe.name), kind="model",
                lost=partial(missing, column_of(given.label)),
            )
            for given in writers
        ]  # fmt: skip
        model = Model.of(run.recipe.score, run.recipe.name) if run.recipe.score.model != clip_files.NONE else None
        labels = tuple(given.label for given in writers)
        reads = (*(column_of(label) for label in labels), *(["embedding"] if model else []))
        values = TableSchema((ID, *(c for c in CAPTION.columns if c.name == "candidates"), VALUE_KEY))
        scored = Step(
            table="", values=values,
            namespace={"labels": labels, "score": model.namespace() if model else None},
            reads=reads, key=reads, wanted=_needs_words if writers else _nobody_writes,
            wanted_reads=("why_captioned",), worker=partial(ScoreCandidates, model, labels), kind="model",
            chunk_rows=1024,
        )  # fmt: skip
        return [*written, scored]


def column_of(label: str) -> str:
    """The column that holds a captioner's texts."""
    return f"{label}_texts"


def text_table(label: str) -> TableSchema:
    """The side table of one captioner."""
    return TableSchema((ID, Column(column_of(label), STRINGS, f"texts written by {label}, best first"), VALUE_KEY))


def why_captioned(rows: pa.Table, settings: CaptionSettings, weak: Caption.Settings, seed: int) -> list[str | None]:
    """`all`, `empty`, `weak`, `low_score` or `sample` per row; None where no words are needed.

    Rows that `filter` dropped never need any. `rows` holds `REASON_READS`.
    """
    if settings.when == "none" or not settings.captioners:
        return [None] * rows.num_rows
    return [_why(row, settings, weak, seed) if row["kept"] else None for row in rows.to_pylist()]


def _why(row: dict[str, Any], settings: CaptionSettings, weak: Caption.Settings, seed: int) -> str | None:
    if settings.when == "all":
        return "all"
    texts = [text for text in row["pooled_captions"] or [] if text.strip()]
    if not texts:
        return "empty"
    if all(is_weak(text, weak) for text in texts):  # also those that came from dropped copies
        return "weak"
    scored = zip(row["pooled_captions"], row["caption_scores"] or [], strict=False)
    scores = [score for text, score in scored if score is not None and text.strip() and not is_weak(text, weak)]
    if scores and max(scores) < settings.min_score:
        return "low_score"
    drawn = hashlib.blake2b(f"{seed}:caption:{row['id']}".encode(), digest_size=8).digest()
    return "sample" if int.from_bytes(drawn, "little") < settings.sample * 2**64 else None


def usable(text: str) -> str | None:
    """The caption with tidy spaces; None for empty ones and for decoders caught in a loop."""
    words = text.split()
    for size in (1, 2, 3, 4):
        for start in range(len(words) - size * LONGEST_REPEAT):
            phrase = words[start : start + size]
            if words[start : start + size * (LONGEST_REPEAT + 1)] == phrase * (LONGEST_REPEAT + 1):
                return None
    return " ".join(words) or None


class _WithReason:
    """The input rows with the column `why_captioned`, which depends on thresholds and so is in no key."""

    def __init__(self, rows: Rows, settings: CaptionSettings, weak: Caption.Settings, seed: int) -> None:
        self._rows, self._settings, self._weak, self._seed = rows, settings, weak, seed
        self.part_count = rows.part_count

    def part(self, number: int, columns: Sequence[str] | None = None) -> pa.Table:
        assert columns is not None
        others = [name for name in columns if name != "why_captioned"]
        table = self._rows.part(number, others or ["id"])  # a table without columns would have no rows either
        if "why_captioned" not in columns:
            return table
        reasons = why_captioned(self._rows.part(number, REASON_READS), self._settings, self._weak, self._seed)
        return table.append_column("why_captioned", pa.array(reasons, pa.string())).select(list(columns))


class WriteCaptions:
    """Chunk worker: bytes → canonical pictures → one captioner's texts."""

    def __init__(self, settings: CaptionerSettings, recipe_name: str) -> None:
        self.column = column_of(settings.label)
        self.captioner = registry()[settings.kind](settings, recipe_name)
        self.readers = ThreadPoolExecutor(max_workers=8)

    def __call__(self, rows: pa.Table) -> pa.Table:
        texts: list[list[str] | None] = [None] * rows.num_rows
        for start in range(0, rows.num_rows, BLOCK):
            block = rows.slice(start, BLOCK)
            pictures = list(self.readers.map(picture_at, *(block.column(name).to_pylist() for name in BYTES)))
            readable = [number for number, picture in enumerate(pictures) if picture is not None]
            written = self.captioner.write([p for p in pictures if p is not None])
            for number, found in zip(readable, written, strict=True):
                texts[start + number] = [good for text in found if (good := usable(text))]
        return pa.table({self.column: pa.array(texts, STRINGS)})


class ScoreCandidates:
    """Chunk worker: all captioners' texts → candidates with their CLIP cosine; null scores without a model."""

    def __init__(self, model: Model | None, labels: Sequence[str]) -> None:
        self.clip, self.labels = model.load() if model else None, labels

    def __call__(self, rows: pa.Table) -> pa.Table:
        written = [rows.column(column_of(label)).to_pylist() for label in self.labels]
        candidates = [
            [(label, text) for label, texts in zip(self.labels, row, strict=True) for text in texts or []]
            for row in zip(*written, strict=True)
        ]
        texts = [[text for _, text in row] for row in candidates]
        scores: Sequence[Sequence[float | None]] = [[None] * len(row) for row in texts]
        if self.clip is not None:
            scores = cosines(self.clip, vectors(rows.column("embedding")), texts)
        values = [
            [
                {"captioner": label, "text": text, "score": _number(score)}
                for (label, text), score in zip(row, found, strict=True)
            ]
            for row, found in zip(candidates, scores, strict=True)
        ]
        return pa.table({"candidates": pa.array(values, pa.list_(CANDIDATE))})


def _number(score: float | None) -> float | None:
    """Null instead of NaN: a picture without an embedding."""
    return None if score is None or np.isnan(score) else score


def _writers(settings: CaptionSettings) -> Sequence[CaptionerSettings]:
    return settings.captioners if settings.when != "none" else ()


def _deciding(given: CaptionerSettings) -> JsonObject:
    """A captioner's settings without those that only decide how fast it is."""
    return given.model_dump(mode="json", exclude={"device", "batch", "name"})


def _needs_words(rows: pa.Table) -> NDArray[np.bool_]:
    return np.asarray(rows.column("why_captioned").is_valid().to_numpy(zero_copy_only=False), bool)


def _nobody_writes(rows: pa.Table) -> NDArray[np.bool_]:
    return np.zeros(rows.num_rows, bool)
