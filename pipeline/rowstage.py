"""RowStage: expensive values, computed row by row, kept as soon as they exist and never computed twice."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa

from pipeline.engine import Kind, Rescue
from pipeline.memo import Holds, Key, Memo, value_keys
from pipeline.receipt import JsonObject, Receipt, digest
from pipeline.run import Run
from pipeline.schema import TableSchema
from pipeline.stage import Output, Rows, Stage

Worker = Callable[[pa.Table], pa.Table]

BYTES_LOST = "bytes_lost"
"""Count in a receipt of pictures whose bytes could not be read; the stage looks for them on every run."""


def every_row(rows: pa.Table) -> np.ndarray:
    """The usual `wanted`: all rows."""
    return np.ones(rows.num_rows, bool)


@dataclass(frozen=True)
class Step:
    """Fills one table of a RowStage.

    `worker` is a picklable factory, called once per process; what it returns is given chunks (the columns
    `reads` of up to `chunk_rows` rows) and returns one row each, in order, with all columns of `values`.
    `key` names those of `reads` that, with `namespace`, decide the values: rows with equal keys are
    computed once. Thresholds belong in neither. `wanted` marks rows to fill; the others become nulls.
    """

    table: str
    values: TableSchema
    namespace: JsonObject
    reads: tuple[str, ...]
    key: tuple[str, ...]
    worker: Callable[[], Worker]
    wanted: Callable[[pa.Table], np.ndarray] = every_row
    kind: Kind = "cpu"
    chunk_rows: int = 256
    wanted_reads: tuple[str, ...] = field(default=())
    """Further columns that only `wanted` looks at, e.g. decisions."""
    lost: Callable[[pa.Table], np.ndarray] | None = None
    """Marks values that are missing only because bytes were away: never taken over, counted as BYTES_LOST."""
    fallen: Callable[[pa.Table], pa.Table] | None = None
    """One row that kills its worker process → the values that stand for it; None: the run ends there."""


class RowStage(Stage):
    """Subclasses give the steps; a later step may read the tables of the earlier ones."""

    carried: tuple[str, ...] = ("id",)
    """Columns copied from the input into the main table."""

    @abstractmethod
    def steps(self, run: Run) -> list[Step]: ...

    def source_rows(self, run: Run) -> Rows:
        """Where rows come from: the joined inputs, or a source listing."""
        return self.rows(run)

    def holds(self, run: Run, output: Output) -> Holds | None:
        """Which known values may be taken over again (bool per row of values); None: all of them."""
        return None

    def lost(self, run: Run) -> list[str]:
        return lost_pictures(run.manifests.need(self.name))

    def execute(self, run: Run, output: Output) -> None:
        rows = self.source_rows(run)
        made: dict[str, list[pa.Table]] = {}
        for step in self.steps(run):
            made[step.table] = self._step(run, output, step, _With(rows, dict(made)))

    def _step(self, run: Run, output: Output, step: Step, rows: _With) -> list[pa.Table]:
        columns = [name for name in step.values.names if name not in ("id", "value_key")]
        schema = pa.schema([field for field in step.values.arrow if field.name in columns])
        namespace = digest([step.namespace, self.name, self.version, [str(field) for field in schema]])
        output.namespaces[step.table] = namespace
        memo = Memo(run.manifests.folder(self.name), step.table, namespace, columns)
        holds = self.holds(run, output) if step.lost is None else partial(_not, step.lost)
        memo.load(output.previous, step.table, namespace, holds)
        keys = [_keys(step, rows, number, namespace) for number in range(rows.part_count)]
        missing = len({key for part in keys for key in part if key is not None and key not in memo})
        name = f"{self.name} {step.table}".strip()
        chunks: list[list[Key]] = []
        jobs = _jobs(step, rows, keys, memo, chunks)
        with run.progress.task(name, missing) as task, \
                closing(run.engine.as_done(step.worker, jobs, kind=step.kind, rescue=_rescue(step))) as results:
            for number, values in results:
                memo.add(chunks[number], values.select(columns).cast(schema))
                task.advance(values.num_rows)
        made: list[pa.Table] = []
        away = 0
        for number, part in enumerate(keys):
            carried = rows.part(number, self.carried if step.table == "" else ("id",))
            values = memo.gather(part, schema)
            if step.lost is not None:
                known = np.array([key is not None for key in part], bool)
                away += int((step.lost(values) & known).sum())
            for position, column in enumerate(values.column_names):
                carried = carried.append_column(column, values.column(position))
            table = carried.append_column("value_key", pa.array(part, pa.binary(16)))
            output.write(step.table, table)
            made.append(table)
        if step.lost is not None:
            output.counts[BYTES_LOST] += away
        if away:
            run.progress.say(f"  {name}: {away} picture(s) could not be read; run the same command when their disk or "
                             "server is back")
        used = {key for part in keys for key in part if key is not None}
        output.spares[step.table] = memo.retire(output.previous, step.table, namespace, used)
        return made


def lost_pictures(receipt: Receipt) -> list[str]:
    """What the stage of this receipt could not read, in words; empty when it read everything."""
    away = receipt.counts.get(BYTES_LOST, 0)
    return [f"the bytes of {away} pictures"] if away else []


def _rescue(step: Step) -> Rescue[pa.Table, pa.Table] | None:
    return None if step.fallen is None else Rescue(_halves, pa.concat_tables, step.fallen)


def _halves(rows: pa.Table) -> list[pa.Table]:
    middle = rows.num_rows // 2
    return [rows] if middle == 0 else [rows.slice(0, middle), rows.slice(middle)]


def _not(marked: Callable[[pa.Table], np.ndarray], values: pa.Table) -> np.ndarray:
    return ~marked(values)


class _With:
    """Input rows, with the tables that earlier steps of the same stage made beside them."""

    def __init__(self, rows: Rows, made: dict[str, list[pa.Table]]) -> None:
        self._rows, self._made = rows, made
        self.part_count = rows.part_count

    def part(self, number: int, columns: tuple[str, ...]) -> pa.Table:
        beside = {name: parts[number] for parts in self._made.values()
                  for name in parts[number].column_names if name not in ("id", "value_key")}
        upstream = [name for name in columns if name not in beside]
        table = self._rows.part(number, upstream)
        arrays = [beside[name].column(name) if name in beside else table.column(name) for name in columns]
        return pa.table(arrays, names=list(columns))


def _keys(step: Step, rows: _With, number: int, namespace: str) -> list[Key | None]:
    columns = tuple(dict.fromkeys((*step.key, *step.reads, *step.wanted_reads)))
    table = rows.part(number, columns)
    return value_keys(namespace, table, step.key, step.wanted(table))


def _jobs(step: Step, rows: _With, keys: list[list[Key | None]], memo: Memo, chunks: list[list[Key]],
          ) -> Iterator[pa.Table]:
    """Chunks of rows whose values are unknown, in row order; the first row of equal keys stands for all.

    Chunks run across part borders only where a part ends, so a resumed run cuts the same chunks again.
    """
    planned: set[Key] = set()
    for number, part in enumerate(keys):
        new: list[int] = []
        for row, key in enumerate(part):
            if key is not None and key not in memo and key not in planned:
                planned.add(key)
                new.append(row)
        for start in range(0, len(new), step.chunk_rows):
            picked = new[start:start + step.chunk_rows]
            chunks.append([part[row] for row in picked])  # type: ignore[misc]
            yield rows.part(number, step.reads).take(pa.array(picked, pa.int64()))
