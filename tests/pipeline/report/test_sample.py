"""The sample is the same every time, fair, and read row for row from the right parts."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare, kstest

from pipeline.report.sample import RunRows, nearest, pick, ranks
from tests.pipeline.made_up import PART_ROWS, MadeUpRun

IDS = pa.chunked_array([[hashlib.blake2b(str(n).encode(), digest_size=16).hexdigest() for n in range(4000)]])


def test_ranks_follow_from_id_and_seed_alone() -> None:
    whole = ranks(IDS, 3)
    assert np.array_equal(ranks(IDS.slice(1000, 50), 3), whole[1000:1050])
    assert not np.array_equal(ranks(IDS, 4), whole)
    assert ranks(pa.chunked_array([["not a hash", "nor this"]]), 3).shape == (2,)


def test_ranks_are_uniform_and_free_of_the_ids_order() -> None:
    order = ranks(IDS, 0)
    assert kstest(order / 2**64, "uniform").pvalue > 0.001
    by_id = np.argsort(IDS.to_pylist())  # duplicates' keepers have small ids more often than not
    chosen = np.isin(by_id, pick(np.ones(4000, bool), order, 800))
    assert chisquare(chosen.reshape(10, 400).sum(1)).pvalue > 0.001


@given(mask=st.lists(st.booleans(), max_size=80), count=st.integers(0, 30), seed=st.integers(0, 5))
def test_pick_takes_the_lowest_ranks(mask: list[bool], count: int, seed: int) -> None:
    order = ranks(IDS.slice(0, len(mask)), seed)
    chosen = pick(np.array(mask, bool), order, count)
    wanted = sorted((index for index, inside in enumerate(mask) if inside), key=lambda index: order[index])
    assert chosen.tolist() == wanted[:count]


def test_a_larger_sample_begins_with_the_smaller_one() -> None:
    order, mask = ranks(IDS, 0), np.ones(4000, bool)
    assert pick(mask, order, 100)[:24].tolist() == pick(mask, order, 24).tolist()


def test_nearest_sorts_by_distance_and_leaves_out_what_is_unknown() -> None:
    distance = np.array([3.0, np.nan, 1.0, 2.0, 0.5])
    mask = np.array([True, True, True, True, False])
    assert nearest(mask, distance, np.arange(5).astype(np.uint64), 2).tolist() == [2, 3]


def test_rows_come_from_their_parts(made_up_run: MadeUpRun) -> None:
    rows = RunRows(made_up_run.manifests)
    wanted = [0, PART_ROWS - 1, PART_ROWS, len(made_up_run.rows) - 1, 0]
    found = rows.rows(wanted, ["id", "width", "no_such_column"])
    assert sorted(found) == sorted(set(wanted))
    for index, row in found.items():
        assert row["id"] == made_up_run.rows[index]["id"]
        assert row["width"] == made_up_run.rows[index].get("width")
        assert row["no_such_column"] is None


def test_masks_tell_pictures_and_copies(made_up_run: MadeUpRun) -> None:
    rows = RunRows(made_up_run.manifests)
    assert rows.decoded.tolist() == [row["decode_outcome"] == "ok" for row in made_up_run.rows]
    assert rows.copies.tolist() == ["duplicate_of" in row for row in made_up_run.rows]
