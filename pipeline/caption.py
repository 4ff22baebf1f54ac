"""`caption`: words for pictures that need some, by one or more captioners, scored against the stored embedding.

Which rows need words is decided from columns: `why_captioned`. Each captioner keeps its texts in a side table of its
own (`caption/<name>`), so adding one runs only that one, and only for rows let in. The main table scores the texts
against `score`'s embedding without a look at the picture.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field, field_validator

from pipeline import answers, clip_files
from pipeline.candidates import AskForCaptions, ScoreCandidates, WriteCaptions, answer_columns, text_table, unanswered
from pipeline.captioners import registry
from pipeline.captioners.base import CaptionerSettings
from pipeline.checks.caption import REPEATED, Caption, settings_in, weak_among
from pipeline.receipt import JsonObject
from pipeline.rowstage import BYTES_LOST, RowStage, Step, Worker
from pipeline.schema import CAPTION, ID, VALUE_KEY, TableSchema
from pipeline.score import BYTES, Model
from pipeline.settings import Settings
from pipeline.zeroshot import Bounds, outside

if TYPE_CHECKING:
    from pipeline.run import Run
    from pipeline.stage import Output, Rows

    AnyCaptioner = CaptionerSettings
else:  # every registered captioner's settings, told apart by `kind`
    _KINDS = [captioner.Settings for captioner in registry().values()]
    AnyCaptioner = Annotated[reduce(or_, _KINDS), Field(discriminator="kind")] if len(_KINDS) > 1 else _KINDS[0]

REASON_READS = ("id", "kept", "pooled_captions", "caption_scores", "captions", "failed", "zero_shot")
REMOTE_CHUNK = 64
"""Rows whose answers are kept together: what a kill may cost where each of them may have a price."""


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
            "answers": answers.VERSION,
            **caption.model_dump(mode="json", exclude={"captioners"}), "weak": weak.model_dump(mode="json"),
            "captioners": [_deciding(given) for given in _writers(caption)],
            "score": {"model": score.model, "precision": score.precision},
            "seed": run.recipe.seed if caption.sample else None,
            "zero_shot": {name: bounds.model_dump() for name, bounds in run.recipe.select.zero_shot.items()},
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
        return {"": CAPTION, **{given.label: text_table(given) for given in writers}}

    def source_rows(self, run: Run) -> Rows:
        weak = settings_in(run.recipe.checks)
        return _WithReason(self.rows(run), partial(
            why_captioned, settings=run.recipe.caption, weak=weak, seed=run.recipe.seed,
            bounds=run.recipe.select.zero_shot))

    def lost(self, run: Run) -> list[str]:
        away = run.manifests.need(self.name).counts.get(BYTES_LOST, 0)
        return [f"the words for {away} pictures"] if away else []

    def execute(self, run: Run, output: Output) -> None:
        self._asking: list[WriteCaptions] = []
        try:
            super().execute(run, output)
        finally:
            for worker in self._asking:
                if told := worker.captioner.told():
                    run.progress.say(f"  {self.name} {worker.label}: {told}")

    def steps(self, run: Run) -> list[Step]:
        writers = _writers(run.recipe.caption)
        model = Model.of(run.recipe.score, run.recipe.name) if run.recipe.score.model != clip_files.NONE else None
        reads = (*(name for given in writers for name in answer_columns(given)), *(["embedding"] if model else []))
        values = TableSchema((ID, *(c for c in CAPTION.columns if c.name in ("candidates", "unused")), VALUE_KEY))
        scored = Step(
            table="", values=values,
            namespace={"labels": [given.label for given in writers], "asked": [dict(given.asked) for given in writers],
                       "answers": answers.VERSION, "score": model.namespace() if model else None},
            reads=reads, key=reads, wanted=_needs_words if writers else _nobody_writes,
            wanted_reads=("why_captioned",), worker=partial(ScoreCandidates, model, tuple(writers)), kind="model",
            chunk_rows=1024,
        )  # fmt: skip
        return [*(self._written(given, run) for given in writers), scored]

    def _written(self, given: CaptionerSettings, run: Run) -> Step:
        """The step that fills one captioner's side table."""
        captioner = registry()[given.kind]
        write = partial(AskForCaptions if captioner.remote else WriteCaptions, given, run.recipe.name)
        return Step(
            table=given.label, values=text_table(given),
            namespace={"captioner": _deciding(given), "version": captioner.version,
                       "fingerprint": captioner.fingerprint(given)},
            reads=BYTES, key=("sha256",), wanted=_needs_words, wanted_reads=("why_captioned",),
            worker=partial(self._here, write) if captioner.remote else write,
            kind="inline" if captioner.remote else "model", chunk_rows=REMOTE_CHUNK if captioner.remote else 256,
            lost=partial(unanswered, given),
            away="picture(s) got no words, because their bytes or the server were away",
        )  # fmt: skip

    def _here(self, write: Callable[[], WriteCaptions]) -> Worker:
        """A worker of this process, remembered for what it has to tell at the end."""
        self._asking.append(worker := write())
        return worker


def why_captioned(rows: pa.Table, settings: CaptionSettings, weak: Caption.Settings, seed: int,
                  bounds: Mapping[str, Bounds]) -> list[str | None]:
    """`all`, `empty`, `weak`, `low_score` or `sample` per row; None where no words are needed.

    Rows that `filter` dropped never need any, nor do those that `select` will drop by a zero-shot bound, whatever is
    said of them. `rows` holds `REASON_READS`.
    """
    if settings.when == "none" or not settings.captioners:
        return [None] * rows.num_rows
    needed = np.array(rows.column("kept").to_numpy(zero_copy_only=False), bool)
    for _, failed, _, _ in outside(rows.column("zero_shot"), bounds):
        needed &= ~failed
    if settings.when == "all":
        return ["all" if each else None for each in needed.tolist()]
    listed = rows.to_pylist()
    useless = weak_among([text for row in listed for text in row["pooled_captions"] or ()], weak)
    return [_why(row, settings, useless, seed) if each else None
            for row, each in zip(listed, needed.tolist(), strict=True)]


def _why(row: dict[str, Any], settings: CaptionSettings, weak: Collection[str], seed: int) -> str | None:
    texts = [text for text in row["pooled_captions"] or [] if text.strip()]
    if not texts:
        return "empty"
    if REPEATED in {failed["reason"] for failed in row.get("failed") or []}:  # then what its copies say counts alone
        texts = [text for text in texts if text not in row["captions"]]
    if all(text in weak for text in texts):  # also those that came from dropped copies
        return "weak"
    scored = zip(row["pooled_captions"], row["caption_scores"] or [], strict=False)
    scores = [score for text, score in scored if score is not None and text.strip() and text not in weak]
    if scores and max(scores) < settings.min_score:
        return "low_score"
    drawn = hashlib.blake2b(f"{seed}:caption:{row['id']}".encode(), digest_size=8).digest()
    return "sample" if int.from_bytes(drawn, "little") < settings.sample * 2**64 else None


class _WithReason:
    """The input rows with the column `why_captioned`, which depends on thresholds and so is in no key."""

    def __init__(self, rows: Rows, why: Callable[[pa.Table], list[str | None]]) -> None:
        self._rows, self._why = rows, why
        self.part_count = rows.part_count

    def part(self, number: int, columns: Sequence[str] | None = None) -> pa.Table:
        assert columns is not None
        others = [name for name in columns if name != "why_captioned"]
        table = self._rows.part(number, others or ["id"])  # a table without columns would have no rows either
        if "why_captioned" not in columns:
            return table
        reasons = self._why(self._rows.part(number, REASON_READS))
        return table.append_column("why_captioned", pa.array(reasons, pa.string())).select(list(columns))


def _writers(settings: CaptionSettings) -> Sequence[CaptionerSettings]:
    return settings.captioners if settings.when != "none" else ()


def _deciding(given: CaptionerSettings) -> JsonObject:
    """A captioner's settings without those that decide no text."""
    return given.model_dump(mode="json", exclude=set(given.undecided))


def _needs_words(rows: pa.Table) -> NDArray[np.bool_]:
    return np.asarray(rows.column("why_captioned").is_valid().to_numpy(zero_copy_only=False), bool)


def _nobody_writes(rows: pa.Table) -> NDArray[np.bool_]:
    return np.zeros(rows.num_rows, bool)
