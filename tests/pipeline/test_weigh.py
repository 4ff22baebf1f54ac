"""Class weights against the published formulas."""

from __future__ import annotations

import io
from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from pipeline import topics
from pipeline.balance import balance, render
from pipeline.classes import check_head, first_named, most_probable
from pipeline.errors import RecipeError
from pipeline.weigh import WeighSettings, class_weights


@pytest.mark.parametrize(("n", "effective"), [(1, 1.0), (10, 9.955), (1000, 632.3), (100_000, 1000.0)])
def test_effective_number_of_samples_as_published(n: int, effective: float) -> None:
    # Cui et al. 2019, beta = 0.999: the weight is inversely proportional to E_n; a class of one row has E_1 = 1
    settings = WeighSettings(method="effective", beta=0.999, max_weight=1e9)
    weights = class_weights(Counter({"one": 1, "many": n}), settings)
    assert weights["one"] / weights["many"] == pytest.approx(effective, rel=1e-3)


def test_inverse_weights_give_every_class_the_same_share() -> None:
    counts = Counter({"a": 900, "b": 90, "c": 10})
    weights = class_weights(counts, WeighSettings(method="inverse", max_weight=1e9))
    shares = [counts[name] * weight for name, weight in weights.items()]
    assert shares == pytest.approx([1000 / 3] * 3)


@given(st.dictionaries(st.text(min_size=1, max_size=3), st.integers(1, 10_000), min_size=1, max_size=12),
       st.sampled_from(["inverse", "sqrt", "effective", "capped", "temperature", "none"]), st.floats(1, 50),
       st.floats(0, 1))
def test_mean_over_rows_is_one_and_no_weight_passes_a_bound(counts: dict[str, int], method: str, cap: float,
                                                            floor: float) -> None:
    settings = WeighSettings.model_validate({"method": method, "max_weight": cap, "min_weight": floor, "cap": 50})
    weights = class_weights(Counter(counts), settings)
    rows = sum(counts.values())
    mean = sum(counts[name] * weight for name, weight in weights.items()) / rows
    assert max(weights.values()) <= cap * (1 + 1e-9)
    assert min(weights.values()) >= floor * (1 - 1e-9)
    assert mean == pytest.approx(1, rel=1e-6)


@given(st.dictionaries(st.text(min_size=1, max_size=3), st.integers(1, 10_000), min_size=2, max_size=12),
       st.sampled_from(["inverse", "sqrt", "effective", "capped", "temperature"]))
def test_a_smaller_class_never_weighs_less(counts: dict[str, int], method: str) -> None:
    weights = class_weights(Counter(counts), WeighSettings.model_validate({"method": method}))
    ordered = sorted(counts, key=lambda name: counts[name])
    values = [weights[name] for name in ordered]
    assert all(a >= b - 1e-9 for a, b in pairwise(values))


def test_metaclip_balancing_counts_a_class_for_at_most_t_pictures() -> None:
    # Xu et al. 2023: p = min(1, t / count), t = 20,000 at web scale
    weights = class_weights(Counter({"rare": 500, "t": 20_000, "common": 80_000}),
                            WeighSettings(method="capped", cap=20_000, max_weight=1e9))
    assert weights["rare"] == pytest.approx(weights["t"])
    assert weights["common"] / weights["t"] == pytest.approx(0.25)


@pytest.mark.parametrize(("temperature", "shares"), [(1.0, [0.9, 0.1]), (2.0, [0.75, 0.25])])
def test_temperature_evens_the_shares(temperature: float, shares: list[float]) -> None:
    # shares ∝ n^(1/T): at T = 2 of 900 and 100 pictures 30 : 10
    counts = Counter({"a": 900, "b": 100})
    weights = class_weights(counts, WeighSettings(method="temperature", temperature=temperature))
    assert [weights[name] * counts[name] / 1000 for name in "ab"] == pytest.approx(shares)


def test_shares_given_by_hand_are_what_training_sees() -> None:
    counts = Counter({"a": 600, "b": 300, "c": 100})
    weights = class_weights(counts, WeighSettings(method="target", target={"a": 0.5, "c": 0.5}))
    assert {name: weights[name] * counts[name] / 1000 for name in counts} == pytest.approx({"a": 0.5, "b": 0, "c": 0.5})
    assert class_weights(counts, WeighSettings(method="target", target={"c": 1.0}, max_weight=4.0))["c"] == 4.0


def test_impossible_shares_are_refused() -> None:
    for target in ({"a": 0.5}, {"a": 1.5, "b": -0.5}):
        with pytest.raises(ValueError, match="share"):
            WeighSettings(method="target", target=target)
    with pytest.raises(RecipeError, match="'d'"):
        class_weights(Counter({"a": 1}), WeighSettings(method="target", target={"a": 0.5, "d": 0.5}))


def test_class_from_caption_words_takes_whole_words_in_order() -> None:
    names = ("star", "circle", "ring")
    assert first_named("A Circle, near a star.", names) == "circle"
    assert first_named("a string of stars", names) is None  # "ring" is inside "string"


def test_class_names_of_several_words_and_with_signs_are_found() -> None:
    names = ("bear", "teddy bear", "C++", "t-shirt")
    assert first_named("a Teddy  Bear on a bear rug", names) == "teddy bear"
    assert first_named("a bear with its teddy bear", names) == "bear"
    assert first_named("the C++ book", names) == "C++"
    assert first_named("a white t-shirt", names) == "t-shirt"
    assert first_named("teddy bears", names) is None
    with pytest.raises(ValueError):
        WeighSettings(classes="caption_words", names=(" ",))


SHARES = pa.array([[("a", 0.2), ("b", 0.75), ("kind/photo", 0.9), ("kind/map", 0.1)],
                   [("kind/map", 0.55), ("kind/photo", 0.45), ("b", 0.5), ("a", 0.5)],
                   None, [], [("a", float("nan"))], [("b", 1.0)]], pa.map_(pa.string(), pa.float32()))


@pytest.mark.parametrize(("head", "margin", "expected"), [
    ("", 0.0, ["b", "a", None, None, None, "b"]),
    ("", 0.25, ["b", None, None, None, None, "b"]),
    ("", 0.6, [None, None, None, None, None, "b"]),
    ("kind", 0.0, ["photo", "map", None, None, None, None]),
    ("kind", 0.2, ["photo", None, None, None, None, None]),
    ("other", 0.0, [None] * 6),
])
def test_class_from_zero_shot_is_the_most_probable_name_of_its_head(head: str, margin: float,
                                                                    expected: list[str | None]) -> None:
    assert most_probable(SHARES, head, margin).tolist() == expected
    chunked = pa.chunked_array([SHARES.slice(0, 2), SHARES.slice(2, 0), SHARES.slice(2, 4)])
    assert most_probable(chunked, head, margin).tolist() == expected
    assert most_probable(SHARES.slice(1), head, margin).tolist() == expected[1:]


def test_a_head_that_is_not_there_is_refused() -> None:
    settings = WeighSettings(classes="zero_shot", head="kind")
    check_head(settings, {"kind/photo": [], "kind/map": []})
    for names, hint in (({"a": [], "b": []}, '""'), ({"medium/a": []}, "medium"), ({}, "prompts")):
        with pytest.raises(RecipeError) as error:
            check_head(settings, names)
        assert hint in (error.value.hint or "")
    check_head(WeighSettings(), {})


def rows_of(classes: list[str | None], weights: dict[str | None, float], validation: int = 0) -> pa.Table:
    splits = ["validation" if number < validation else "train" for number in range(len(classes))]
    return pa.table({
        "kept": [True] * len(classes), "class": pa.array(classes, pa.string()), "split": splits,
        "class_weight": pa.array([weights.get(name) if name else None for name in classes], pa.float32()),
        "sample_weight": pa.array([weights.get(name, 1.0) if split == "train" else 0.0
                                   for name, split in zip(classes, splits, strict=True)], pa.float32())})


def test_the_balance_says_what_training_sees_and_how_much_of_it_is_different() -> None:
    # 8 of a at 0.5 and 2 of b at 3: together 10; Kish: 10² / (8 · 0.25 + 2 · 9) = 5
    made = balance(rows_of(["a"] * 9 + ["b"] * 2, {"a": 0.5, "b": 3.0}, validation=1))
    a, b = made.lines
    assert (a.name, a.rows, a.train, a.validation, a.weight, a.share) == ("a", 9, 8, 1, 0.5, 80.0)
    assert (a.trained, b.trained, a.effective, b.effective) == (40.0, 60.0, 4.0, 2.0)
    assert (made.train, made.effective) == (10, 5.0)
    assert balance(rows_of(["a"] * 3, {"a": 1.0}).slice(0, 0)).lines == ()


@pytest.mark.parametrize(("count", "weight", "warned"), [(99, 2.0, True), (100, 2.0, False), (99, 1.9, False)])
def test_a_class_too_small_for_its_weight_is_warned_of(count: int, weight: float, warned: bool) -> None:
    made = balance(rows_of(["big"] * 300 + ["small"] * count + [None] * 5, {"big": 0.5, "small": weight}))
    assert [line.name for line in made.memorised] == (["small"] if warned else [])
    assert ("small (99 × 2.0)" in (made.warning() or "")) == warned
    assert made.labelled == 2
    shown = io.StringIO()
    Console(file=shown, width=100).print(render(made))
    assert ("learnt by heart" in shown.getvalue()) == warned
    assert render(balance(rows_of([None] * 3, {}))) is None


def test_clusters_are_named_by_the_nearest_word_each_word_once() -> None:
    axes = np.eye(6, dtype=np.float32)
    offset = 3 * np.ones(6, np.float32)  # pictures and texts lie apart
    near = axes[:3] + offset
    centres = near / np.linalg.norm(near, axis=1, keepdims=True)
    words = np.stack([axes[2], axes[0], axes[1], axes[5]])
    assert topics.named(centres, ["c", "a", "b", "far"], words) == ["a", "b", "c"]
    gap = np.full((1, 6), np.nan, np.float32)
    assert topics.named(np.concatenate([centres[:1], gap, centres[1:]]), ["c", "a", "b"], words[:3]) == [
        "a", "", "b", "c"]
    names = topics.named(np.concatenate([centres, centres]), ["c", "a", "b"], words[:3])
    assert sorted(names) == ["a", "a 2", "b", "b 2", "c", "c 2"]
    assert [name[0] for name in names] == ["a", "b", "c"] * 2


def test_clusters_of_embeddings_are_classes() -> None:
    rng = np.random.default_rng(0)
    true = rng.integers(0, 3, 600)
    vectors = (np.eye(8)[true] + 0.1 * rng.standard_normal((600, 8))).astype(np.float16)
    numbers, centres = topics.clustered(vectors, np.arange(600), 3, seed=0)
    assert {len(set(numbers[true == each].tolist())) for each in range(3)} == {1}
    for each in range(3):
        mean = vectors[true == each].astype(np.float32).mean(0)
        assert np.allclose(centres[numbers[true == each][0]], mean / np.linalg.norm(mean), atol=1e-3)
