"""All checks there are, and their common judgement over a run's columns.

`registry` finds them: every module of this package except `base`, and the entry points `gristmill.checks`
of other packages. `verdicts` is what `dedupe` (to prefer good copies) and `filter` (to decide) both ask.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.checks.base import Check, CheckSettings, Columns, Verdict
from pipeline.errors import RecipeError
from pipeline.receipt import JsonObject
from pipeline.schema import FAILED_CHECK, Column

__all__ = [
    "Check", "CheckSettings", "Verdict", "Verdicts", "columns", "columns_read", "find", "findings", "found_by",
    "measuring", "reasons", "registry", "verdicts",
]


@cache
def registry() -> dict[str, Check]:
    """Check name → the check, sorted by name. Raises RecipeError when two share a name or a column."""
    kinds: dict[str, type[Check]] = {
        info.name: _only_check(importlib.import_module(f"{__name__}.{info.name}"))
        for info in pkgutil.iter_modules(__path__) if info.name != "base" and not info.name.startswith("_")
    }
    for point in entry_points(group="gristmill.checks"):
        if point.name in kinds:
            raise RecipeError(f"two checks are called {point.name}", hint=f"rename the one in {point.value}")
        kinds[point.name] = point.load()
    checks: dict[str, Check] = {}
    owner: dict[str, str] = {}
    for name, kind in sorted(kinds.items()):
        kind.name = name
        for column in kind.columns:
            if column in owner:
                raise RecipeError(f"checks {owner[column]} and {name} both write a column {column}",
                                  hint="rename one of them")
            owner[column] = name
        checks[name] = kind()
    return checks


def measuring(settings: Mapping[str, CheckSettings] | None = None) -> dict[str, Check]:
    """The checks that measure under these settings: all but costly ones that are off. None: none that is costly."""
    return {name: check for name, check in registry().items()
            if not check.costly or (settings is not None and settings[name].action != "off")}


def columns(checks: Mapping[str, Check] | None = None) -> list[Column]:
    """The measure columns of all checks, in registry order."""
    found = registry() if checks is None else checks
    return [
        Column(name, pa.float32(), meaning) for check in found.values() for name, meaning in check.columns.items()
    ]


def columns_read(*, finding: bool = True) -> list[str]:
    """Every column that any check judges by, in a fixed order and without repeats; those that are only looked at for
    findings unless these are at hand."""
    return list(dict.fromkeys(name for check in registry().values() for name in (
        *check.columns, *check.reads, *(check.found_in if finding else ()))))


def findings() -> list[Column]:
    """The columns of all that checks find, in registry order."""
    return [Column(name, pa.float32(), meaning) for check in registry().values()
            for name, meaning in check.findings.items()]


def found_by(settings: Mapping[str, CheckSettings]) -> JsonObject:
    """What decides the findings, beside the columns they are found in."""
    return {name: [check.version, settings[name].action == "off",
                   settings[name].model_dump(mode="json", include=set(check.found_by))]
            for name, check in registry().items() if check.findings}


def find(table: pa.Table, settings: Mapping[str, CheckSettings]) -> pa.Table:
    """`findings` of all rows; nulls for checks that are off. `table` holds `columns_read()`."""
    found: dict[str, Any] = {}
    for name, check in registry().items():
        if check.findings and settings[name].action != "off":
            found |= check.find(as_arrays(table, check.found_in), settings[name])
    nothing = np.full(table.num_rows, np.nan)
    return pa.table({column.name: pa.array(found.get(column.name, nothing), column.type, from_pandas=True)
                     for column in findings()})


def reasons() -> dict[str, str]:
    """Every reason of every check → its explanation."""
    return {reason: text for check in registry().values() for reason, text in check.reasons.items()}


@dataclass(frozen=True)
class Judged:
    """A verdict with the check that gave it and what the recipe makes of it."""

    check: str
    action: str
    rank: int
    verdict: Verdict


class Verdicts:
    """All checks' verdicts over the same rows, in order of precedence."""

    def __init__(self, judged: Sequence[Judged], rows: int) -> None:
        self.judged = sorted(judged, key=lambda one: (one.rank, one.check, one.verdict.reason))
        self.rows = rows

    @property
    def dropped(self) -> NDArray[np.bool_]:
        """Rows that fail a check whose action is drop."""
        mask = np.zeros(self.rows, bool)
        for one in self.judged:
            if one.action == "drop":
                mask |= one.verdict.failed
        return mask

    def failing(self, check: str) -> NDArray[np.bool_]:
        """Rows that fail the named check, whatever its action."""
        mask = np.zeros(self.rows, bool)
        for one in self.judged:
            if one.check == check:
                mask |= one.verdict.failed
        return mask

    def deciding(self) -> NDArray[np.int64]:
        """Per row the position in `judged` of the verdict that drops it, -1 for rows that stay."""
        first = np.full(self.rows, -1, np.int64)
        for position, one in enumerate(self.judged):
            if one.action == "drop":
                first[(first < 0) & one.verdict.failed] = position
        return first

    def failed(self) -> pa.Array:
        """Per row every failed check, as a list of `schema.FAILED_CHECK`, in order of precedence."""
        failing = [np.flatnonzero(one.verdict.failed) for one in self.judged]
        rows = np.concatenate([np.empty(0, np.int64), *failing])
        which = np.repeat(np.arange(len(self.judged)), [len(each) for each in failing])
        values = np.concatenate([np.empty(0), *(one.verdict.value[each] for one, each in
                                                zip(self.judged, failing, strict=True))])
        order = np.argsort(rows, kind="stable")  # within a row the verdicts keep their order
        texts = {name: pa.array([getattr(one, name) for one in self.judged], pa.string()) for name in
                 ("check", "action")}
        texts["reason"] = pa.array([one.verdict.reason for one in self.judged], pa.string())
        thresholds = np.array([one.verdict.threshold for one in self.judged], np.float64)
        chosen = pa.array(which[order])
        columns = {**{name: text.take(chosen) for name, text in texts.items()},
                   "value": pa.array(values[order], pa.float64(), from_pandas=False),
                   "threshold": pa.array(thresholds[which[order]], pa.float64())}
        records = pa.StructArray.from_arrays([columns[field.name] for field in FAILED_CHECK],
                                             fields=list(FAILED_CHECK))
        ends = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=self.rows))])
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), records, type=pa.list_(FAILED_CHECK))


def verdicts(table: pa.Table, settings: Mapping[str, CheckSettings], *, dropping_only: bool = False,
             found: pa.Table | None = None) -> Verdicts:
    """Judge all rows by all checks whose action is not off, or only by those that drop. `table` holds
    `columns_read()`; what is `found` in it may be given as `find` returned it before, and is looked for otherwise."""
    judged = []
    for name, check in registry().items():
        chosen = settings[name]
        if chosen.action == "off" or (dropping_only and chosen.action != "drop"):
            continue
        seen = dict(as_arrays(table, (*check.columns, *check.reads)))
        if check.findings:
            seen |= as_arrays(found, check.findings) if found is not None else \
                check.find(as_arrays(table, check.found_in), chosen)
        judged += [Judged(name, chosen.action, check.rank, verdict) for verdict in check.judge(seen, chosen)]
    return Verdicts(judged, table.num_rows)


def as_arrays(table: pa.Table, names: Iterable[str]) -> Columns:
    """Arrow columns → what `judge` is given: float64 with NaN for numbers, objects for the rest."""
    arrays: dict[str, NDArray[Any]] = {}
    for name in names:
        column = table.column(name)
        kind = column.type
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            arrays[name] = column.cast(pa.float64()).to_numpy()
        elif pa.types.is_null(kind):
            arrays[name] = np.full(table.num_rows, np.nan)
        else:
            values = np.empty(table.num_rows, object)
            values[:] = column.to_pylist()
            arrays[name] = values
    return arrays


def _only_check(module: Any) -> type[Check]:
    classes = [
        value for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, Check) and value.__module__ == module.__name__
    ]
    if len(classes) != 1:
        raise RecipeError(f"{module.__name__} defines {len(classes)} checks", hint="a file in checks/ holds one")
    return classes[0]
