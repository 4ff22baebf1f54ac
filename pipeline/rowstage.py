"""RowStage: expensive values, computed row by row, kept as soon as they exist and never computed twice."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from pipeline.engine import Kind, Rescue
from pipeline.keyindex import UNKNOWN, Key
from pipeline.manifest import read_part
from pipeline.memo import Holds, Memo, value_keys
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
    away: str = "picture(s) could not be read"
    """What is said of their number."""
    fallen: Callable[[pa.Table], pa.Table] | None = None
    """One row that kills its worker process → the values that stand for it; None: the run ends there."""


@runtime_checkable
class Growing(Protocol):
    """Rows that are still being listed; all parts are there when `numbers` has ended."""

    @property
    def expected(self) -> int | None:
        """How many rows there will be, as far as known."""

    def numbers(self) -> Iterator[int]:
        """Numbers of the parts in order, each as soon as it is there. Until the end only the latest can be read."""

    def part(self, number: int, columns: Sequence[str] | None = None) -> pa.Table: ...


class RowStage(Stage):
    """Subclasses give the steps; a later step may read the tables of the earlier ones."""

    carried: tuple[str, ...] = ("id",)
    """Columns copied from the input into the main table."""

    live: Callable[[], list[str]] | None = None
    """Lines that tell people more while values are computed."""

    @abstractmethod
    def steps(self, run: Run) -> list[Step]: ...

    def source_rows(self, run: Run) -> Rows | Growing:
        """Where rows come from: the joined inputs, or a source listing."""
        return self.rows(run)

    def holds(self, run: Run, output: Output) -> Holds | None:
        """Which known values may be taken over again (bool per row of values); None: all of them."""
        return None

    def lost(self, run: Run) -> list[str]:
        return lost_pictures(run.manifests.need(self.name))

    def execute(self, run: Run, output: Output) -> None:
        rows, before = self.source_rows(run), list[str]()
        for step in self.steps(run):
            self._step(run, output, step, _With(rows, run, output, tuple(before)))
            before.append(step.table)

    def _step(self, run: Run, output: Output, step: Step, rows: _With) -> None:
        columns = [name for name in step.values.names if name not in ("id", "value_key")]
        schema = pa.schema([field for field in step.values.arrow if field.name in columns])
        namespace = digest([step.namespace, self.name, self.version, [str(field) for field in schema]])
        output.namespaces[step.table] = namespace
        memo = Memo(run.manifests.folder(self.name), step.table, namespace, columns)
        holds = self.holds(run, output) if step.lost is None else partial(_not, step.lost)
        memo.load(output.previous, step.table, namespace, holds)
        name = f"{self.name} {step.table}".strip()
        plan = _Plan(step, rows, memo, namespace)
        with run.progress.task(name, plan.ahead(), self.live) as task, \
                closing(run.engine.as_done(step.worker, plan.jobs(), kind=step.kind, rescue=_rescue(step))) as results:
            for number, values in results:
                memo.fill(number, values.select(columns).cast(schema))
                task.expect(plan.ahead())
                task.advance(values.num_rows)
        away = 0
        for number, slots in enumerate(plan.slots):
            table = rows.part(number, self.carried if step.table == "" else ("id",))
            values = memo.gather(slots, schema)
            if step.lost is not None:
                away += int((step.lost(values) & (slots != UNKNOWN)).sum())
            for position, column in enumerate(values.column_names):
                table = table.append_column(column, values.column(position))
            output.write(step.table, table)
        if step.lost is not None:
            output.counts[BYTES_LOST] += away
        if away:
            run.progress.say(f"  {name}: {away} {step.away}; run the same command when their disk or server is back")
        output.spares[step.table] = memo.retire(output.previous, step.table, namespace, plan.slots)


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
    """Input rows, with the tables that earlier steps of the same stage wrote beside them."""

    def __init__(self, rows: Rows | Growing, run: Run, output: Output, before: tuple[str, ...]) -> None:
        self._rows, self._run, self._output = rows, run, output
        self._where = {name: table for table in before for name in output.schemas[table].names
                       if name not in ("id", "value_key")}
        self.growing = isinstance(rows, Growing)

    def numbers(self) -> Iterator[int]:
        """Numbers of the parts in order, each as soon as there is such a part."""
        return self._rows.numbers() if isinstance(self._rows, Growing) else iter(range(self._rows.part_count))

    @property
    def expected(self) -> int | None:
        """How many rows there will be, as far as known."""
        return self._rows.expected if isinstance(self._rows, Growing) else None

    def part(self, number: int, columns: tuple[str, ...]) -> pa.Table:
        upstream = [name for name in columns if name not in self._where]
        table = self._rows.part(number, upstream)
        beside = {name: column for place in dict.fromkeys(self._where[n] for n in columns if n in self._where)
                  for name, column in self._beside(place, number, columns).items()}
        arrays = [beside[name] if name in beside else table.column(name) for name in columns]
        return pa.table(arrays, names=list(columns))

    def _beside(self, table: str, number: int, columns: tuple[str, ...]) -> dict[str, pa.ChunkedArray]:
        names = [name for name in columns if self._where.get(name) == table]
        folder = self._run.manifests.folder(self._output.stage.name, table)
        part = read_part(folder, self._output.tables[table][number], names)
        return {name: part.column(name) for name in names}


class _Plan:
    """Which rows must be computed, in chunks, and where every row's values will lie.

    Rows that are still being listed are planned only as far as jobs are asked for, so that work begins at once.
    The first row of equal keys stands for all. Chunks end where a part ends, so a resumed run cuts the same ones again.
    """

    def __init__(self, step: Step, rows: _With, memo: Memo, namespace: str) -> None:
        self._step, self._rows, self._memo, self._namespace = step, rows, memo, namespace
        self.slots: list[np.ndarray] = []
        """Per part, the slot of each row."""
        self._seen = self._new = 0
        parts = self._parts()
        self._planned = parts if rows.growing else iter(list(parts))

    def ahead(self) -> int | None:
        """Rows to compute in all, once that is known; before, as if all those not yet looked at were new."""
        if not self._rows.growing:
            return self._new
        return None if self._rows.expected is None else self._new + max(0, self._rows.expected - self._seen)

    def jobs(self) -> Iterator[pa.Table]:
        for number, chunks in self._planned:
            table = self._rows.part(number, self._step.reads) if chunks else None
            for rows in chunks:
                assert table is not None
                yield table.take(pa.array(rows))

    def _parts(self) -> Iterator[tuple[int, list[np.ndarray]]]:
        for number in self._rows.numbers():
            yield number, self._chunks(number)

    def _chunks(self, number: int) -> list[np.ndarray]:
        """Rows of one part that must be computed, in chunks; all keys of the part are in the memo from here on."""
        step = self._step
        table = self._rows.part(number, tuple(dict.fromkeys((*step.key, *step.reads, *step.wanted_reads))))
        keys = value_keys(self._namespace, table, step.key, step.wanted(table))
        slots = self._memo.slots(keys)
        new: dict[Key, int] = {}
        for row in np.flatnonzero(slots == UNKNOWN).tolist():
            if (key := keys[row]) is not None:
                new.setdefault(key, row)
        places, first = list(new), list(new.values())
        for start in range(0, len(new), step.chunk_rows):
            self._memo.reserve(places[start:start + step.chunk_rows])
        self.slots.append(self._memo.slots(keys) if new else slots)
        self._seen += table.num_rows
        self._new += len(new)
        return [np.array(first[start:start + step.chunk_rows], np.int64)
                for start in range(0, len(new), step.chunk_rows)]
