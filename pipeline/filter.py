"""`filter`: thresholds over columns. Says for every row whether it stays, and every check that it fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline import checks
from pipeline.receipt import JsonObject, digest
from pipeline.schema import FILTER, ID, STILL_IN, TableSchema
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
        return {"": FILTER, "found": TableSchema((ID, *checks.findings()))}

    def namespaces(self, run: Run) -> dict[str, str]:
        content = [run.manifests.need(name).content for name in ("ingest", "measure")]
        return {"found": digest([content, checks.found_by(run.recipe.checks)])}

    def settings(self, run: Run) -> JsonObject:
        return {name: chosen.model_dump(mode="json") for name, chosen in run.recipe.checks.items()}

    def columns_read(self, run: Run) -> Iterable[str]:
        return (*READS, *checks.columns_read(finding=self.cached(run, "found") is None))

    def compute(self, run: Run, columns: pa.Table) -> dict[str, pa.Table]:
        everything = set(checks.columns_read()) <= set(columns.column_names)
        found = checks.find(columns, run.recipe.checks) if everything else self.cached(run, "found")
        assert found is not None, "what is not read has been found before"
        verdicts = checks.verdicts(columns, run.recipe.checks, found=found)
        deciding = verdicts.deciding()
        decided = earlier(columns)
        taken = np.asarray(pc.is_null(decided.column("dropped_by"))) & (deciding >= 0)
        value, threshold = np.full((2, columns.num_rows), np.nan)
        for number in np.unique(deciding[taken]).tolist():
            verdict, rows = verdicts.judged[number].verdict, taken & (deciding == number)
            value[rows], threshold[rows] = verdict.value[rows], verdict.threshold
        reasons = pa.array([one.verdict.reason for one in verdicts.judged], pa.string())
        by_check = reasons.take(pa.array(deciding, mask=~taken))
        unseen = pc.and_(pc.is_null(decided.column("dropped_by")), pc.and_(
            pc.equal(columns.column("decode_outcome"), "header_only"), pa.array(~taken)))  # since a threshold moved
        unseen = pc.fill_null(unseen, False)
        reason = pc.coalesce(decided.column("reason"), by_check, pc.if_else(unseen, "header_only", None))
        stage = pc.coalesce(decided.column("dropped_by"), pc.if_else(pa.array(taken), "filter", None),
                            pc.if_else(unseen, "measure", None))
        filled = {
            "id": columns.column("id"), "kept": pc.is_null(stage), "dropped_by": stage, "reason": reason,
            "failed": verdicts.failed(),
            "value": pc.coalesce(decided.column("value"), pa.array(value, mask=~taken)),
            "threshold": pa.array(threshold, mask=~taken),
        }
        beside = found if "id" in found.column_names else found.add_column(0, "id", columns.column("id"))
        return {"": pa.table([filled[name] for name in FILTER.names], schema=FILTER.arrow), "found": beside}


def earlier(columns: pa.Table) -> pa.Table:
    """`dropped_by`, `reason` and `value` of rows that an earlier stage has dropped already; nulls for the others."""
    nothing = pa.nulls(columns.num_rows, pa.string())
    stage: Any = nothing
    reason: Any = nothing
    for name, column in (("ingest", "fetch_outcome"), ("measure", "decode_outcome")):
        outcome = columns.column(column)
        lost = pc.and_(pc.is_null(stage), pc.invert(pc.is_in(outcome, value_set=pa.array(STILL_IN))))
        stage, reason = pc.if_else(lost, name, stage), pc.if_else(lost, outcome, reason)
    copy = pc.and_(pc.is_null(stage), pc.is_valid(columns.column("duplicate_of")))
    relation = pc.binary_join_element_wise("duplicate", columns.column("relation"), "_")
    stage, reason = pc.if_else(copy, "dedupe", stage), pc.if_else(copy, relation, reason)
    distance = columns.column("distance").cast(pa.float64())
    return pa.table({"dropped_by": stage, "reason": reason, "value": pc.if_else(copy, distance, None)})
