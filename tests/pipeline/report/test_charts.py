"""Histograms count every value once, on axes whose marks are round and stand where they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.report.charts import BINS, histogram, log_ticks, number, ticks

values = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200)


def counts(label: str) -> tuple[int, int]:
    """Rows that pass and rows that fail, read back from a bar's label."""
    numbers = label.split(": ")[1].replace(",", "").split()
    return int(numbers[0]), int(numbers[2])


@given(values=values, threshold=st.none() | st.floats(-1e6, 1e6))
def test_every_value_is_in_one_bar(values: list[float], threshold: float | None) -> None:
    array = np.array([*values, np.nan])
    failed = np.zeros(len(array), bool) if threshold is None else array < threshold
    chart = histogram(array, failed, threshold)
    assert chart is not None
    passed_rows, failed_rows = map(sum, zip(*(counts(bar.label) for bar in chart.bars), strict=True))
    assert failed_rows == failed.sum()
    assert passed_rows + failed_rows == len(values)
    assert all(0 <= bar.x <= 100 and bar.passed + bar.failed <= 100 for bar in chart.bars)
    assert len(chart.bars) <= BINS
    if threshold is not None:
        assert chart.threshold_x is not None
        assert -1e-6 <= chart.threshold_x <= 100 + 1e-6


@pytest.mark.parametrize("values", [[], [math.nan, math.inf, -math.inf]])
def test_nothing_measured_gives_no_chart(values: list[float]) -> None:
    assert histogram(np.array(values), np.zeros(len(values), bool), 1.0) is None


def test_the_threshold_stands_between_the_two_sides() -> None:
    array = np.linspace(0, 10, 1001)
    chart = histogram(array, array < 4, 4.0)
    assert chart is not None
    assert chart.threshold_x is not None
    assert chart.threshold == "4"
    assert not any(bar.passed and bar.failed for bar in chart.bars)
    assert max(bar.x + bar.width for bar in chart.bars if bar.failed) == pytest.approx(chart.threshold_x)
    assert min(bar.x for bar in chart.bars if bar.passed) == pytest.approx(chart.threshold_x)


def test_one_odd_value_does_not_flatten_the_rest() -> None:
    array = np.append(np.random.default_rng(0).normal(100, 10, 5000), 1e6)
    chart = histogram(array, np.zeros(len(array), bool), None)
    assert chart is not None
    assert chart.beyond >= 1
    assert sum(bar.passed > 20 for bar in chart.bars) > 10


def test_a_wide_span_is_drawn_on_a_logarithmic_axis() -> None:
    chart = histogram(10 ** np.random.default_rng(0).uniform(0, 5, 2000), np.zeros(2000, bool), 100.0)
    assert chart is not None
    assert chart.logarithmic
    assert chart.threshold_x == pytest.approx(40, abs=4)  # 10² of 10⁰ to 10⁵
    marks = {tick.label: tick.x for tick in chart.ticks}
    assert marks["100"] == pytest.approx(chart.threshold_x)


def test_few_whole_numbers_get_a_bar_each() -> None:
    array = np.repeat([1.0, 2.0, 3.0], [5, 7, 9])
    chart = histogram(array, array < 2, 2.0)
    assert chart is not None
    assert [counts(bar.label) for bar in chart.bars] == [(0, 5), (7, 0), (9, 0)]


@given(low=st.floats(-1e5, 1e5), span=st.floats(1e-3, 1e6))
def test_ticks_are_round_and_on_the_axis(low: float, span: float) -> None:
    marks = ticks(low, low + span)
    assert 2 <= len(marks) <= 8
    steps = np.diff(marks)
    assert np.allclose(steps, steps[0])
    assert f"{steps[0]:.6e}"[0] in "125" or f"{steps[0]:.0e}"[0] in "125"
    assert marks[0] >= low - 1e-6 * span
    assert marks[-1] <= low + span * (1 + 1e-6)


def test_log_ticks_are_powers_of_ten_with_2_and_5_where_few() -> None:
    assert log_ticks(0.8, 60) == pytest.approx([1, 2, 5, 10, 20, 50])
    assert log_ticks(1e-3, 1e4) == pytest.approx([10.0**power for power in range(-3, 5)])


@pytest.mark.parametrize(("value", "text"), [
    (0, "0"), (3.0, "3"), (0.28, "0.28"), (1.6001, "1.6"), (-0.05, "-0.05"), (4.41666, "4.417"), (12345.6, "12,346"),
    (1000.0, "1,000"), (99.95, "99.95"), (0.000012, "1.2e-05"), (3e12, "3e+12"), (float("nan"), "–"), (None, "–"),
])
def test_numbers_as_people_read_them(value: float | None, text: str) -> None:
    assert number(value) == text
