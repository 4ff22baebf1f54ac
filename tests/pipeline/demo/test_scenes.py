"""Scenes: geometry, exclusion, balance, and pixels that lie where the geometry says."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from pipeline.demo.drawing import RING_HOLE, outline, render
from pipeline.demo.palette import BACKGROUNDS, CLASS_WEIGHTS, COLOURS, NIGHT_BACKGROUNDS, POSITIONS, SHAPES, WITHHELD
from pipeline.demo.recognise import to_lab
from pipeline.demo.scenes import VOCABULARY, Scene, draw, draw_square, sample_scene, shape_mask

seeds = st.integers(0, 2**32 - 1)


def scenes(count: int, seed: int = 0, **options: object) -> list[Scene]:
    rng = np.random.default_rng(seed)
    return [sample_scene(rng, **options) for _ in range(count)]  # type: ignore[arg-type]


@given(seeds)
@settings(max_examples=80)
def test_shapes_lie_wholly_in_the_central_square_and_never_touch(seed: int) -> None:
    (scene,) = scenes(1, seed)
    assert min(scene.width, scene.height) >= 256
    assert max(scene.width, scene.height) <= 900
    for shape in scene.shapes:
        assert shape.x - shape.radius >= 0
        assert shape.x + shape.radius <= 1
        assert shape.y - shape.radius >= 0
        assert shape.y + shape.radius <= 1
    if len(scene.shapes) == 2:
        one, two = scene.shapes
        assert np.hypot(one.x - two.x, one.y - two.y) > one.radius + two.radius
        assert one.kind != two.kind
        assert one.colour != two.colour


@given(seeds)
@settings(max_examples=60)
def test_the_named_position_is_where_the_centre_lies(seed: int) -> None:
    (scene,) = scenes(1, seed)
    for shape in scene.shapes:
        right, down = POSITIONS[shape.position]
        assert np.sign(round((shape.x - 0.5) / 0.05, 0)) == right
        assert np.sign(round((shape.y - 0.5) / 0.05, 0)) == down


def test_excluded_pairs_never_come_and_everything_else_does() -> None:
    seen = {(s.colour, s.kind) for scene in scenes(4000, exclude=WITHHELD) for s in scene.shapes}
    assert seen == {(c, k) for c in COLOURS for k in SHAPES} - WITHHELD
    assert {colour for colour, _ in seen} == set(COLOURS)
    assert {kind for _, kind in seen} == set(SHAPES)


def test_excluding_all_colours_of_a_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="circle"):
        scenes(1, class_weights={"circle": 1.0}, exclude={(colour, "circle") for colour in COLOURS})


def test_classes_come_as_often_as_their_weights() -> None:
    kinds = [scene.shapes[0].kind for scene in scenes(4000, class_weights=CLASS_WEIGHTS)]
    for kind, share in CLASS_WEIGHTS.items():
        # five standard deviations of a binomial
        assert abs(kinds.count(kind) / 4000 - share) < 5 * np.sqrt(share * (1 - share) / 4000)


def test_every_colour_stands_out_from_every_background() -> None:
    """CIE 1976 colour difference; 2.3 is just noticeable, we want ten times that even at night."""
    for dimming, names in ((1.0, list(BACKGROUNDS)), (0.68, list(NIGHT_BACKGROUNDS))):
        colours = to_lab((np.array(list(COLOURS.values())) * dimming).astype(np.uint8))
        grounds = to_lab((np.array([BACKGROUNDS[n] for n in names]) * (0.8 if dimming < 1 else 1)).astype(np.uint8))
        assert np.sqrt(((colours[:, None] - grounds[None]) ** 2).sum(-1)).min() > 25


def test_shapes_show_in_black_and_white_too() -> None:
    for scene in scenes(150, 4):
        grey = Image.fromarray(draw_square(scene, 96)).convert("L")
        corners = np.asarray(grey, float)[[0, 0, -1, -1], [0, -1, 0, -1]]
        for shape in scene.shapes:
            mask = np.asarray(shape_mask(shape.kind, 96, shape.x * 96, shape.y * 96, shape.radius * 96, shape.rotation))
            inside = np.median(np.asarray(grey, float)[mask == 255])
            rim = np.median(np.asarray(grey, float)[mask == 0])
            assert max(abs(inside - rim), np.abs(inside - corners).min()) > 8


def test_colour_hues_are_far_apart() -> None:
    lab = to_lab(np.array(list(COLOURS.values()), np.uint8))
    hues = np.sort(np.degrees(np.arctan2(lab[:, 2], lab[:, 1])) % 360)
    assert np.diff(np.append(hues, hues[0] + 360)).min() > 20


def test_same_scene_same_pixels_and_seed_decides_texture() -> None:
    for scene in scenes(5):
        assert np.array_equal(np.asarray(draw(scene)), np.asarray(draw(scene)))
        assert draw(scene).size == (scene.width, scene.height)
        assert draw_square(scene, 64).shape == (64, 64, 3)
        assert draw_square(scene, 64).dtype == np.uint8


def test_the_square_shows_what_the_centre_of_the_picture_shows() -> None:
    for scene in scenes(25, 3):
        picture = draw(scene)
        side = min(picture.size)
        left, top = (picture.width - side) / 2, (picture.height - side) / 2
        crop = picture.resize((64, 64), Image.Resampling.BOX, (left, top, left + side, top + side))
        difference = np.abs(np.asarray(crop, float) - draw_square(scene, 64)).mean()
        assert difference < 9  # textures differ, content does not


POLYGON_AREA = {  # by the shoelace formula on corners written down from the definition of each shape
    "square": 2.0,
    "triangle": 3 * np.sqrt(3) / 4,
    "diamond": 2 * 0.64,
    "circle": np.pi,
    "ring": np.pi * (1 - RING_HOLE**2),
    "cross": 4 * 2 * 0.3 * np.sqrt(1 - 0.3**2) - 4 * 0.3**2,
    "star": 10 * 0.5 * 0.45 * np.sin(np.pi / 5),
}


@pytest.mark.parametrize("kind", POLYGON_AREA)
def test_masks_cover_the_area_of_their_shape(kind: str) -> None:
    mask = np.asarray(shape_mask(kind, 200, 100, 100, 80, 7.0), float) / 255
    assert mask.sum() == pytest.approx(POLYGON_AREA[kind] * 80**2, rel=0.012)
    rows, columns = np.mgrid[0:200, 0:200] + 0.5
    if kind not in ("triangle", "star"):
        assert (mask * columns).sum() / mask.sum() == pytest.approx(100, abs=0.3)
        assert (mask * rows).sum() / mask.sum() == pytest.approx(100, abs=0.3)


@pytest.mark.parametrize("kind", SHAPES)
def test_outlines_reach_the_unit_circle_and_no_further(kind: str) -> None:
    assert np.hypot(*outline(kind).T).max() == pytest.approx(1.0)


def test_unknown_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="blob"):
        outline("blob")


def test_night_is_darker_than_day() -> None:
    for scene in scenes(60, 9):
        if scene.night:
            assert render(scene, 96, 96).mean() < 110


def test_vocabulary_is_plain_words() -> None:
    assert all(re.fullmatch(r"[a-z]+", word) for word in VOCABULARY)


def test_drawing_is_quick() -> None:
    chosen = scenes(30, 1)
    draw_square(chosen[0], 64)
    start = time.process_time()
    for scene in chosen:
        draw_square(scene, 64)
    assert (time.process_time() - start) / 30 < 0.006  # four times what it takes on one quiet core
