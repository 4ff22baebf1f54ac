"""Caption choice, thresholds and the split, on rows written by hand."""

from __future__ import annotations

import types
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.checks.caption import Caption
from pipeline.errors import RecipeError
from pipeline.reasons import explain
from pipeline.schema import CAPTION, DEDUPE, FILTER, SCORE
from pipeline.select import SelectSettings, SelectStage, split_of

TYPES = {c.name: c.type for schema in (DEDUPE, FILTER, SCORE, CAPTION) for c in schema.columns}


def _select(rows: list[dict[str, Any]], model: str = "demo", check: str = "off", **settings: Any,
            ) -> list[dict[str, Any]]:
    blank = {"kept": True, "dropped_by": None, "reason": None, "value": None, "threshold": None, "failed": [],
             "pooled_captions": [], "pooled_origins": [], "caption_scores": [], "candidates": [], "zero_shot": None}
    full = [{"id": f"{i:032x}", "group": f"{i:032x}"} | blank | row for i, row in enumerate(rows)]
    for row in full:
        row["pooled_origins"] = row["pooled_origins"] or ["alt"] * len(row["pooled_captions"])
    names = SelectStage.reads
    columns = pa.table({name: pa.array([row[name] for row in full], TYPES[name]) for name in names})
    score = types.SimpleNamespace(model=model, zero_shot={"nsfw": [], "safe": []})
    recipe = types.SimpleNamespace(select=SelectSettings(**settings), score=score, seed=0,
                                   checks={"caption": Caption.Settings.model_validate({"action": check})})
    run: Any = types.SimpleNamespace(recipe=recipe)
    SelectStage().check(run)
    result = SelectStage().compute(run, columns)[""]
    return result.to_pylist()  # type: ignore[no-any-return]


def _words(*scored: tuple[str, float]) -> dict[str, Any]:
    return {"pooled_captions": [t for t, _ in scored], "caption_scores": [s for _, s in scored]}


def _written(*scored: tuple[str, float]) -> dict[str, Any]:
    return {"candidates": [{"captioner": "coca", "text": t, "score": s} for t, s in scored]}


def test_the_first_acceptable_original_wins_within_the_margin() -> None:
    [row] = _select([_words(("alt text", 0.30), ("figcaption", 0.33)) | _written(("new", 0.34))],
                    min_clip_score=0.2, original_margin=0.05)
    assert (row["caption"], row["caption_origin"], row["original_rejected"]) == ("alt text", "alt", None)
    assert [choice["text"] for choice in row["choices"]] == ["alt text", "figcaption", "new"]


def test_a_clearly_better_new_caption_replaces_the_original() -> None:
    [row] = _select([_words(("old", 0.30)) | _written(("new", 0.50))], min_clip_score=0.2, original_margin=0.05)
    assert (row["caption"], row["caption_origin"]) == ("new", "coca")


def test_a_caption_of_another_picture_is_rejected_and_replaced() -> None:
    [row] = _select([_words(("of another", 0.05)) | _written(("right", 0.4))], min_clip_score=0.2)
    assert (row["kept"], row["caption"], row["original_rejected"]) == (True, "right", "mismatch")


def test_without_an_acceptable_caption_the_row_says_value_and_threshold() -> None:
    [row] = _select([_words(("of another", 0.05)) | _written(("wrong too", 0.15))], min_clip_score=0.2)
    assert (row["kept"], row["dropped_by"], row["reason"]) == (False, "select", "low_clip_score")
    assert (row["value"], row["threshold"]) == (pytest.approx(0.15), pytest.approx(0.2))
    assert row["split"] is None


def test_file_names_are_not_used_as_captions() -> None:
    rows = _select([_words(("IMG_2231.jpg", 0.3)) | _written(("right", 0.4)),
                    _words(("IMG_2231.jpg", 0.3))], check="flag", min_clip_score=0.2)
    assert (rows[0]["caption"], rows[0]["original_rejected"]) == ("right", "weak")
    # its score of 0.3 reaches the threshold, but it is no caption: the reason must not say that 0.3 is too low
    assert (rows[1]["kept"], rows[1]["reason"], rows[1]["value"]) == (False, "no_caption", None)


@pytest.mark.parametrize("require", [True, False])
def test_a_picture_that_score_could_not_read_says_so(require: bool) -> None:
    [row] = _select([{"pooled_captions": ["a house"], "caption_scores": None}], require_caption=require)
    assert (row["kept"], row["dropped_by"], row["reason"]) == (False, "select", "bytes_lost")


@pytest.mark.parametrize("model", ["none", "demo"])
@pytest.mark.parametrize("order", [0, 1])
def test_each_caption_is_weak_or_good_for_itself(model: str, order: int) -> None:
    """A file name beside good words is never chosen, and does not spoil them."""
    texts = [("IMG_2231.jpg", 0.5), ("a red bicycle", 0.4)][:: 1 - 2 * order]
    [row] = _select([_words(*texts)], model=model, check="flag", min_clip_score=0.2)
    assert (row["kept"], row["caption"], row["original_rejected"]) == (True, "a red bicycle", None)
    assert [choice["text"] for choice in row["choices"]] == ["a red bicycle"]


def test_with_the_check_off_a_file_name_is_a_caption() -> None:
    [row] = _select([_words(("IMG_2231.jpg", 0.5))], check="off", min_clip_score=0.2)
    assert (row["kept"], row["caption"]) == (True, "IMG_2231.jpg")


def test_a_score_equal_to_the_threshold_passes_and_nan_does_not() -> None:
    rows = _select([_words(("a", 0.25)), _words(("b", float("nan")))], min_clip_score=0.25)
    assert [row["kept"] for row in rows] == [True, False]


def test_dropped_rows_keep_their_first_reason() -> None:
    [row] = _select([{"kept": False, "dropped_by": "filter", "reason": "blurry", "value": 1.0, "threshold": 2.0}])
    assert (row["dropped_by"], row["reason"], row["value"], row["split"]) == ("filter", "blurry", 1.0, None)


def test_without_a_model_originals_stay() -> None:
    rows = _select([{"pooled_captions": ["a house"], "caption_scores": None}, {"pooled_captions": []}], model="none")
    assert rows[0]["caption"] == "a house"
    assert (rows[1]["kept"], rows[1]["reason"]) == (False, "no_caption")


@pytest.mark.parametrize(("fraction", "kept"), [(0.5, [True, True, True, False]), (0.25, [True, False, False, False]),
                                                (1.0, [True] * 4)])
def test_top_fraction_keeps_all_ties_at_the_border(fraction: float, kept: list[bool]) -> None:
    rows = [_words((str(i), score)) for i, score in enumerate([0.9, 0.5, 0.5, 0.3])]
    assert [row["kept"] for row in _select(rows, min_clip_score=0.0, top_fraction=fraction)] == kept


def test_pictures_outside_a_zero_shot_bound_are_dropped_and_say_which() -> None:
    shares = [[("nsfw", share), ("safe", 1 - share)] for share in (0.75, 0.5, 0.125)]
    rows = [_words(("a house", 0.4)) | {"zero_shot": share} for share in (*shares, None)]
    rows.append({"kept": False, "dropped_by": "filter", "reason": "blurred", "zero_shot": shares[0]})
    found = _select(rows, zero_shot={"nsfw": {"max": 0.5}, "safe": {"min": 0.5, "max": 0.8}})
    assert [(row["reason"], row["value"], row["threshold"]) for row in found] == [
        ("zero_shot:nsfw", 0.75, 0.5), (None, None, None), ("zero_shot:safe", 0.875, 0.8), (None, None, None),
        ("blurred", None, None)]
    assert [row["split"] is None for row in found] == [True, False, True, False, True]
    assert explain("zero_shot:nsfw").stage == "select"
    with pytest.raises(RecipeError, match="'nfsw'"):
        _select(rows, zero_shot={"nfsw": {"max": 0.5}})
    with pytest.raises(ValueError, match="above"):
        SelectSettings(zero_shot={"nsfw": {"min": 0.9, "max": 0.5}})


@given(st.integers(0, 5), st.floats(0.01, 0.5))
def test_the_split_has_the_asked_share_and_depends_on_the_group_alone(seed: int, share: float) -> None:
    groups = [f"{i:032x}" for i in range(2000)]
    splits = [split_of([group], seed, share) for group in groups]
    held_out = splits.count("validation") / len(groups)
    assert abs(held_out - share) < 5 * (share * (1 - share) / len(groups)) ** 0.5
    larger = [split_of([group], seed, min(share * 1.5, 0.9)) for group in groups]
    # a row once in validation stays there when the share grows
    assert all(b == "validation" for a, b in zip(splits, larger, strict=True) if a == "validation")


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=6, unique=True),
       st.lists(st.integers(0, 10**6), max_size=6, unique=True), st.integers(0, 3))
def test_a_held_out_row_stays_held_out_however_its_group_grows(
        before: list[int], added: list[int], seed: int) -> None:
    def ids(numbers: list[int]) -> list[str]:
        return [f"{number:032x}" for number in numbers]

    if split_of(ids(before), seed, 0.3) == "validation":
        assert split_of(ids(before + added), seed, 0.3) == "validation"
    assert split_of(ids(before), seed, 0.3) == split_of(ids(before[::-1]), seed, 0.3)
