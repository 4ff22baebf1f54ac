"""Stage, and run_stage: skip, resume, take over, verify.

A stage is `manifest in → manifest out`. It says what its output depends on; `run_stage` decides whether
there is anything to do, lets it write parts, and puts the receipt in place last. Two kinds follow:
`RowStage` computes expensive values row by row and never twice (see `pipeline.memo`); `ColumnStage` reads
whole columns and writes cheap decisions.
"""

from __future__ import annotations

import hashlib
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import ClassVar, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from pipeline import storage
from pipeline.errors import ManifestError
from pipeline.manifest import WORK, Manifests, View, to_schema, write_part
from pipeline.receipt import RECEIPT, JsonObject, PartFile, Receipt, differences, digest
from pipeline.run import Run
from pipeline.schema import SCHEMA_VERSION, TableSchema


class Rows(Protocol):
    """Rows in numbered parts: a joined view of earlier stages, or a source listing."""

    part_count: int

    def part(self, number: int, columns: Sequence[str] | None = None) -> pa.Table: ...


class Stage(ABC):
    """One step of the run. Subclasses set `name`, `version` (of the algorithm) and `inputs`."""

    name: ClassVar[str]
    version: ClassVar[int] = 1
    inputs: ClassVar[tuple[str, ...]] = ()
    counted: ClassVar[str | None] = None
    """Column whose values the receipt counts, e.g. `fetch_outcome`."""

    @abstractmethod
    def tables(self, run: Run) -> dict[str, TableSchema]:
        """Tables written; "" is the main one, with one row per input row in the same order."""

    @abstractmethod
    def settings(self, run: Run) -> JsonObject:
        """Everything in the recipe that decides the output."""

    def fingerprints(self, run: Run) -> JsonObject:
        """Models, states of sources, versions of libraries that decide the output."""
        return {}

    def check(self, run: Run) -> None:
        """Raise for anything that would stop the stage later: missing models, folders, ports."""

    @abstractmethod
    def execute(self, run: Run, output: Output) -> None:
        """Write all parts to `output`."""

    def lost(self, run: Run) -> list[str]:
        """Names of files outside the manifests that this stage wrote and that are gone or cut."""
        return []

    def settle(self, run: Run, receipt: Receipt) -> None:
        """After the receipt stands: remove what it no longer names."""

    def rows(self, run: Run) -> View:
        """The input stages side by side, with containers as paths that can be opened."""
        return run.manifests.joined(stages=self.inputs, side_tables=True).located(run.data)

    def basis(self, run: Run) -> JsonObject:
        return {
            "version": self.version, "schema": SCHEMA_VERSION, "settings": self.settings(run),
            "fingerprints": self.fingerprints(run),
            "inputs": {name: run.manifests.need(name).content for name in self.inputs},
        }


class Output:
    """Collects a stage's parts; only `commit` makes them the stage's content."""

    def __init__(self, stage: Stage, run: Run, *, force: bool = False) -> None:
        self.stage, self.run, self.force = stage, run, force
        self.previous = run.manifests.receipt(stage.name)
        self.schemas = stage.tables(run)
        self.tables: dict[str, list[PartFile]] = {name: [] for name in self.schemas}
        self.namespaces: dict[str, str] = {}
        self.spares: dict[str, list[PartFile]] = {}
        self.counts: Counter[str] = Counter()
        self.layout = "" if not stage.inputs else run.manifests.need("ingest").layout
        self._begun = time.time()

    def write(self, table: str, rows: pa.Table) -> None:
        """Append the next part of a table."""
        conformed = to_schema(rows, self.schemas[table].arrow)
        number = len(self.tables[table])
        folder = self.run.manifests.folder(self.stage.name, table)
        self.tables[table].append(write_part(folder, f"part-{number:05d}", conformed))
        if table == "" and self.stage.counted is not None:
            for entry in pc.value_counts(conformed.column(self.stage.counted)).to_pylist():
                if entry["values"] is not None:
                    self.counts[str(entry["values"])] += entry["counts"]

    def commit(self, basis: JsonObject) -> Receipt:
        """Put the receipt in place, then remove older generations. Raises BusyError when the lease was lost."""
        receipt = Receipt(
            stage=self.stage.name, basis=basis, layout=self.layout, tables=self.tables,
            namespaces=self.namespaces, spares=self.spares, counts=dict(self.counts),
            timings={"finished": round(time.time()), "seconds": round(time.time() - self._begun, 3)},
            versions={name: version(name) for name in ("gristmill", "pyarrow", "numpy", "pillow")},
        )
        folder, written = self.run.manifests.folder(self.stage.name), receipt.to_json()
        if self.run.lease is not None:
            self.run.lease.check()
        storage.write_bytes(storage.join(folder, SETTLING), hashlib.sha256(written).hexdigest().encode())
        storage.write_bytes(storage.join(folder, RECEIPT), written)
        self.run.manifests.reload()
        _settle(self.stage, self.run, receipt)
        return receipt


SETTLING = ".settling"
"""Lies beside a receipt until older generations are removed, and names it by its SHA-256: a run that was killed
meanwhile is tidied up by the next one."""


def _settle(stage: Stage, run: Run, receipt: Receipt) -> None:
    folder = run.manifests.folder(stage.name)
    _sweep(folder, receipt)
    stage.settle(run, receipt)
    storage.remove(storage.join(folder, SETTLING))


def _unsettled(run: Run, stage: str) -> bool:
    """Whether a run was killed after it had put this very receipt in place."""
    folder = run.manifests.folder(stage)
    marker = storage.join(folder, SETTLING)
    if not storage.exists(marker):
        return False
    standing = hashlib.sha256(storage.read_bytes(storage.join(folder, RECEIPT))).hexdigest()
    return storage.read_bytes(marker) == standing.encode()


def _sweep(folder: str, receipt: Receipt) -> None:
    """Remove every Parquet file and chunk that the receipt does not name."""
    for table, parts in receipt.tables.items():
        place = storage.join(folder, table) if table else folder
        named = {part.file for part in parts}
        for name in storage.names(place):
            if name not in named and (name.endswith(".parquet") or name in storage.leftovers(place)):
                storage.remove(storage.join(place, name))
        work = storage.join(folder, WORK, table or "main")
        kept = {part.file for part in receipt.spares.get(table, [])}
        for name in storage.names(work):
            if name not in kept:
                storage.remove(storage.join(work, name))


@dataclass(frozen=True)
class Freshness:
    """Whether a stage has anything to do, and why."""

    fresh: bool
    why: list[str]


def freshness(stage: Stage, run: Run) -> Freshness:
    """Compare the receipt with what the stage would depend on now. Inputs must have finished."""
    receipt = run.manifests.receipt(stage.name)
    missing = [name for name in stage.inputs if run.manifests.receipt(name) is None]
    if missing:
        return Freshness(False, [f"{missing[0]} has not finished"])
    if receipt is None:
        return Freshness(False, ["never ran"])
    basis = stage.basis(run)
    if digest(basis) != receipt.key:
        return Freshness(False, differences(receipt.basis, basis))
    lost = lost_parts(run.manifests, receipt) or stage.lost(run)
    return Freshness(not lost, [f"missing or cut: {name}" for name in lost])


def lost_parts(manifests: Manifests, receipt: Receipt) -> list[str]:
    """Names of parts that are not there at their full size."""
    lost = []
    for table, parts in receipt.tables.items():
        folder = manifests.folder(receipt.stage, table)
        for part in parts:
            url = storage.join(folder, part.file)
            if not storage.exists(url) or storage.size(url) != part.bytes:
                lost.append(part.file)
    return lost


def run_stage(stage: Stage, run: Run, *, force: bool = False) -> tuple[Receipt, bool]:
    """Bring one stage up to date. Returns its receipt and whether anything was computed.

    The caller holds the run's lease. `force` writes the stage anew even when it is fresh; values are
    then still taken over from the memo unless they were made by other settings.
    """
    state = freshness(stage, run)
    receipt = run.manifests.receipt(stage.name)
    if state.fresh and receipt is not None and not force:
        if _unsettled(run, stage.name):
            _settle(stage, run, receipt)
        return receipt, False
    for name in stage.inputs:
        _in_line(run.manifests, name)
    stage.check(run)
    basis = stage.basis(run)
    output = Output(stage, run, force=force)
    stage.execute(run, output)
    return output.commit(basis), True


def _in_line(manifests: Manifests, stage: str) -> None:
    if manifests.need(stage).layout != manifests.need("ingest").layout:
        raise ManifestError(f"{stage}'s rows are not those of ingest any more",
                            hint=f"run `curate run --from {stage}`")


class ColumnStage(Stage):
    """Reads whole columns, writes decisions; cheap, so it always runs whole."""

    reads: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def compute(self, run: Run, columns: pa.Table) -> dict[str, pa.Table]:
        """All input rows in order → tables. "" has as many rows; side tables any number."""

    def namespaces(self, run: Run) -> dict[str, str]:
        """Side table → what it was computed from; `cached` then finds it again."""
        return {}

    def cached(self, run: Run, table: str) -> pa.Table | None:
        """A side table of the last run, if it was computed from the same things and no byte of it has changed."""
        receipt = run.manifests.receipt(self.name)
        if receipt is None or receipt.namespaces.get(table) != self.namespaces(run)[table]:
            return None
        folder = run.manifests.folder(self.name, table)
        for part in receipt.tables.get(table, []):
            url = storage.join(folder, part.file)
            if not storage.exists(url) or storage.sha256(url) != part.sha256:
                return None  # lost or damaged: compute it again
        return run.manifests.stage(self.name, table).arrow()

    def columns_read(self, run: Run) -> Iterable[str]:
        """Columns handed to `compute`; override when checks or recipes add some."""
        return self.reads

    def execute(self, run: Run, output: Output) -> None:
        rows = self.rows(run)
        output.namespaces.update(self.namespaces(run))
        columns = rows.arrow(list(dict.fromkeys(self.columns_read(run))))
        with run.progress.task(self.name, columns.num_rows) as task:
            tables = self.compute(run, columns)
            task.advance(columns.num_rows)
        main = tables.pop("")
        start = 0
        for part in run.manifests.need("ingest").tables[""]:
            output.write("", main.slice(start, part.rows))
            start += part.rows
        for name, table in tables.items():
            output.write(name, table)
