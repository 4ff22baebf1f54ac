"""Early exit: what the file's header says can be enough to drop a picture, and then its pixels need not be decoded.

Only checks that measure nothing themselves and read nothing but the header's columns can be asked so early. Their
thresholds are no part of a value's key: a row that another threshold lets in again is decoded then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.checks import as_arrays, registry
from pipeline.checks.base import CheckSettings, Columns
from pipeline.receipt import JsonObject

COLUMNS = ("format", "mode", "width", "height", "frames")
"""Columns of `measure` that a header fills."""


class HeaderRules:
    """The checks of a recipe that drop pictures by their header alone. Can be pickled."""

    def __init__(self, settings: Mapping[str, CheckSettings]) -> None:
        self._settings = {
            name: settings[name] for name, check in registry().items()
            if settings[name].action == "drop" and check.reads and not check.columns and set(check.reads) <= {*COLUMNS}
        }

    def basis(self) -> JsonObject:
        """Check → its settings: what the rules depend on."""
        return {name: chosen.model_dump(mode="json") for name, chosen in self._settings.items()}

    def dropped(self, columns: Columns, rows: int) -> NDArray[np.bool_]:
        """Rows that some rule drops, (rows,). `columns` holds COLUMNS, as `checks.as_arrays` makes them."""
        mask = np.zeros(rows, bool)
        for name, chosen in self._settings.items():
            for verdict in registry()[name].judge(columns, chosen):
                mask |= verdict.failed
        return mask

    def drops(self, facts: Mapping[str, Any]) -> bool:
        """Whether the picture with these header values is dropped."""
        row = {name: np.array([value], float if isinstance(value, int) else object) for name, value in facts.items()}
        return bool(self.dropped(row, 1)[0])

    def still_dropped(self, values: pa.Table) -> NDArray[np.bool_]:
        """Which of `measure`'s values are of pictures that these rules drop."""
        return self.dropped(as_arrays(values, COLUMNS), values.num_rows)
