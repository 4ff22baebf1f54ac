"""The funnel's numbers against what was planted, its picture against what 80 columns can hold."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from pipeline.errors import ManifestError
from pipeline.funnel import NO_MODEL, Funnel, Step, cells_of, funnel, render
from pipeline.manifest import Manifests
from pipeline.schema import STAGES
from tests.pipeline.made_up import DROPPED_BY, PLANTED, MadeUpRun, make_up


def drawn(result: Funnel, width: int = 80, encoding: str = "utf-8", **options: bool) -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    Console(width=width, file=file, **options).print(render(result))  # type: ignore[arg-type]
    file.flush()
    file.seek(0)
    return file.read()


def test_counts_are_those_planted(made_up_run: MadeUpRun) -> None:
    result = funnel(made_up_run.manifests)
    assert result.rows == sum(PLANTED.values())
    assert {reason: rows for step in result.steps for reason, rows in step.dropped} == {
        reason: rows for reason, rows in PLANTED.items() if reason != "kept"}
    assert {reason: step.stage for step in result.steps for reason, _ in step.dropped} == DROPPED_BY
    assert result.kept == PLANTED["kept"]
    assert result.pending == ()
    assert result.flagged == (("weak_caption", 8),)  # every fifth of the 40 kept
    assert dict(result.splits) == {"train": 36, "validation": 4}  # every tenth
    assert result.sharded == PLANTED["kept"]
    assert result.notes == ()


@pytest.mark.parametrize("last", list(STAGES))
def test_a_run_may_have_come_to_any_stage(last: str, tmp_path: Path, made_up_run: MadeUpRun) -> None:
    stages = list(STAGES)[: list(STAGES).index(last) + 1]
    unfinished = MadeUpRun(str(tmp_path), made_up_run.rows)
    result = funnel(unfinished.write(*stages))
    lost = sum(rows for reason, rows in PLANTED.items() if DROPPED_BY.get(reason) in stages)
    assert result.kept == sum(PLANTED.values()) - lost
    assert set(result.pending) == set(DROPPED_BY.values()) - set(stages)
    assert all(step.rows_in == before.kept for before, step in zip(result.steps, result.steps[1:], strict=False))


def test_reasons_are_the_same_before_and_after_filter_takes_over(tmp_path: Path, made_up_run: MadeUpRun) -> None:
    early = MadeUpRun(str(tmp_path), made_up_run.rows).write("ingest", "measure", "dedupe")
    full = {(step.stage, reason, rows) for step in funnel(made_up_run.manifests).steps for reason, rows in step.dropped}
    assert {(step.stage, reason, rows) for step in funnel(early).steps for reason, rows in step.dropped} == {
        entry for entry in full if entry[0] in ("ingest", "measure", "dedupe")}


def test_without_a_model_the_funnel_says_so(tmp_path: Path) -> None:
    run = make_up(tmp_path)
    for row in run.rows:
        row["caption_scores"] = None
    result = funnel(run.write())
    assert result.notes == (NO_MODEL,)
    assert 'score.model = "none"' in drawn(result)


def test_nothing_ingested_is_a_users_error(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="no receipt"):
        funnel(Manifests(str(tmp_path)))


def test_an_empty_run_is_drawn() -> None:
    result = funnel(pa.table({"fetch_outcome": pa.array([], pa.string())}))
    assert (result.rows, result.kept) == (0, 0)
    assert "rows in" in drawn(result)


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("options", [{"no_color": True}, {"force_terminal": True}])
def test_every_line_fits(width: int, options: dict[str, bool], made_up_run: MadeUpRun) -> None:
    plain = drawn(funnel(made_up_run.manifests), width)
    assert max(map(len, plain.splitlines())) <= width
    for reason, rows in PLANTED.items():
        assert any(reason in line and str(rows) in line for line in plain.splitlines()), reason
    coloured = drawn(funnel(made_up_run.manifests), width, **options)
    assert ("\x1b[" in coloured) == ("force_terminal" in options)


def test_a_terminal_without_unicode_gets_ascii(made_up_run: MadeUpRun) -> None:
    assert drawn(funnel(made_up_run.manifests), encoding="ascii").isascii()


counts = st.integers(0, 10**9)


@given(left=counts, dropped=counts, more=counts, width=st.integers(4, 300))
def test_bars_never_vanish_nor_overflow(left: int, dropped: int, more: int, width: int) -> None:
    solid, shaded = cells_of(left, dropped, left + dropped + more, width)
    assert 0 <= solid <= width
    assert shaded >= 0
    assert solid + shaded <= width
    assert (solid > 0) == (left > 0)
    assert (shaded > 0) == (dropped > 0)


reasons = st.sampled_from([None, ("ingest", "robots"), ("filter", "blurry"), ("filter", "blank"), ("select", "x")])


@given(st.lists(reasons, max_size=40))
def test_rows_in_are_rows_dropped_and_rows_kept(fates: list[tuple[str, str] | None]) -> None:
    joined = pa.table({
        "kept": pa.array([fate is None for fate in fates], pa.bool_()),
        "dropped_by": pa.array([fate and fate[0] for fate in fates], pa.string()),
        "reason": pa.array([fate and fate[1] for fate in fates], pa.string()),
    })
    result = funnel(joined)
    counted = {(step.stage, reason): rows for step in result.steps for reason, rows in step.dropped}
    assert counted == Counter(fate for fate in fates if fate)
    assert result.rows == result.kept + sum(counted.values())
    assert result.kept == fates.count(None)


def test_json_holds_the_same_numbers() -> None:
    result = Funnel(10, (Step("ingest", 10, (("robots", 3), ("dns", 1))), Step("filter", 6, ())))
    assert result.as_json()["stages"] == [
        {"stage": "ingest", "in": 10, "dropped": {"robots": 3, "dns": 1}, "kept": 6},
        {"stage": "filter", "in": 6, "dropped": {}, "kept": 6},
    ]
