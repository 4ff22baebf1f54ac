"""`curate estimate`: what a whole run would cost, from two samples of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from pipeline.demo.scenes import draw, sample_scene
from pipeline.errors import SourceError
from pipeline.estimate import Estimate, Prices, Row, estimate, line, render, spoken
from pipeline.ingest.sources.site import SiteSource
from pipeline.progress import Progress
from pipeline.recipe import from_dict
from pipeline.run import Run


def run_over(folder: Path, workdir: Path) -> Run:
    return Run(from_dict({
        "name": "guess", "workdir": str(workdir), "score": {"model": "none"}, "filter": {"resolution": {"min_side": 8}},
        "ingest": {"sources": [{"kind": "folder", "name": "f", "path": str(folder)}]}, "engine": {"workers": 1},
    }), Progress(quiet=True))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "pictures"
    made.mkdir()
    for number in range(24):
        draw(sample_scene(np.random.default_rng(number))).save(made / f"a picture of {number}.png")
    return made


def test_a_sample_is_run_and_multiplied_out(folder: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    result = estimate(run_over(folder, work), sample=12, prices=Prices(hour=36.0, gb_month=1000.0))
    assert (result.rows, result.sample) == (24, 12)
    assert not work.exists(), "an estimate leaves nothing behind"
    by_stage = {row.stage: row for row in result.stages}
    assert list(by_stage)[:2] == ["ingest", "measure"]
    size = sum(file.stat().st_size for file in folder.iterdir()) / 1e9
    assert by_stage["shard"].gb == pytest.approx(size, rel=0.5), "the shards hold the pictures"
    assert by_stage["ingest"].gb < size / 2, "a folder is used where it lies"
    assert by_stage["ingest"].requests == 0
    for row in result.stages:
        assert row.hours > 0
        assert row.price == pytest.approx(36.0 * row.hours + 1000.0 * row.gb)


def test_an_empty_source_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="no pictures"):
        estimate(run_over(tmp_path / "empty", tmp_path / "work"))


@given(st.floats(0, 100), st.floats(0.001, 10), st.integers(1, 50), st.integers(1, 200), st.integers(0, 10**6))
def test_what_costs_once_and_what_costs_per_row_are_told_apart(once: float, each: float, few: int, more: int,
                                                               rest: int) -> None:
    many = few + more
    total = many + rest
    guess = line((few, many), (once + each * few, once + each * many), total)
    assert guess == pytest.approx(once + each * total, rel=1e-6)


def test_noise_never_makes_rows_cost_nothing() -> None:
    assert line((10, 40), (5.0, 4.0), 400) == pytest.approx(40.0)  # 0.1 s per row of the larger sample
    assert line((10, 10), (5.0, 6.0), 10) == pytest.approx(6.0)


def test_a_website_is_judged_by_its_first_pages() -> None:
    settings = SiteSource.Settings(name="s", start=("https://example.org/",), max_pages=7000)
    glance = SiteSource(settings).at_a_glance()
    assert glance.settings.model_dump()["max_pages"] < 100
    small = SiteSource.Settings(name="s", start=("https://example.org/",), max_pages=3)
    assert SiteSource(small).at_a_glance().settings.model_dump()["max_pages"] == 3


@pytest.mark.parametrize(("hours", "words"), [(0.01, "36 s"), (0.5, "30 min"), (1.99, "119 min"), (26.0, "26.0 h")])
def test_durations_are_said_as_people_do(hours: float, words: str) -> None:
    assert spoken(hours) == words


def test_the_table_fits_80_columns() -> None:
    rows: tuple[Any, ...] = (Row("ingest", 31.0, 5_200_000, 812.0, 21.7), Row("measure", 2.5, 0, 3.1, 1.3))
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(render(Estimate(5_000_000, 256, rows, ("a note",))))
    lines = console.export_text().splitlines()
    assert "5,000,000 rows" in lines[0]
    assert lines[-2].split() == ["in", "all", "33.5", "h", "5,200,000", "815.10", "23.00"]
