"""Values already computed, found by what they were computed from.

A row's `value_key` hashes the namespace (settings, algorithm and model that decide the values) and the
row's own content (e.g. the picture's SHA-256). A value is therefore taken over wherever it is found:
in the stage's present parts, among its spares (values of rows that a threshold has since let go), or in
the chunks of a run that was killed. Nothing that depends on a threshold is in the key.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipeline import storage
from pipeline.manifest import WORK, read_part, write_part
from pipeline.receipt import PartFile, Receipt

Key = bytes
Holds = Callable[[pa.Table], np.ndarray]
_OPEN_TABLES = 48


@dataclass(frozen=True)
class _Place:
    folder: str
    part: PartFile


class Memo:
    """The values of one table of one stage in one namespace. `in` tells whether a key is known."""

    def __init__(self, stage_folder: str, table: str, namespace: str, columns: Sequence[str]) -> None:
        self._table_folder = storage.join(stage_folder, table) if table else stage_folder
        self._work = storage.join(stage_folder, WORK, table or "main")
        self._chunks = storage.join(self._work, namespace)
        self._columns = list(columns)
        self._places: list[_Place] = []
        self._where: dict[Key, tuple[int, int]] = {}
        self._holds: Holds | None = None
        self._open: OrderedDict[int, pa.Table] = OrderedDict()

    def __contains__(self, key: Key) -> bool:
        return key in self._where

    def load(self, previous: Receipt | None, table: str, namespace: str, holds: Holds | None = None) -> None:
        """Index everything at hand: the previous generation, its spares, chunks of a killed run.

        `holds` says which of some values may still be taken over, e.g. not those whose bytes are gone.
        """
        self._holds = holds
        if previous is not None and previous.namespaces.get(table) == namespace:
            for part in previous.tables.get(table, []):
                self._index(_Place(self._table_folder, part))
            for part in previous.spares.get(table, []):
                self._index(_Place(self._work, part))
        for name in storage.names(self._chunks):
            if name.startswith("chunk-") and name.endswith(".parquet"):
                chunk = _chunk(self._chunks, name)
                if chunk is not None:
                    self._index(_Place(self._chunks, chunk))

    def add(self, keys: Sequence[Key], values: pa.Table) -> None:
        """Keep a computed chunk on disk; from here on it survives kill -9."""
        column = pa.array(keys, pa.binary(16))
        table = values.append_column("value_key", column)
        name = hashlib.blake2b(b"".join(keys), digest_size=12).hexdigest()
        part = write_part(self._chunks, f"chunk-{name}", table)
        self._places.append(_Place(self._chunks, part))
        for row, key in enumerate(keys):
            self._where.setdefault(key, (len(self._places) - 1, row))

    def gather(self, keys: Sequence[Key | None], schema: pa.Schema) -> pa.Table:
        """Values for each key in order, nulls where the key is None."""
        used = sorted({self._where[key][0] for key in keys if key is not None})
        tables = [self._read(number).select(self._columns) for number in used]
        starts = dict(zip(used, np.cumsum([0, *(t.num_rows for t in tables)])[:-1].tolist(), strict=True))
        rows = [None if key is None else starts[self._where[key][0]] + self._where[key][1] for key in keys]
        if not tables:
            return pa.table([pa.nulls(len(keys), field.type) for field in schema], schema=schema)
        combined = pa.concat_tables([t.cast(schema) for t in tables]).combine_chunks()
        return combined.take(pa.array(rows, pa.int64()))

    def retire(self, previous: Receipt | None, table: str, namespace: str, used: set[Key]) -> list[PartFile]:
        """Spares: known values of this namespace that the new generation does not hold."""
        if previous is None or previous.namespaces.get(table) != namespace:
            return []
        stems: list[PartFile] = []
        left = [key for key in self._where if key not in used]
        for start in range(0, len(left), 4096):
            keys = left[start:start + 4096]
            schema = self._read(self._where[keys[0]][0]).select(self._columns).schema
            values = self.gather(keys, schema).append_column("value_key", pa.array(keys, pa.binary(16)))
            stems.append(write_part(self._work, f"spare-{start // 4096:05d}", values))
        return stems

    def _index(self, place: _Place) -> None:
        url = storage.join(place.folder, place.part.file)
        if not storage.exists(url) or place.part.bytes not in (0, storage.size(url)) or not _whole(place):
            return  # lost, cut or damaged: its values are computed again
        number = len(self._places)
        self._places.append(place)
        columns = ["value_key"] if self._holds is None else [*self._columns, "value_key"]
        values = read_part(place.folder, place.part, columns)
        good = [True] * values.num_rows if self._holds is None else self._holds(values).tolist()
        for row, key in enumerate(values.column("value_key").to_pylist()):
            if key is not None and good[row]:
                self._where.setdefault(key, (number, row))

    def _read(self, number: int) -> pa.Table:
        if number in self._open:
            self._open.move_to_end(number)
            return self._open[number]
        place = self._places[number]
        table = read_part(place.folder, place.part)
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


def _chunk(folder: str, name: str) -> PartFile | None:
    """A chunk, which no receipt names, read through; None when it is damaged."""
    import pyarrow.parquet as pq

    try:
        with storage.open_read(storage.join(folder, name)) as file:
            return PartFile(name, pq.read_table(file).num_rows, 0, "")
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
