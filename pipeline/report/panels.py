"""One panel per threshold: the histogram of what was measured, and the pictures on both sides of the line."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.checks import as_arrays, registry
from pipeline.checks.base import Check, CheckSettings, Columns, Verdict
from pipeline.report.charts import Histogram, histogram, number
from pipeline.report.sample import Bools, Floats, Indices, Ranks, RunRows, nearest
from pipeline.report.thumbnails import Thumbnails
from pipeline.report.tiles import Found, Tile, make_tile


@dataclass(frozen=True)
class Panel:
    """`failed` of `judged` rows fail; `dropped` of them are dropped for it, the others for an earlier reason.

    `texts`: captions are what is judged, so they are shown under the pictures.
    """

    name: str
    about: str
    unit: str
    action: str
    reason: str
    judged: int
    failed: int
    dropped: int
    settings: tuple[str, ...]
    chart: Histogram | None
    texts: bool
    failing: tuple[Tile, ...]
    passing: tuple[Tile, ...]

    @property
    def share(self) -> float:
        return 100 * self.failed / max(self.judged, 1)


@dataclass(frozen=True)
class Line:
    """What one threshold is about: values and failures of all rows, NaN where nothing was measured."""

    name: str
    about: str
    unit: str
    action: str
    reason: str
    settings: tuple[str, ...]
    values: Floats
    failed: Bools
    threshold: float | None
    crop: bool
    texts: bool


PLAIN = 20
"""Checks of a lower rank look for faults that a thumbnail shows as well."""


def in_detail(check: Check) -> bool:
    """Whether the check's fault lies in the pixels' detail: blur, compression, enlargement."""
    return bool(check.columns) and check.rank >= PLAIN


def check_lines(rows: RunRows, checks: Mapping[str, CheckSettings]) -> Iterator[Line]:
    """One line per verdict of all checks that are not off and whose columns exist.

    A check's further verdicts (a second threshold, off by default) are shown once something fails them.
    """
    for name, check in registry().items():
        settings = checks.get(name)
        needed = [*check.columns, *check.reads, *check.found_in]
        if settings is None or settings.action == "off" or not rows.has(*needed):
            continue
        seen = _seen(check, settings, rows)
        for number_of, verdict in enumerate(check.judge(seen, settings)):
            if number_of == 0 or verdict.failed.any():
                yield _line(name, check, settings, verdict, seen)


def _seen(check: Check, settings: CheckSettings, rows: RunRows) -> Columns:
    """What the check judges by; what it finds as `filter` found it, if that has run."""
    judged = (*check.columns, *check.reads)
    seen = as_arrays(rows.columns(judged), judged) if judged else {}
    if check.findings:
        kept = rows.found(check.findings)
        found = as_arrays(kept, check.findings) if kept is not None else \
            check.find(as_arrays(rows.columns(check.found_in), check.found_in), settings)
        seen = {**seen, **found}
    return seen


def _line(name: str, check: Check, settings: CheckSettings, verdict: Verdict, seen: Columns) -> Line:
    module = inspect.getmodule(type(check))
    about = ((module.__doc__ if module else None) or "").strip().split("\n")[0]
    dumped = settings.model_dump(mode="json")
    return Line(
        name, about, _unit(check, settings, verdict, seen), settings.action, verdict.reason,
        tuple(f"filter.{name}.{key} = {value}" for key, value in dumped.items() if key != "action"),
        verdict.value, verdict.failed, verdict.threshold, crop=in_detail(check),
        texts="captions" in check.found_in,
    )


def _unit(check: Check, settings: CheckSettings, verdict: Verdict, seen: Columns) -> str:
    """What the values are: the column's own words, or else those of the setting that holds the threshold."""
    for column, meaning in (check.columns | check.findings).items():
        if np.array_equal(seen[column], verdict.value, equal_nan=True):
            return meaning
    for key, field in type(settings).model_fields.items():
        if getattr(settings, key) == verdict.threshold:
            return field.description or ""
    return "; ".join(check.columns.values())


def clip_line(rows: RunRows, threshold: float) -> Line | None:
    """The best CLIP score of each row's found captions against `select.min_clip_score`."""
    if not rows.has("caption_scores"):
        return None
    column = rows.columns(["caption_scores"]).column("caption_scores")
    values = np.array([max((score for score in scores or () if score is not None), default=np.nan)
                       for scores in column.to_pylist()], np.float64)
    if not np.isfinite(values).any():
        return None
    return Line(
        "clip_score", "How well the best caption found fits its picture; below the line new words are needed.",
        "CLIP cosine, no unit", "needs words", "low_clip_score", (f"select.min_clip_score = {number(threshold)}",),
        values, values < threshold, threshold, crop=False, texts=True,
    )


def near(line: Line, rows: RunRows, order: Ranks, count: int) -> tuple[Indices, Indices]:
    """Row numbers nearest to the threshold that fail, and that pass. Copies would fill them with one picture."""
    if line.threshold is None or not np.isfinite(line.threshold):
        none = np.empty(0, np.int64)
        return none, none
    judged = np.isfinite(line.values) & rows.decoded & ~rows.copies
    distance = np.abs(line.values - line.threshold)
    return (nearest(judged & line.failed, distance, order, count),
            nearest(judged & ~line.failed, distance, order, count))


def panel(line: Line, sides: tuple[Indices, Indices], found: Found, rows: RunRows, decided: pa.Table,
          thumbnails: Thumbnails) -> Panel:
    """Lay out one line: chart, counts, and the pictures `near` the threshold on either side."""
    judged = np.isfinite(line.values) & rows.decoded
    failed = line.failed & judged
    dropped = np.asarray(pc.fill_null(pc.equal(decided.column("reason"), line.reason), False))
    failing, passing = (
        tuple(make_tile(found[index], thumbnails, crop=line.crop, found=line.texts, note=number(line.values[index]))
              for index in side.tolist())
        for side in sides
    )
    return Panel(
        line.name, line.about, line.unit, line.action, line.reason, int(judged.sum()), int(failed.sum()),
        int(dropped.sum()), line.settings, histogram(line.values[judged], failed[judged], line.threshold),
        line.texts, failing, passing,
    )
