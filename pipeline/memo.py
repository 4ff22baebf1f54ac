"""Values already computed, found by what they were computed from.

A row's `value_key` hashes the namespace (settings, algorithm and model that decide the values) and the
row's own content (e.g. the picture's SHA-256). A value is therefore taken over wherever it is found:
in the stage's present parts, among its spares (values of rows that a threshold has since let go), or in
the chunks of a run that was killed. Nothing that depends on a threshold is in the key.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import storage
from pipeline.keyindex import UNKNOWN, Key, KeyIndex
from pipeline.manifest import WORK, read_part, write_part
from pipeline.receipt import PartFile, Receipt
from pipeline.schema import VALUE_KEY

Holds = Callable[[pa.Table], np.ndarray]
_OPEN_TABLES = 48
_SPARE_ROWS = 4096


@dataclass(frozen=True)
class _Place:
    folder: str
    part: PartFile


class Memo:
    """The values of one table of one stage in one namespace. A slot is a value's number, counted through
    all files in their order."""

    def __init__(self, stage_folder: str, table: str, namespace: str, columns: Sequence[str]) -> None:
        self._table_folder = storage.join(stage_folder, table) if table else stage_folder
        self._work = storage.join(stage_folder, WORK, table or "main")
        self._chunks = storage.join(self._work, namespace)
        self._columns = [*columns, VALUE_KEY.name]
        self._places: list[_Place | None] = []
        self._starts: list[int] = []
        """Per file, the slot of its first row."""
        self._end = 0
        self._live: list[np.ndarray] = []
        """Per file, the rows that the index leads to: every key's value counts once."""
        self._index = KeyIndex()
        self._holds: Holds | None = None
        self._open: OrderedDict[int, pa.Table] = OrderedDict()
        self._reserved: dict[int, tuple[int, list[Key]]] = {}
        self._chunk_count = 0

    def __contains__(self, key: Key) -> bool:
        return bool(self._index.get([key])[0] != UNKNOWN)

    def load(self, previous: Receipt | None, table: str, namespace: str, holds: Holds | None = None) -> None:
        """Index everything at hand: the previous generation, its spares, chunks of a killed run.

        `holds` says which of some values may still be taken over, e.g. not those whose bytes are gone.
        """
        self._holds = holds
        if previous is not None and previous.namespaces.get(table) == namespace:
            for part in previous.tables.get(table, []):
                self._take_in(_Place(self._table_folder, part))
            for part in previous.spares.get(table, []):
                self._take_in(_Place(self._work, part))
        for name in storage.names(self._chunks):
            if name.startswith("chunk-") and name.endswith(".parquet"):
                values = _chunk(self._chunks, name)
                if values is not None:
                    self._index_values(_Place(self._chunks, PartFile(name, values.num_rows, 0, "")), values)

    def slots(self, keys: Sequence[Key | None]) -> np.ndarray:
        """Where the value of each key lies or will lie (uint32); UNKNOWN for new keys and for None."""
        found = np.full(len(keys), UNKNOWN, np.uint32)
        rows = [row for row, key in enumerate(keys) if key is not None]
        found[rows] = self._index.get([key for key in keys if key is not None])
        return found

    def reserve(self, keys: list[Key]) -> None:
        """Slots for a chunk of new keys whose values `fill` will be given; chunks are numbered from 0."""
        self._index.put(keys, range(self._end, self._end + len(keys)))
        self._reserved[self._chunk_count] = len(self._places), keys
        self._chunk_count += 1
        self._append(None, np.ones(len(keys), bool))

    def fill(self, chunk: int, values: pa.Table) -> None:
        """Keep the values of a reserved chunk on disk; from here on they survive kill -9."""
        number, keys = self._reserved.pop(chunk)
        table = values.append_column(VALUE_KEY.name, pa.array(keys, pa.binary(16)))
        name = hashlib.blake2b(b"".join(keys), digest_size=12).hexdigest()
        self._places[number] = _Place(self._chunks, write_part(self._chunks, f"chunk-{name}", table))

    def add(self, keys: Sequence[Key], values: pa.Table) -> None:
        """`reserve` and `fill` in one."""
        self.reserve(list(keys))
        self.fill(self._chunk_count - 1, values)

    def gather(self, slots: np.ndarray, schema: pa.Schema) -> pa.Table:
        """Values and `value_key` of each slot in order, nulls where it is UNKNOWN."""
        schema = schema.append(pa.field(VALUE_KEY.name, pa.binary(16)))
        files, rows = self._files_and_rows(slots)
        tables, at, filled = list[pa.Table](), np.zeros(len(slots), np.int64), 0
        for number in np.unique(files[slots != UNKNOWN]).tolist():
            there = np.flatnonzero((files == number) & (slots != UNKNOWN))
            tables.append(self._read(number).select(self._columns).cast(schema).take(pa.array(rows[there])))
            at[there] = np.arange(filled, filled + len(there))
            filled += len(there)
        if not tables:
            return pa.table([pa.nulls(len(slots), field.type) for field in schema], schema=schema)
        return pa.concat_tables(tables).combine_chunks().take(pa.array(at, mask=slots == UNKNOWN))

    def retire(self, previous: Receipt | None, table: str, namespace: str, used: Iterable[np.ndarray],
               ) -> list[PartFile]:
        """Spares: known values of this namespace that the new generation, whose slots are `used`, does not hold."""
        if previous is None or previous.namespaces.get(table) != namespace:
            return []
        for slots in used:
            files, rows = self._files_and_rows(slots[slots != UNKNOWN])
            for number in np.unique(files).tolist():
                self._live[number][rows[files == number]] = False
        left = [start + np.flatnonzero(rows) for start, rows in zip(self._starts, self._live, strict=True)]
        spare = np.concatenate([np.empty(0, np.int64), *left]).astype(np.uint32)
        made: list[PartFile] = []
        for start in range(0, len(spare), _SPARE_ROWS):
            slots = spare[start:start + _SPARE_ROWS]
            schema = self._read(int(self._files_and_rows(slots)[0][0])).select(self._columns[:-1]).schema
            made.append(write_part(self._work, f"spare-{start // _SPARE_ROWS:05d}", self.gather(slots, schema)))
        return made

    def _take_in(self, place: _Place) -> None:
        url = storage.join(place.folder, place.part.file)
        if not storage.exists(url) or place.part.bytes != storage.size(url) or not _whole(place):
            return  # lost, cut or damaged: its values are computed again
        names = [VALUE_KEY.name] if self._holds is None else self._columns
        self._index_values(place, read_part(place.folder, place.part, names))

    def _index_values(self, place: _Place, values: pa.Table) -> None:
        keys = values.column(VALUE_KEY.name).to_pylist()
        good = np.ones(len(keys), bool) if self._holds is None else self._holds(values)
        known = self.slots(keys)
        new: dict[Key, int] = {}
        for row, key in enumerate(keys):
            if key is not None and good[row] and known[row] == UNKNOWN:
                new.setdefault(key, row)
        self._index.put(list(new), [self._end + row for row in new.values()])
        live = np.zeros(len(keys), bool)
        live[list(new.values())] = True
        self._append(place, live)

    def _append(self, place: _Place | None, live: np.ndarray) -> None:
        self._places.append(place)
        self._starts.append(self._end)
        self._live.append(live)
        self._end += len(live)
        assert self._end <= UNKNOWN, "more values than slots can number"

    def _files_and_rows(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The number of the file in which each slot lies, and the row there; of UNKNOWN, any."""
        starts = np.array(self._starts, np.int64)
        files = np.searchsorted(starts, slots, side="right") - 1
        return files, slots - starts[files] if len(starts) else slots

    def _read(self, number: int) -> pa.Table:
        if number in self._open:
            self._open.move_to_end(number)
            return self._open[number]
        place = self._places[number]
        assert place is not None, "a chunk was reserved and not filled"
        table = read_part(place.folder, place.part, self._columns)
        self._open[number] = table
        if len(self._open) > _OPEN_TABLES:
            self._open.popitem(last=False)
        return table


def _whole(place: _Place) -> bool:
    """Whether a file that a receipt names holds what was written."""
    if not place.part.sha256:
        return True
    data = storage.read_bytes(storage.join(place.folder, place.part.file))
    return hashlib.sha256(data).hexdigest() == place.part.sha256


def _chunk(folder: str, name: str) -> pa.Table | None:
    """A chunk, which no receipt names, read through; None when it is damaged."""
    try:
        with storage.open_read(storage.join(folder, name)) as file:
            return pq.ParquetFile(file).read(use_threads=False)
    except (pa.ArrowInvalid, OSError):
        return None


def value_keys(namespace: str, table: pa.Table, columns: Sequence[str], wanted: np.ndarray) -> list[Key | None]:
    """16-byte BLAKE2b per wanted row over the namespace and the key columns' values; None elsewhere."""
    prefix = namespace.encode()
    values = [table.column(name).to_pylist() for name in columns]
    keys: list[Key | None] = []
    for row in range(table.num_rows):
        if not wanted[row]:
            keys.append(None)
            continue
        state = hashlib.blake2b(prefix, digest_size=16)
        for column in values:
            state.update(b"\x00" + _encoded(column[row]))
        keys.append(state.digest())
    return keys


def _encoded(value: object) -> bytes:
    """Unambiguous bytes: length-prefixed, so that lists and neighbours cannot run together."""
    if isinstance(value, bytes):
        body = b"b" + value
    elif isinstance(value, (list, tuple)):
        body = b"l" + b"".join(_encoded(item) for item in value)
    else:
        body = b"s" + repr(value).encode()
    return len(body).to_bytes(8, "little") + body
