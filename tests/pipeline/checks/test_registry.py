"""The registry and the common judgement."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pipeline import checks
from pipeline.checks.base import Check, CheckSettings, fail_where
from pipeline.errors import RecipeError


def settings(**changes: CheckSettings) -> dict[str, CheckSettings]:
    return {name: check.Settings() for name, check in checks.registry().items()} | changes


def table(**columns: list[object]) -> pa.Table:
    rows = len(next(iter(columns.values())))
    made = {name: [None] * rows for name in checks.columns_read()} | columns
    return pa.table({name: pa.array(values) for name, values in made.items()})


def test_every_check_is_documented() -> None:
    assert {"resolution", "aspect", "compression", "blown_up", "blur", "blank", "caption"} <= set(checks.registry())
    for name, check in checks.registry().items():
        assert check.name == name
        assert check.reasons, name
        assert all(len(text) > 40 for text in check.reasons.values()), name
        assert all(field.description for field in type(check.Settings()).model_fields.values()), name
    assert len(checks.columns()) == len({column.name for column in checks.columns()})
    assert set(checks.reasons()) >= {"low_resolution", "blurry", "blown_up", "blank", "weak_caption"}


def test_rows_without_measures_fail_nothing_but_captions() -> None:
    verdicts = checks.verdicts(table(captions=[["a red barn"]]), settings())
    assert verdicts.failed().to_pylist() == [[]]
    assert verdicts.deciding().tolist() == [-1]


def test_actions() -> None:
    rows = table(width=[100, 100, 900], height=[100, 500, 900], captions=[["x.jpg"]] * 3)
    resolution = checks.registry()["resolution"].Settings
    for action in ("drop", "flag", "off"):  # the second row is 5:1: `aspect` drops it either way
        verdicts = checks.verdicts(rows, settings(resolution=resolution(action=action)))
        assert verdicts.dropped.tolist() == [action == "drop", True, False]
        assert verdicts.failing("resolution").tolist() == [action != "off", action != "off", False]
        assert verdicts.failing("caption").all()


def test_the_first_reason_by_rank_decides_and_says_value_and_threshold() -> None:
    verdicts = checks.verdicts(table(width=[100], height=[500], captions=[["a barn"]]), settings())
    deciding = verdicts.judged[int(verdicts.deciding()[0])]
    assert (deciding.check, deciding.verdict.reason) == ("resolution", "low_resolution")
    assert verdicts.failed().to_pylist()[0] == [
        {"check": "resolution", "reason": "low_resolution", "action": "drop", "value": 100.0, "threshold": 200.0},
        {"check": "aspect", "reason": "extreme_aspect", "action": "drop", "value": 5.0, "threshold": 3.0},
    ]


class _Point:
    def __init__(self, name: str, kind: type[Check]) -> None:
        self.name, self.kind, self.value = name, kind, f"elsewhere:{kind.__name__}"

    def load(self) -> type[Check]:
        return self.kind


class _Hue(Check):
    columns = {"hue": "mean hue, degrees"}
    reasons = {"wrong_hue": "The picture is not blue enough for this set, which is about the sea."}

    def judge(self, columns, settings):  # type: ignore[no-untyped-def]
        return fail_where(columns["hue"] < 180, reason="wrong_hue", value=columns["hue"], threshold=180)


class _Greedy(_Hue):
    columns = {"tone_range": "a column that `blank` has already"}


def _registered(monkeypatch: pytest.MonkeyPatch, *points: _Point) -> dict[str, Check]:
    monkeypatch.setattr(checks, "entry_points", lambda group: points if group == "gristmill.checks" else ())
    return checks.registry.__wrapped__()


def test_other_packages_add_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _registered(monkeypatch, _Point("hue", _Hue))
    assert found["hue"].name == "hue"
    assert list(found) == sorted(found)
    assert [column.name for column in checks.columns(found) if column.name == "hue"] == ["hue"]
    (verdict,) = found["hue"].judge({"hue": np.array([10.0, 200.0, np.nan])}, found["hue"].Settings())
    assert verdict.failed.tolist() == [True, False, False]


@pytest.mark.parametrize(("name", "kind"), [("blur", _Hue), ("greedy", _Greedy)])
def test_names_and_columns_are_unique(monkeypatch: pytest.MonkeyPatch, name: str, kind: type[Check]) -> None:
    with pytest.raises(RecipeError):
        _registered(monkeypatch, _Point(name, kind))
