"""The funnel: rows in, dropped by each reason, kept. Computed from decisions, drawn for the terminal.

`funnel` takes the joined manifest of a run at any moment: before `filter` has run, what `ingest`, `measure`
and `dedupe` wrote already tells which rows are lost and why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from pipeline.manifest import Manifests
from pipeline.schema import STILL_IN

DECIDING = {
    "ingest": "fetch_outcome", "measure": "decode_outcome", "dedupe": "duplicate_of", "filter": "failed",
    "select": "choices",
}
"""Stages that drop rows, in running order, each with a column whose presence shows that the stage has run."""

COLUMNS = (
    "kept", "dropped_by", "reason", "fetch_outcome", "decode_outcome", "duplicate_of", "relation", "failed",
    "caption_scores", "choices", "split", "shard",
)
"""All that `funnel` reads; columns that do not exist yet may be missing."""

NO_MODEL = (
    'no CLIP scores (score.model = "none"): original captions were kept, mismatched ones were not looked for'
)


@dataclass(frozen=True)
class Step:
    """One stage that drops rows: `rows_in` rows came, `dropped` are (reason, rows), most rows first."""

    stage: str
    rows_in: int
    dropped: tuple[tuple[str, int], ...]

    @property
    def kept(self) -> int:
        return self.rows_in - sum(rows for _, rows in self.dropped)


@dataclass(frozen=True)
class Funnel:
    """Rows in, what each stage dropped for which reason, rows kept.

    `pending` are the stages that would drop rows but have not run; `flagged` counts checks that failed with
    action flag among kept rows; `notes` are sentences a reader must know to trust the numbers.
    """

    rows: int
    steps: tuple[Step, ...]
    pending: tuple[str, ...] = ()
    flagged: tuple[tuple[str, int], ...] = ()
    splits: tuple[tuple[str, int], ...] = ()
    sharded: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def kept(self) -> int:
        return self.steps[-1].kept if self.steps else self.rows

    def as_json(self) -> dict[str, Any]:
        """Plain numbers for `--json`."""
        return {
            "rows": self.rows, "kept": self.kept,
            "stages": [
                {"stage": step.stage, "in": step.rows_in, "dropped": dict(step.dropped), "kept": step.kept}
                for step in self.steps
            ],
            "pending": list(self.pending), "flagged": dict(self.flagged), "splits": dict(self.splits),
            "sharded": self.sharded, "notes": list(self.notes),
        }


def decisions(joined: pa.Table) -> pa.Table:
    """`kept`, `dropped_by`, `reason` of every row, whatever stages have run.

    Where `filter` or `select` has run, these are its columns; before that they follow from the outcomes of
    `ingest` and `measure` and from `duplicate_of`.
    """
    if "kept" in joined.column_names:
        return joined.select(["kept", "dropped_by", "reason"])
    rows = joined.num_rows
    unknown = pa.nulls(rows, pa.string())
    stage: Any = unknown
    reason: Any = unknown
    still_in = pa.array(STILL_IN)
    for name, column in (("ingest", "fetch_outcome"), ("measure", "decode_outcome")):
        if column in joined.column_names:
            outcome = joined.column(column)
            lost = pc.and_(pc.is_null(stage), pc.and_(pc.is_valid(outcome), pc.invert(pc.is_in(outcome, still_in))))
            stage = pc.if_else(lost, name, stage)
            reason = pc.if_else(lost, outcome, reason)
    if "duplicate_of" in joined.column_names:
        lost = pc.and_(pc.is_null(stage), pc.is_valid(joined.column("duplicate_of")))
        relation = joined.column("relation") if "relation" in joined.column_names else unknown
        stage = pc.if_else(lost, "dedupe", stage)
        reason = pc.if_else(
            lost, pc.binary_join_element_wise("duplicate", relation, "_", null_handling="skip"), reason
        )
    return pa.table({"kept": pc.is_null(stage), "dropped_by": stage, "reason": reason})


def funnel(run: pa.Table | Manifests) -> Funnel:
    """Count a run's rows, from its manifests or from a joined table with `COLUMNS` as far as they exist.

    Raises ManifestError when nothing has been ingested.
    """
    joined = _columns(run) if isinstance(run, Manifests) else run
    decided = decisions(joined)
    counts: dict[str, list[tuple[str, int]]] = {}
    lost = decided.filter(pc.invert(pc.fill_null(decided.column("kept"), True)))
    grouped = lost.group_by(["dropped_by", "reason"]).aggregate([([], "count_all")])
    for row in grouped.to_pylist():
        found = (row["reason"] or "unknown", row["count_all"])
        counts.setdefault(row["dropped_by"] or "unknown", []).append(found)
    order = [stage for stage, column in DECIDING.items() if column in joined.column_names or stage in counts]
    order += sorted(set(counts) - set(order))
    steps: list[Step] = []
    remaining = joined.num_rows
    for stage in order:
        dropped = tuple(sorted(counts.get(stage, []), key=lambda item: (-item[1], item[0])))
        steps.append(Step(stage, remaining, dropped))
        remaining = steps[-1].kept
    return Funnel(
        rows=joined.num_rows, steps=tuple(steps),
        pending=tuple(stage for stage in DECIDING if stage not in order),
        flagged=_flagged(joined, decided), splits=_splits(joined, decided), sharded=_sharded(joined, decided),
        notes=tuple(_notes(joined, decided)),
    )


def _columns(manifests: Manifests) -> pa.Table:
    view = manifests.joined()
    return view.arrow([name for name in COLUMNS if name in view.columns])


def _kept_only(column: pa.ChunkedArray, decided: pa.Table) -> pa.ChunkedArray:
    return column.filter(pc.fill_null(decided.column("kept"), True))


def _flagged(joined: pa.Table, decided: pa.Table) -> tuple[tuple[str, int], ...]:
    """Failed checks among kept rows, whose action is therefore flag: (reason, rows), most rows first."""
    if "failed" not in joined.column_names:
        return ()
    failed = pc.list_flatten(_kept_only(joined.column("failed"), decided))
    reasons = Counter(item["reason"] for item in failed.to_pylist() if item["action"] == "flag")
    return tuple(sorted(reasons.items(), key=lambda item: (-item[1], item[0])))


def _splits(joined: pa.Table, decided: pa.Table) -> tuple[tuple[str, int], ...]:
    if "split" not in joined.column_names:
        return ()
    splits = Counter(_kept_only(joined.column("split"), decided).drop_null().to_pylist())
    return tuple(sorted(splits.items(), key=lambda item: (-item[1], item[0])))


def _sharded(joined: pa.Table, decided: pa.Table) -> int | None:
    if "shard" not in joined.column_names:
        return None
    shards = _kept_only(joined.column("shard"), decided)
    return int(len(shards) - shards.null_count)


def _notes(joined: pa.Table, decided: pa.Table) -> Iterator[str]:
    if "caption_scores" in joined.column_names:
        scores = joined.column("caption_scores")
        by_select = pc.equal(decided.column("dropped_by"), "select")
        reached = pc.sum(pc.or_kleene(decided.column("kept"), by_select)).as_py()
        if reached and scores.null_count == len(scores):
            yield NO_MODEL


def render(result: Funnel, *, title: str = "") -> Group:
    """The funnel for a terminal of 80 columns or more; colours only help, nothing depends on them."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), expand=True, title=title or None,
                  title_justify="left", title_style="bold", header_style="dim")
    table.add_column("stage", no_wrap=True)
    table.add_column("", no_wrap=True, overflow="ellipsis", max_width=30)
    table.add_column("rows", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("", ratio=1, min_width=10)
    total = max(result.rows, 1)
    table.add_row("", Text("rows in", style="bold"), _number(result.rows, "bold"), _share(result.rows, total),
                  Bar(result.rows, 0, total, "cyan"))
    for step in result.steps:
        left = step.rows_in
        for number, (reason, rows) in enumerate(step.dropped):
            left -= rows
            table.add_row(step.stage if number == 0 else "", Text(reason), _number(-rows),
                          _share(rows, total), Bar(left, rows, total, "bright_black"))
        if not step.dropped:
            table.add_row(step.stage, Text("nothing dropped", style="dim"), "", "", "")
    table.add_row("", Text("kept", style="bold green"), _number(result.kept, "bold green"),
                  _share(result.kept, total), Bar(result.kept, 0, total, "green"))
    return Group(table, *(Text(line) for line in _footer(result)))


def _footer(result: Funnel) -> Iterator[str]:
    if result.splits or result.sharded is not None:
        parts = [f"{rows:,} {split}" for split, rows in result.splits]
        if result.sharded is not None:
            parts.append(f"{result.sharded:,} in shards")
        yield "of these: " + ", ".join(parts)
    if result.flagged:
        yield "flagged, not dropped: " + ", ".join(f"{reason} {rows:,}" for reason, rows in result.flagged)
    if result.pending:
        yield f"not run yet: {', '.join(result.pending)}"
    for note in result.notes:
        yield f"note: {note}"


def _number(rows: int, style: str = "") -> Text:
    return Text(f"{rows:,}", style=style)


def _share(rows: int, total: int) -> Text:
    return Text(f"{100 * rows / total:.1f} %", style="dim")


@dataclass(frozen=True)
class Bar:
    """What is left of `size` rows after a step (solid) and what it dropped (shaded), as wide as its cell."""

    left: int
    dropped: int
    size: int
    style: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        left, dropped = cells_of(self.left, self.dropped, self.size, options.max_width)
        solid, shaded = ("#", "-") if options.ascii_only else ("█", "▒")
        yield Segment(solid * left, Style.parse(self.style))
        yield Segment(shaded * dropped, Style.parse("red"))
        yield Segment.line()

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(4, options.max_width)


def cells_of(left: int, dropped: int, size: int, width: int) -> tuple[int, int]:
    """Cells for the rows left and for the rows dropped; neither vanishes while it is more than 0."""
    if size <= 0:
        return 0, 0
    end = max(round((left + dropped) / size * width), (left > 0) + (dropped > 0))
    solid = round(left / size * width)
    if left:
        solid = max(solid, 1)
    if dropped:
        solid = min(solid, end - 1)
    return solid, end - solid
