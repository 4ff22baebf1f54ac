"""Manifests: parts and receipts. Open, join, write atomically.

A run's folder holds a folder per stage with immutable parts (`part-00012-9f3a1c.parquet`) and a
`receipt.json`. Parts of all stages line up row for row, so joining them is free.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline import storage
from pipeline.errors import ManifestError
from pipeline.receipt import PartFile, Receipt, read_receipt
from pipeline.schema import DECISION, STAGES

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

DECISION_NAMES = tuple(column.name for column in DECISION)
WORK = ".work"
"""Sub-folder of a stage for unfinished chunks and values kept in reserve; never read by users."""


def parquet_bytes(table: pa.Table) -> bytes:
    """Parquet with zstd: the same table gives the same bytes with the same pyarrow."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd", row_group_size=1 << 16, store_schema=True)
    return buffer.getvalue()


def write_part(folder: str, stem: str, table: pa.Table) -> PartFile:
    """Write `<stem>-<fingerprint>.parquet` atomically; an identical file that stands is left alone."""
    data = parquet_bytes(table)
    sha256 = hashlib.sha256(data).hexdigest()
    name = f"{stem}-{sha256[:6]}.parquet"
    url = storage.join(folder, name)
    # Compared in full: a file of the right size may be damaged, and this is what would mend it.
    if not (storage.exists(url) and storage.size(url) == len(data) and storage.read_bytes(url) == data):
        storage.write_bytes(url, data)
    return PartFile(name, table.num_rows, len(data), sha256)


def read_part(folder: str, part: PartFile, columns: Sequence[str] | None = None) -> pa.Table:
    """One part's rows. Raises ManifestError when the file is missing or not what the receipt says."""
    url = storage.join(folder, part.file)
    if not storage.exists(url):
        raise ManifestError(f"{url} is missing", hint="run the stage again with --force")
    try:
        with storage.open_read(url) as file:
            table = pq.read_table(file, columns=None if columns is None else list(columns))
    except (pa.ArrowInvalid, OSError) as error:
        raise ManifestError(f"{url} is damaged ({error})", hint="run the stage again with --force") from error
    if table.num_rows != part.rows:
        raise ManifestError(
            f"{url} holds {table.num_rows} rows, its receipt says {part.rows}",
            hint="run the stage again with --force",
        )
    return table


def located(container: str | None, data: str) -> str | None:
    """Where bytes really lie. Raw tars are named relative to the run's data folder, so that a run may be moved."""
    if container is None or "://" in container or container.startswith("/"):
        return container
    return storage.join(data, container)


class View:
    """Rows of one table of one stage, or of all stages joined. Nothing is read before it is asked for."""

    def __init__(self, manifests: Manifests, where: dict[str, tuple[str, str]], names: Sequence[str],
                 parts: int) -> None:
        self._manifests = manifests
        self._where = where
        self._data: str | None = None
        self.columns = list(names)
        self.part_count = parts

    def part(self, number: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Rows of one part, columns in the asked order."""
        wanted = self.columns if columns is None else list(columns)
        missing = [name for name in wanted if name not in self._where]
        if missing:
            raise ManifestError(
                f"no column {missing[0]!r} in {self._manifests.url}",
                hint="run the stage that writes it; `curate schema` lists all columns",
            )
        by_table: dict[tuple[str, str], list[str]] = {}
        for name in wanted:
            by_table.setdefault(self._where[name], []).append(name)
        pieces = {
            place: self._manifests.read(place[0], place[1], number, names) for place, names in by_table.items()
        }
        arrays = [pieces[self._where[name]].column(name) for name in wanted]
        if self._data is not None and "container" in wanted:
            place = wanted.index("container")
            known = {name: located(name, self._data) for name in pc.unique(arrays[place]).to_pylist()}
            arrays[place] = pa.chunked_array([[known[name] for name in arrays[place].to_pylist()]], pa.string())
        return pa.table(arrays, names=wanted)

    def located(self, data: str) -> View:
        """The same rows; `container` names files that can be opened, given the run's data folder."""
        view = View(self._manifests, self._where, self.columns, self.part_count)
        view._data = data
        return view

    def parts(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        for number in range(self.part_count):
            yield self.part(number, columns)

    def arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows as a pyarrow table."""
        tables = list(self.parts(columns))
        if not tables:
            return pa.table({name: pa.array([], pa.null()) for name in (columns or self.columns)})
        return pa.concat_tables(tables, promote_options="permissive")

    def pandas(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """All rows as a pandas DataFrame."""
        frame: pd.DataFrame = self.arrow(columns).to_pandas()
        return frame

    def duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """All rows as a DuckDB relation. Raises ManifestError where the extra `duckdb` is not installed."""
        try:
            import duckdb as engine
        except ImportError as error:
            raise ManifestError("DuckDB is not installed", hint='pip install "gristmill[duckdb]"; or use .arrow() or '
                                ".pandas()") from error

        return (connection or engine.connect()).from_arrow(self.arrow())


class Manifests:
    """All manifests of one run, read-only. `pipeline.open("manifests/demo")` makes one."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    @cached_property
    def _receipts(self) -> dict[str, Receipt | None]:
        return {}

    def folder(self, stage: str, table: str = "") -> str:
        return storage.join(self.url, stage, table) if table else storage.join(self.url, stage)

    def receipt(self, stage: str) -> Receipt | None:
        """The stage's receipt as of the first look; `reload` looks again."""
        if stage not in self._receipts:
            self._receipts[stage] = read_receipt(self.folder(stage))
        return self._receipts[stage]

    def need(self, stage: str) -> Receipt:
        receipt = self.receipt(stage)
        if receipt is None:
            raise ManifestError(f"{self.folder(stage)} has no receipt: `{stage}` has not finished there",
                                hint=f"run `curate {stage}` (or `curate run`) first")
        return receipt

    def reload(self) -> None:
        self._receipts.clear()

    def read(self, stage: str, table: str, number: int, columns: Sequence[str] | None = None) -> pa.Table:
        return read_part(self.folder(stage, table), self.need(stage).tables[table][number], columns)

    def _names(self, stage: str, table: str) -> list[str]:
        parts = self.need(stage).tables[table]
        if not parts:
            return list(STAGES[stage].names) if stage in STAGES and not table else []
        url = storage.join(self.folder(stage, table), parts[0].file)
        try:
            with storage.open_read(url) as file:
                return list(pq.read_schema(file).names)
        except (pa.ArrowInvalid, OSError) as error:
            raise ManifestError(f"{url} is damaged ({error})", hint="run the stage again with --force") from error

    def stage(self, stage: str, table: str = "") -> View:
        """One stage's rows. `table` names a side table, e.g. `embedding` of `score`."""
        receipt = self.need(stage)
        if table not in receipt.tables:
            raise ManifestError(f"{stage} has no table {table!r}",
                                hint=f"it has: {', '.join(name or '(main)' for name in receipt.tables)}")
        names = self._names(stage, table)
        return View(self, dict.fromkeys(names, (stage, table)), names, len(receipt.tables[table]))

    def tables_in_line(self, stages: Sequence[str] | None = None) -> list[tuple[str, str]]:
        """(stage, table) pairs whose parts line up row for row with `ingest`'s, in running order."""
        first = self.receipt("ingest")
        found: list[tuple[str, str]] = []
        for stage in STAGES if stages is None else stages:
            receipt = self.receipt(stage)
            if first is None or receipt is None or receipt.layout != first.layout:
                continue
            rows = [part.rows for part in receipt.tables[""]]
            found += [(stage, name) for name, parts in receipt.tables.items()
                      if [part.rows for part in parts] == rows]
        return found

    def joined(self, columns: Sequence[str] | None = None, *, stages: Sequence[str] | None = None,
               side_tables: bool = False) -> View:
        """All stages side by side; a stage that is out of line with `ingest` is left out.

        Of columns that several stages write (the decision columns, `value_key`), the last stage's counts.
        Side tables (embeddings) are joined when asked for or when one of `columns` lies there.
        """
        self.need("ingest")
        where: dict[str, tuple[str, str]] = {}
        aside: dict[str, tuple[str, str]] = {}
        for stage, table in self.tables_in_line(stages):
            for name in self._names(stage, table):
                if name == "id" and "id" in where:
                    continue
                (aside if table else where)[name] = (stage, table)
        if side_tables or columns is not None:
            where = aside | where
        names = list(where) if columns is None else list(columns)
        return View(self, where, names, len(self.need("ingest").tables[""]))


def open_manifests(url: str) -> Manifests:
    """Open a run's manifests folder. Raises ManifestError when there are none."""
    manifests = Manifests(url)
    if not any(storage.exists(storage.join(manifests.folder(stage), "receipt.json")) for stage in STAGES):
        raise ManifestError(f"no manifests in {url}", hint="run `curate run` first, or name the folder "
                            "manifests/<run> that holds the stages")
    return manifests


def to_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Columns in the schema's order and types; missing ones become nulls. For older manifests and workers."""
    arrays: list[Any] = []
    for field in schema:
        if field.name in table.column_names:
            column = table.column(field.name)
            arrays.append(column if column.type == field.type else column.cast(field.type))
        else:
            arrays.append(pa.nulls(table.num_rows, field.type))
    return pa.table(arrays, schema=schema)
