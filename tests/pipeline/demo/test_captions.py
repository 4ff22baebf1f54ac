"""Captions: always true, readable back into exactly what they state."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.demo.captions import VOCABULARY, caption, caption_attributes, full_caption, is_true
from pipeline.demo.palette import Scene, Shape
from pipeline.demo.plan import falsehood
from pipeline.demo.scenes import sample_scene

RED_CIRCLE = Shape("circle", "red", "small", "left", 0.24, 0.5, 0.15, 0.0)
BLUE_STAR = Shape("star", "blue", "medium", "bottom right", 0.7, 0.7, 0.22, 0.0)
ONE = Scene((RED_CIRCLE,), "textured", "grey", False, False, 512, 512, 1)
TWO = Scene((RED_CIRCLE, BLUE_STAR), "plain", "navy", True, False, 512, 512, 1)


def test_full_captions_read_as_a_person_would_write_them() -> None:
    assert full_caption(ONE) == "a small red circle at the left on a textured grey background"
    assert full_caption(TWO) == (
        "a small red circle at the left and a medium blue star at the bottom right on a plain navy background at night"
    )


def test_parser_reads_what_is_stated() -> None:
    stated = caption_attributes("A photo of a BIG orange ring in the top left corner, on a soft mint background.")
    assert stated["mentions"] == ({"shape": "ring", "colour": "orange", "size": "large", "position": "top left"},)
    assert (stated["colours"], stated["shapes"], stated["sizes"]) == (("orange",), ("ring",), ("large",))
    assert (stated["background"], stated["background_kind"], stated["night"]) == ("mint", "soft", False)


def test_parser_keeps_two_shapes_apart() -> None:
    stated = caption_attributes("two shapes: a little red circle at the left and a star in the middle at night")
    assert stated["mentions"] == (
        {"shape": "circle", "colour": "red", "size": "small", "position": "left"},
        {"shape": "star", "colour": None, "size": None, "position": "centre"},
    )
    assert stated["night"]


@pytest.mark.parametrize("text", ["", "IMG_2231.jpg", "untitled", "home page 12"])
def test_text_that_states_nothing_is_not_false(text: str) -> None:
    assert caption_attributes(text)["mentions"] == ()
    assert is_true(text, ONE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a red circle", True),
        ("a circle on grey", True),
        ("a small circle at the left", True),
        ("a blue circle", False),
        ("a red square", False),
        ("a large red circle", False),
        ("a red circle at the right", False),
        ("a red circle on a white background", False),
        ("a red circle on a striped grey background", False),
        ("a red circle at night", False),
        ("a red circle and a blue star", False),
        ("red", True),
        ("green", False),
    ],
)
def test_truth_is_decided_attribute_by_attribute(text: str, expected: bool) -> None:
    assert is_true(text, ONE) is expected


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("a red circle", 0.0),
        ("a blue circle", 0.5),
        ("a red heart", 0.5),
        ("a green heart", 1.0),
        ("a red circle and a green heart", 0.5),
        ("nothing", 0.0),
    ],
)
def test_falsehood_is_the_share_of_wrong_colours_and_shapes(text: str, share: float) -> None:
    assert falsehood(text, ONE) == share


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=200)
def test_captions_are_true_and_name_every_colour_and_shape(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scene = sample_scene(rng)
    for text in (caption(scene, rng), full_caption(scene)):
        assert is_true(text, scene)
        stated = caption_attributes(text)
        assert [(m["colour"], m["shape"]) for m in stated["mentions"]] == [(s.colour, s.kind) for s in scene.shapes]
        assert set(re.findall("[a-z]+", text.lower())) <= set(VOCABULARY)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
@settings(max_examples=100)
def test_a_full_caption_is_true_of_another_scene_only_if_all_it_states_agrees(one: int, two: int) -> None:
    first, second = (sample_scene(np.random.default_rng(seed)) for seed in (one, two))

    def named(scene: Scene) -> tuple[object, ...]:
        shapes = frozenset((s.kind, s.colour, s.size, s.position) for s in scene.shapes)
        return shapes, scene.background, scene.background_kind

    if is_true(full_caption(first), second) and len(first.shapes) == len(second.shapes):
        assert named(first) == named(second)
    if named(first) == named(second) and first.night == second.night:
        assert is_true(full_caption(first), second)


def test_phrasings_are_many() -> None:
    rng = np.random.default_rng(0)
    assert len({caption(TWO, rng) for _ in range(300)}) > 150
