"""The page's tables: stages as their receipts tell, classes with their weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.manifest import Manifests
from pipeline.report.sample import RunRows
from pipeline.schema import STAGES

CLASSES_SHOWN = 40


@dataclass(frozen=True)
class StageLine:
    """One stage: rows, when and how long it last ran (UTC, s), `state` fresh, stale or not run, and why."""

    stage: str
    rows: int | None
    finished: str
    seconds: float | None
    state: str
    why: str


@dataclass(frozen=True)
class ClassLine:
    """A class among the kept rows: `share` of rows, `trained` share of what training sees, per cent."""

    name: str
    rows: int
    train: int
    validation: int
    weight: float | None
    share: float
    trained: float


def stage_lines(manifests: Manifests, states: Mapping[str, tuple[bool, str]]) -> tuple[StageLine, ...]:
    """`states` maps stages to (fresh, why not); a stage that is missing there counts as fresh."""
    in_line = {stage for stage, _ in manifests.tables_in_line()}
    lines = []
    for stage in STAGES:
        receipt = manifests.receipt(stage)
        fresh, why = states.get(stage, (True, ""))
        if receipt is None:
            lines.append(StageLine(stage, None, "", None, "not run", ""))
            continue
        if stage not in in_line:
            fresh, why = False, "its rows are not those of ingest any more; left out of this report"
        lines.append(StageLine(stage, receipt.rows, when(receipt.timings.get("finished")),
                               receipt.timings.get("seconds"), "fresh" if fresh else "stale", "" if fresh else why))
    return tuple(lines)


def when(seconds: float | None) -> str:
    """Unix time as people read it, in UTC."""
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def last_finished(manifests: Manifests) -> str:
    """When the newest receipt was written: the moment that the page shows, never the clock's."""
    times = [receipt.timings.get("finished") for stage in STAGES if (receipt := manifests.receipt(stage))]
    return when(max((time for time in times if time is not None), default=None))


def class_lines(rows: RunRows, decided: pa.Table) -> tuple[tuple[ClassLine, ...], int]:
    """The largest classes, most rows first, and the number of all classes. Empty before `weigh`."""
    if not rows.has("class", "split", "class_weight", "sample_weight"):
        return (), 0
    columns = rows.columns(["class", "split", "class_weight", "sample_weight"])
    kept = columns.filter(pc.fill_null(decided.column("kept"), False))
    if pc.all(pc.is_null(kept.column("class"))).as_py() is not False:
        return (), 0
    kept = kept.append_column("validation", pc.equal(kept.column("split"), "validation").cast(pa.int64()))
    grouped = kept.group_by("class").aggregate([
        ([], "count_all"), ("validation", "sum"), ("class_weight", "max"), ("sample_weight", "sum"),
    ])
    found = grouped.to_pylist()
    rows_all = sum(row["count_all"] for row in found)
    weight_all = float(np.sum([row["sample_weight_sum"] or 0 for row in found])) or 1.0
    lines = [
        ClassLine(
            row["class"] if row["class"] is not None else "(unlabelled)", row["count_all"],
            row["count_all"] - (row["validation_sum"] or 0), row["validation_sum"] or 0, row["class_weight_max"],
            100 * row["count_all"] / rows_all, 100 * (row["sample_weight_sum"] or 0) / weight_all,
        )
        for row in found
    ]
    lines.sort(key=lambda line: (-line.rows, line.name))
    return tuple(lines[:CLASSES_SHOWN]), len(lines)
