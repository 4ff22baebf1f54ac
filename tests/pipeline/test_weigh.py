"""Class weights against the published formulas."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import RecipeError
from pipeline.weigh import WeighSettings, class_of, class_weights


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
    settings = WeighSettings(classes="caption_words", names=("star", "circle", "ring"))
    row = {"label": None, "zero_shot": None}
    assert class_of({**row, "caption": "A Circle, near a star."}, settings) == "circle"
    assert class_of({**row, "caption": "a string of stars"}, settings) is None  # "ring" is inside "string"
    assert class_of({**row, "caption": None}, settings) is None


def test_class_names_of_several_words_and_with_signs_are_found() -> None:
    settings = WeighSettings(classes="caption_words", names=("bear", "teddy bear", "C++", "t-shirt"))
    row = {"label": None, "zero_shot": None}
    assert class_of({**row, "caption": "a Teddy  Bear on a bear rug"}, settings) == "teddy bear"
    assert class_of({**row, "caption": "a bear with its teddy bear"}, settings) == "bear"
    assert class_of({**row, "caption": "the C++ book"}, settings) == "C++"
    assert class_of({**row, "caption": "a white t-shirt"}, settings) == "t-shirt"
    assert class_of({**row, "caption": "teddy bears"}, settings) is None
    with pytest.raises(ValueError):
        WeighSettings(classes="caption_words", names=(" ",))


def test_class_from_zero_shot_is_the_most_probable_name() -> None:
    settings = WeighSettings(classes="zero_shot")
    assert class_of({"label": None, "caption": "", "zero_shot": [("a", 0.2), ("b", 0.7)]}, settings) == "b"
    assert class_of({"label": None, "caption": "", "zero_shot": None}, settings) is None
