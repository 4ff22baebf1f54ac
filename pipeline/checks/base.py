"""What a check is: a measure taken once per picture, and a judgement that may be repeated at will.

A check is one file in this package (or a class behind an entry point `gristmill.checks`). The file's name is
the check's name, its section `[filter.<name>]` in the recipe and its row in the report. `measure` sees the
picture once and writes columns; `judge` sees whole columns and settings, never pixels.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pipeline.image import Picture
from pipeline.settings import Settings

Action = Literal["drop", "flag", "off"]
Columns = Mapping[str, NDArray[Any]]
"""Column name → one value per row. Numbers are float64 with NaN for null; lists and strings are objects or None."""


class CheckSettings(Settings):
    """Base of a check's settings; subclasses add thresholds and may change the default action."""

    action: Action = Field("drop", description="drop: remove the row; flag: only note it; off: do not judge")


@dataclass(frozen=True)
class Verdict:
    """One judgement over all rows: which failed, for what reason, with what value against what threshold.

    `failed` bool (n,), `value` float64 (n,). Rows whose value is unknown (NaN) never fail.
    """

    failed: NDArray[np.bool_]
    reason: str
    value: NDArray[np.float64]
    threshold: float


class Check(ABC):
    """Subclass per file. A check that judges other columns than its own names them in `reads`."""

    name: ClassVar[str] = ""
    """Set by the registry: the file's name, or the entry point's."""
    columns: ClassVar[dict[str, str]] = {}
    """Columns that `measure` fills (float32): name → meaning, with unit."""
    reads: ClassVar[tuple[str, ...]] = ()
    """Further columns that `judge` looks at, of `ingest` or `measure`."""
    findings: ClassVar[dict[str, str]] = {}
    """What `find` works out of other columns (float32): name → meaning. It is kept until these columns change, for what
    takes too long to be done again whenever a threshold moves."""
    found_in: ClassVar[tuple[str, ...]] = ()
    """Columns that `find` looks at, of `ingest` or `measure`."""
    found_by: ClassVar[tuple[str, ...]] = ()
    """Settings that decide what is found."""
    reasons: ClassVar[dict[str, str]] = {}
    """Every reason that `judge` may give: reason → what it means and what to do, in plain words."""
    version: ClassVar[int] = 1
    """Rises when `measure` gives other values for the same picture, or `find` for the same columns."""
    costly: ClassVar[bool] = False
    """Takes longer than all others together: it measures nothing while the recipe's action is `off`."""
    rank: ClassVar[int] = 50
    """Of several failed checks the lowest rank gives the row's reason: the plainer the fault, the lower."""

    class Settings(CheckSettings):
        """Replaced by each check."""

    def ready(self) -> None:
        """Asked before any work of a costly check that is on. Raises a GristmillError that says what is missing."""

    def fingerprint(self) -> object:
        """What decides the measured values, as JSON: the version, and that of a library behind it."""
        return self.version

    def measure(self, picture: Picture) -> dict[str, float]:
        """Values of `columns` for one picture; NaN where a measure does not apply."""
        return {}

    def find(self, columns: Columns, settings: Any) -> Columns:
        """`findings` over all rows, NaN where there is nothing to find. `columns` holds those of `found_in`."""
        return {}

    def judge(self, columns: Columns, settings: Any) -> Sequence[Verdict]:
        """One verdict per reason, over all rows. `columns` holds those of `columns`, `reads` and `findings`."""
        raise NotImplementedError


def fail_where(failed: NDArray[np.bool_], *, reason: str, value: NDArray[Any], threshold: float) -> list[Verdict]:
    """The verdict of a check with a single reason."""
    return [Verdict(np.asarray(failed, bool), reason, np.asarray(value, np.float64), float(threshold))]
