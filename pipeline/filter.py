"""`filter`: thresholds over columns. Says for every row whether it stays, and every check that it fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from pipeline import checks
from pipeline.receipt import JsonObject
from pipeline.schema import FILTER, TableSchema
from pipeline.stage import ColumnStage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pipeline.run import Run

READS = ("id", "fetch_outcome", "decode_outcome", "duplicate_of", "relation", "distance")


class FilterStage(ColumnStage):
    name: ClassVar[str] = "filter"
    inputs: ClassVar[tuple[str, ...]] = ("ingest", "measure", "dedupe")
    counted: ClassVar[str | None] = "reason"

    def tables(self, run: Run) -> dict[str, TableSchema]:
        return {"": FILTER}

    def settings(self, run: Run) -> JsonObject:
        return {name: chosen.model_dump(mode="json") for name, chosen in run.recipe.checks.items()}

    def columns_read(self, run: Run) -> Iterable[str]:
        return (*READS, *checks.columns_read())

    def compute(self, run: Run, columns: pa.Table) -> dict[str, pa.Table]:
        verdicts = checks.verdicts(columns, run.recipe.checks)
        deciding, failed = verdicts.deciding().tolist(), verdicts.failed()
        rows: list[dict[str, Any]] = []
        for number, row in enumerate(columns.select(READS).to_pylist()):
            decision = _earlier(row)
            if decision is None and deciding[number] >= 0:
                verdict = verdicts.judged[deciding[number]].verdict
                decision = _drop("filter", verdict.reason, float(verdict.value[number]), verdict.threshold)
            rows.append({"id": row["id"], "failed": failed[number], **(decision or {"kept": True})})
        return {"": pa.Table.from_pylist(rows, schema=FILTER.arrow)}


def _earlier(row: dict[str, Any]) -> dict[str, Any] | None:
    """The decision that an earlier stage has already made, if any."""
    if row["fetch_outcome"] != "ok":
        return _drop("ingest", row["fetch_outcome"])
    if row["decode_outcome"] != "ok":
        return _drop("measure", row["decode_outcome"])
    if row["duplicate_of"] is not None:
        distance = None if row["distance"] is None else float(row["distance"])
        return _drop("dedupe", f"duplicate_{row['relation']}", distance)
    return None


def _drop(stage: str, reason: str, value: float | None = None, threshold: float | None = None) -> dict[str, Any]:
    return {"kept": False, "dropped_by": stage, "reason": reason, "value": value, "threshold": threshold}
