"""The plan's laws. Expected values follow from the definition of systematic rounding, not from the code."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from train.plan import UNIT, Plan, bucket_ratio, fixed_point, merged_buckets, repeats, spread

EIGHTHS = st.lists(st.integers(0, 40), min_size=1, max_size=40)


@given(EIGHTHS, st.integers(0, 10 * UNIT))
def test_a_row_comes_floor_or_ceil_of_its_weight_and_on_average_exactly_its_weight(
        eighths: list[int], start: int) -> None:
    weights = np.array(eighths, np.int64) * (UNIT // 8)
    total = np.zeros(len(weights), np.int64)
    for step in range(8):
        counts = repeats(weights, start, step * UNIT // 8)
        for count, eighth in zip(counts.tolist(), eighths, strict=True):
            assert count in (eighth // 8, math.ceil(eighth / 8))
        total += counts
    # Averaged over u = 0, 1/8, …, 7/8 the expectation is exact, because weights are eighths.
    assert [Fraction(int(t), 8) for t in total] == [Fraction(e, 8) for e in eighths]


@given(EIGHTHS, st.integers(0, UNIT - 1), st.data())
def test_any_prefix_is_known_from_its_running_sum(
        eighths: list[int], offset: int, data: st.DataObject) -> None:
    weights = np.array(eighths, np.int64) * (UNIT // 8)
    cut = data.draw(st.integers(0, len(eighths)))
    counts = repeats(weights, 0, offset)
    assert counts[:cut].sum() == (int(weights[:cut].sum()) + offset) // UNIT
    again = repeats(weights[cut:], int(weights[:cut].sum()), offset)
    assert counts[cut:].tolist() == again.tolist()


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.integers(0, 1000))
def test_spread_keeps_every_count(counts: list[int], seed: int) -> None:
    order = spread(np.array(counts, np.int64), np.random.default_rng(seed))
    assert np.bincount(order, minlength=len(counts)).tolist() == counts


def test_two_repeats_lie_in_the_two_halves() -> None:
    counts = np.array([2] + [1] * 998, np.int64)
    for seed in range(20):
        first, second = np.flatnonzero(spread(counts, np.random.default_rng(seed)) == 0)
        assert first < 560 < second + 120  # halves, up to the sampling noise of the single rows


def make(rows: int = 300, *, seed: int = 3, batch: int = 8, buckets: int = 3, block: int = 64,
         weights: np.ndarray | None = None) -> Plan:
    rng = np.random.default_rng(0)
    return Plan(seed=seed, batch=batch, weights=np.ones(rows) if weights is None else weights,
                buckets=rng.integers(0, buckets, rows), shards=np.arange(rows) // 20, shuffle_block=block)


@settings(max_examples=25)
@given(seed=st.integers(0, 2**31), batch=st.integers(1, 40), buckets=st.integers(1, 5),
       block=st.integers(1, 400))
def test_batches_hold_one_bucket_and_unit_weights_give_every_row_once_an_epoch(
        seed: int, batch: int, buckets: int, block: int) -> None:
    plan = make(seed=seed, batch=batch, buckets=buckets, block=block)
    kinds = np.random.default_rng(0).integers(0, buckets, 300)
    seen = np.zeros(300, np.int64)
    for index in range(3 * 300 // batch):
        planned = plan.batch(index)
        assert len(planned.rows) == batch
        assert set(kinds[planned.rows]) == {planned.bucket}
        assert planned.numbers.tolist() == list(range(index * batch, (index + 1) * batch))
        seen += np.bincount(planned.rows, minlength=300)
        # Exactly once an epoch: within a bucket no row is ever two rounds ahead of another.
        for kind in range(buckets):
            assert np.ptp(seen[kinds == kind]) <= 1 or batch > (kinds == kind).sum()


def test_repeats_over_many_epochs_meet_the_weights() -> None:
    weights = np.random.default_rng(5).uniform(0, 4, 120)
    plan = Plan(seed=1, batch=10, weights=weights, buckets=np.zeros(120, int), shards=np.arange(120) // 30)
    epochs, seen = 400, np.zeros(120)
    index = 0
    while plan.epoch_of(index) < epochs:
        seen += np.bincount(plan.batch(index).rows, minlength=120)
        index += 1
    # A count is ⌊w⌋ plus a coin of the fractional part: its mean over 400 epochs has sd ≤ 0.5 / √400 = 0.025.
    assert np.abs(seen / epochs - weights).max() < 5 * 0.025


def test_the_order_is_the_same_from_any_starting_point() -> None:
    whole = make()
    expected = [whole.batch(i).rows.tolist() for i in range(150)]
    for start in (149, 77, 36, 0):
        assert make().batch(start).rows.tolist() == expected[start]
    assert make(seed=4).batch(0).rows.tolist() != expected[0]


@pytest.mark.parametrize(("ranks", "turns"), [(1, 1), (2, 1), (1, 4), (2, 2), (8, 1)])
def test_ranks_and_accumulation_only_slice_a_batch(ranks: int, turns: int) -> None:
    planned = make().batch(7)
    parts = [planned.part(rank, ranks, turn, turns) for turn in range(turns) for rank in range(ranks)]
    assert {len(part.rows) for part in parts} == {8 // (ranks * turns)}
    assert np.concatenate([part.rows for part in parts]).tolist() == planned.rows.tolist()
    assert np.concatenate([part.numbers for part in parts]).tolist() == planned.numbers.tolist()


def test_fewer_rows_than_a_batch_still_fill_every_batch() -> None:
    plan = Plan(seed=0, batch=7, weights=np.ones(3), buckets=np.zeros(3, int), shards=np.zeros(3, int))
    seen = np.concatenate([plan.batch(index).rows for index in range(30)])
    assert np.bincount(seen).tolist() == [70, 70, 70]


def test_small_buckets_merge_into_the_nearest_ratio() -> None:
    samples = {"1:1": 1000.0, "3:2": 400.0, "2:3": 90.0, "21:9": 3.0, "16:9": 20.0}
    merged = merged_buckets(samples, batch=25)
    # 21:9 → 16:9 (together 23 < 100) → 3:2; 2:3 has 90 < 100 → 1:1.
    assert merged == {"1:1": "1:1", "3:2": "3:2", "2:3": "1:1", "21:9": "3:2", "16:9": "3:2"}
    assert merged_buckets({"1:1": 1.0}, batch=64) == {"1:1": "1:1"}
    assert bucket_ratio("3:2") == 1.5


def test_weights_are_capped_and_none_is_an_error() -> None:
    assert fixed_point(np.array([0.5, 20.0]), cap=10.0).tolist() == [UNIT // 2, 10 * UNIT]
    with pytest.raises(ValueError, match="no row has a weight"):
        Plan(seed=0, batch=1, weights=np.zeros(3), buckets=[0, 0, 0], shards=[0, 0, 0])
