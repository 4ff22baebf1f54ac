"""Semantic duplicates: the election against its definition, clusters that are found again, rows through `select`."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pipeline import semantic
from pipeline.checks.caption import Caption
from pipeline.clusters import count_for, halves, nearest
from pipeline.errors import RecipeError
from pipeline.schema import CAPTION, DEDUPE, FILTER, MEASURE, SCORE, embedding_type
from pipeline.score import packed
from pipeline.select import SelectSettings, SelectStage
from pipeline.semantic import cosines, elect, evenly

TYPES = {c.name: c.type for schema in (MEASURE, DEDUPE, FILTER, SCORE, CAPTION) for c in schema.columns}


def _unit(rows: Any) -> NDArray[np.float32]:
    values = np.asarray(rows, np.float32)
    made: NDArray[np.float32] = values / np.linalg.norm(values, axis=1, keepdims=True)
    return made


def _groups(count: int, groups: int, seed: int, width: int = 16, spread: float = 0.3) -> NDArray[np.float16]:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(groups, width))
    rows = centres[rng.integers(0, groups, count)] + spread * rng.normal(size=(count, width))
    return _unit(rows).astype(np.float16)


def _by_definition(vectors: NDArray[np.float16], order: NDArray[np.int64], clusters: NDArray[np.int32],
                   limit: float) -> list[int]:
    """From best to worst: dropped for the best staying row near it in a cluster that it looks at."""
    rows = _unit(vectors.astype(np.float32))
    stays: list[int] = []
    keeper = []
    for place, row in enumerate(order.tolist()):
        near = [other for other in stays if clusters[other, 0] in clusters[place]
                and float(rows[row] @ rows[order[other]]) >= limit + 2e-6]
        keeper.append(int(order[near[0]]) if near else row)
        if not near:
            stays.append(place)
    return keeper


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 90), st.integers(1, 12), st.integers(1, 6), st.integers(1, 3), st.floats(0.5, 0.99),
       st.integers(0, 10**6))
def test_the_election_is_its_definition_whatever_the_blocks(
        count: int, groups: int, k: int, probes: int, limit: float, seed: int) -> None:
    vectors = _groups(count, groups, seed)
    order = np.random.default_rng(seed).permutation(count)
    clusters, _ = nearest(vectors, order, min(k, count), seed, probes)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("_FIRST", 3), ("_LARGEST", 17), ("_TILE", 5)):
            patch.setattr(semantic, name, value)
        keeper = elect(vectors, order, clusters, limit)
    assert keeper.tolist() == _by_definition(vectors, order, clusters, limit)
    moved = keeper != order
    assert (cosines(vectors, order[moved], keeper[moved]) >= limit).all()


def test_equal_vectors_leave_the_best_one_alone() -> None:
    vectors = np.repeat(_groups(1, 1, 0), 700, axis=0)
    order = np.arange(700)[::-1].copy()
    assert set(elect(vectors, order, np.zeros((700, 1), np.int32), 0.99).tolist()) == {699}


def test_clusters_are_found_again_and_part_what_is_apart() -> None:
    vectors = _groups(400, 4, 7, spread=0.02)
    rows = np.arange(400)
    first, cosine = nearest(vectors, rows, 4, 3, 2)
    again, _ = nearest(vectors, rows, 4, 3, 2)
    assert (first == again).all()
    assert (np.diff(cosine, axis=1) <= 0).all()
    rest = vectors.astype(np.float32) @ vectors.astype(np.float32).T
    same = first[:, 0][:, None] == first[:, 0][None]
    assert rest[same].min() > rest[~same].max()


def test_more_probes_find_more_of_the_pairs_across_borders() -> None:
    vectors = _groups(600, 300, 5, width=8, spread=0.12)
    rows = np.arange(600)
    whole = elect(vectors, rows, np.zeros((600, 1), np.int32), 0.95) != rows
    found = []
    for probes in (1, 4, 20):
        clusters, _ = nearest(vectors, rows, 20, 0, probes)
        found.append(int((elect(vectors, rows, clusters, 0.95) != rows).sum()))
    assert found[0] < found[1] <= found[2] == int(whole.sum())


def test_the_number_of_clusters_follows_from_the_rows() -> None:
    assert [count_for(n, 0) for n in (0, 1, 10_000, 1_000_000)] == [1, 1, 1, 1000]
    assert count_for(100, 0, whole=False) == 10
    assert count_for(5, 8) == 5


def test_embeddings_are_read_from_chunks_with_gaps() -> None:
    vectors = _groups(9, 3, 1).astype(np.float32)
    vectors[4] = np.nan
    column = packed(vectors)
    chunked = pa.chunked_array([column.slice(0, 3), column.slice(3, 0), column.slice(3, 6)])
    read, there = halves(chunked)
    assert there.tolist() == [n != 4 for n in range(9)]
    assert (read[there] == vectors.astype(np.float16)[there]).all()


def test_an_even_choice_spans_core_and_fringe() -> None:
    assert evenly(np.array([0.1, 0.9, 0.5, 0.7], np.float32), 2).tolist() == [1, 2]


def _select(rows: list[dict[str, Any]], vectors: Any, model: str = "demo", **semantic_settings: Any,
            ) -> list[dict[str, Any]]:
    full = [dict.fromkeys(TYPES) | {
        "id": f"{i:032x}", "group": f"{i:032x}", "kept": True, "pooled_captions": [f"words {i}"],
        "pooled_origins": ["alt"], "caption_scores": [0.3], "candidates": [], "width": 10, "height": 10} | row
        for i, row in enumerate(rows)]
    columns = {name: pa.array([row[name] for row in full], TYPES[name])
               for name in (*SelectStage.reads, "width", "height")}
    packed_vectors = packed(np.asarray(vectors, np.float32))
    recipe = types.SimpleNamespace(
        select=SelectSettings.model_validate({"semantic": semantic_settings}), seed=0,
        score=types.SimpleNamespace(model=model, zero_shot={}),
        checks={"caption": Caption.Settings.model_validate({"action": "off"})})
    stage = SelectStage()
    stage.cached = lambda run, table: None  # type: ignore[method-assign]
    run: Any = types.SimpleNamespace(recipe=recipe)
    stage.check(run)
    return stage.compute(run, pa.table({**columns, "embedding": packed_vectors}))[""].to_pylist()  # type: ignore


A, NEAR_A, B = (1.0, 0.0), (0.995, 0.0999), (0.0, 1.0)


def test_the_better_caption_stays_then_more_pixels_then_the_smaller_id() -> None:
    for better in ({"caption_scores": [0.4]}, {"width": 11}):
        rows = _select([{}, better, {}], [A, NEAR_A, B], max_similarity=0.99)
        assert [row["kept"] for row in rows] == [False, True, True]
        assert (rows[0]["reason"], rows[0]["similar_to"], rows[0]["split"]) == (
            "semantic_duplicate", rows[1]["id"], None)
        assert rows[0]["value"] == pytest.approx(0.995, abs=1e-3)
        assert rows[0]["threshold"] == 0.99
    assert [row["kept"] for row in _select([{}, {}], [A, NEAR_A], max_similarity=0.99)] == [True, False]


def test_rows_that_are_out_take_no_part_and_rows_without_a_vector_stay() -> None:
    out = {"kept": False, "dropped_by": "filter", "reason": "blurry"}
    nothing = (np.nan, np.nan)
    rows = _select([out, {"caption_scores": [0.1]}, {}, {}], [A, A, NEAR_A, nothing], max_similarity=0.9)
    assert [row["kept"] for row in rows] == [False, False, True, True]
    assert [row["reason"] for row in rows] == ["blurry", "low_clip_score", None, None]
    assert [row["kept"] for row in _select([{}], [nothing], max_similarity=0.9)] == [True]


def test_a_cluster_keeps_at_most_so_many() -> None:
    angles = np.linspace(0, 0.5, 10)
    rows = _select([{}] * 10, np.stack([np.cos(angles), np.sin(angles)], 1), clusters=1, per_cluster=4)
    full = [row for row in rows if row["reason"] == "cluster_full"]
    assert len(full) == 6
    assert {(row["value"], row["threshold"]) for row in full} == {(10.0, 4.0)}


def test_without_a_model_nothing_can_look_alike() -> None:
    with pytest.raises(RecipeError, match=r"select\.semantic"):
        _select([{}], [A], model="none", max_similarity=0.9)


def test_it_is_off_unless_asked_for() -> None:
    assert [row["kept"] for row in _select([{}, {}], [A, A])] == [True, True]
    assert embedding_type(2) == packed(np.ones((1, 2), np.float32)).type
