"""The decision columns of a stage that drops rows for several reasons, one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.schema import DECISION

Rows = NDArray[np.int64]


class Decisions:
    """What earlier stages decided of all rows, and what is added. `kept` (n,) bool says which rows are still in."""

    def __init__(self, columns: pa.Table, stage: str = "select") -> None:
        self._stage, self._ids = stage, columns.column("id")
        self.kept: NDArray[np.bool_] = np.asarray(columns.column("kept").to_numpy(zero_copy_only=False), bool).copy()
        self._words = {name: _objects(columns.column(name)) for name in ("dropped_by", "reason")}
        self._numbers = {name: columns.column(name).cast(pa.float64()).to_numpy().copy()
                         for name in ("value", "threshold")}
        self._similar = np.full(len(self.kept), -1, np.int64)

    def drop(self, rows: Rows, reason: str, value: NDArray[np.float64], threshold: float,
             similar_to: Rows | None = None) -> None:
        """`value` (n,) is that of all rows; `similar_to` numbers the row kept in place of each dropped one."""
        self.kept[rows] = False
        self._words["dropped_by"][rows], self._words["reason"][rows] = self._stage, reason
        self._numbers["value"][rows], self._numbers["threshold"][rows] = value[rows], threshold
        if similar_to is not None:
            self._similar[rows] = similar_to

    def refuse(self, rows: Rows, refused: pa.Table) -> None:
        """Drop those of `rows` that `refused` (reason, value, threshold of each) has a reason for."""
        reasons = _objects(refused.column("reason"))
        given = np.flatnonzero(reasons != np.array(None))
        hit = rows[given]
        self.kept[hit] = False
        self._words["dropped_by"][hit], self._words["reason"][hit] = self._stage, reasons[given]
        for name, numbers in self._numbers.items():
            numbers[hit] = refused.column(name).cast(pa.float64()).to_numpy()[given]

    def columns(self) -> dict[str, Any]:
        """`DECISION` and `similar_to`."""
        filled: dict[str, Any] = {"kept": pa.array(self.kept), **self._words}
        filled |= {name: pa.array(numbers, from_pandas=True) for name, numbers in self._numbers.items()}
        similar = pa.array(self._similar, mask=self._similar < 0)
        assert set(filled) == {column.name for column in DECISION}
        return {**filled, "similar_to": self._ids.take(similar)}


def _objects(column: pa.ChunkedArray) -> NDArray[np.object_]:
    made = np.empty(len(column), object)
    made[:] = column.to_pylist()
    return made
