"""The page's tables: stages as their receipts tell, classes with their weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from pipeline.balance import Balance, balance
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


def classes(rows: RunRows, decided: pa.Table) -> Balance | None:
    """What classes are worth to training; None before `weigh` and where no row has a class."""
    if not rows.has("class", "split", "class_weight", "sample_weight"):
        return None
    columns = rows.columns(["class", "split", "class_weight", "sample_weight"])
    made = balance(columns.append_column("kept", decided.column("kept")))
    return made if made.labelled else None
