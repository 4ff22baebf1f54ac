"""Single cells of a Parquet file's binary column, read forward with little memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import storage
from pipeline.errors import StorageError

BUFFER = 1 << 20
"""Bytes read at a time of a column that may be gigabytes long."""
_ROWS = 16


def opened(file: object) -> pq.ParquetFile:
    """A Parquet file whose columns are read page by page, never a row group at once."""
    return pq.ParquetFile(file, pre_buffer=False, buffer_size=BUFFER)


class Damaged(Exception):  # noqa: N818 - says what a cell is, like an outcome
    """The file does not hold what its footer says."""


class Cells:
    """One binary column. Pages are compressed, so cells are cheap in the order of their rows: going back starts anew at
    the row group. What is held is one page and 16 cells."""

    def __init__(self, url: str, column: str) -> None:
        """`column` with dots for what lies inside structs. Raises StorageError, Damaged."""
        self.url, self.column = url, column
        self._file = storage.open_read(url)
        try:
            self._parquet = opened(self._file)
            footer = self._parquet.metadata
            sizes = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
        except (pa.ArrowException, OSError) as error:
            self._file.close()
            raise Damaged(str(error)) from error
        self._starts = [0, *itertools.accumulate(sizes)]
        self._group = -1
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._batch: pa.Array = pa.array([], pa.binary())
        self._first = 0
        self._broken: dict[int, tuple[int, str]] = {}

    def close(self) -> None:
        self._file.close()

    def cell(self, row: int) -> bytes | None:
        """The bytes in a row, None for null. Raises Damaged, and StorageError when the file cannot be read now."""
        group = next((number for number, start in enumerate(self._starts[1:]) if row < start), None)
        if group is None:
            raise Damaged(f"it has only {self._starts[-1]} rows")
        since, why = self._broken.get(group, (row + 1, ""))
        if row >= since:
            raise Damaged(why)
        if group != self._group or row < self._first:
            self._open(group)
        while row >= self._first + len(self._batch):
            self._advance(group)
        value = self._batch[row - self._first].as_py()
        return None if value is None else bytes(value)

    def _open(self, group: int) -> None:
        self._group, self._first, self._batch = group, self._starts[group], pa.array([], pa.binary())
        self._batches = self._parquet.iter_batches(_ROWS, row_groups=[group], columns=[self.column], use_threads=False)

    def _advance(self, group: int) -> None:
        after = self._first + len(self._batch)
        try:
            batch = next(self._batches)
        except StorageError:
            self._group = -1  # so that another try starts anew
            raise
        except (pa.ArrowException, OSError, MemoryError, StopIteration) as error:
            why = str(error) or "fewer rows than its footer says"
            self._broken[group] = (after, why)
            self._group = -1
            raise Damaged(why) from None
        values = batch.column(0)
        for _ in self.column.split(".")[1:] if pa.types.is_struct(values.type) else ():
            values = values.flatten()[0]
        self._first, self._batch = after, values
