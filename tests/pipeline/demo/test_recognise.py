"""The recogniser, judged on scenes whose truth is known, and its colour arithmetic on published values."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageFilter

from pipeline.demo.palette import BACKGROUND_KINDS, BACKGROUNDS, COLOURS, Scene
from pipeline.demo.recognise import largest_component, nearest_hue, recognise, to_lab
from pipeline.demo.scenes import draw, draw_square, sample_scene


def single_scenes(count: int, seed: int) -> list[Scene]:
    rng = np.random.default_rng(seed)
    found: list[Scene] = []
    while len(found) < count:
        scene = sample_scene(rng)
        if len(scene.shapes) == 1:
            found.append(scene)
    return found


@pytest.mark.parametrize(
    ("rgb", "lab"),
    [  # sRGB primaries and white in CIELAB D65, as tabulated by Lindbloom
        ((255, 0, 0), (53.24, 80.09, 67.20)),
        ((0, 255, 0), (87.73, -86.18, 83.18)),
        ((0, 0, 255), (32.30, 79.19, -107.86)),
        ((255, 255, 255), (100.0, 0.0, 0.0)),
        ((0, 0, 0), (0.0, 0.0, 0.0)),
    ],
)
def test_lab_agrees_with_published_values(rgb: tuple[int, int, int], lab: tuple[float, float, float]) -> None:
    assert to_lab(np.array(rgb, np.uint8)) == pytest.approx(np.array(lab), abs=0.05)


def test_each_palette_colour_is_its_own_nearest_hue_even_dimmed() -> None:
    for name, rgb in COLOURS.items():
        for dimming in (1.0, 0.6):
            _, a, b = to_lab((np.array(rgb) * dimming).astype(np.uint8))
            assert nearest_hue(a, b) == name


def rate(scenes: list[Scene], pictures: list[np.ndarray]) -> tuple[float, float, float]:
    """Shares of right colour, shape and size."""
    right = []
    for scene, picture in zip(scenes, pictures, strict=True):
        found, truth = recognise(picture), scene.shapes[0]
        if found is None:
            right.append((False, False, False))
        else:
            right.append((found.colour == truth.colour, found.shape == truth.kind, found.size == truth.size))
    colour, shape, size = np.mean(right, axis=0)
    return float(colour), float(shape), float(size)


def test_clean_64_px_pictures_on_every_background() -> None:
    scenes = single_scenes(320, 11)
    assert {(s.background, s.background_kind) for s in scenes} >= {(b, "plain") for b in BACKGROUNDS}
    assert {s.background_kind for s in scenes} == set(BACKGROUND_KINDS)
    assert min(rate(scenes, [draw_square(s, 64) for s in scenes])) >= 0.99


def test_blurred_and_noisy_64_px_pictures() -> None:
    scenes = single_scenes(120, 12)
    rng = np.random.default_rng(0)
    pictures = []
    for scene in scenes:
        smooth = Image.fromarray(draw_square(scene, 64)).filter(ImageFilter.GaussianBlur(1.5))
        noisy = np.asarray(smooth, float) + rng.normal(0, 8, (64, 64, 3))
        pictures.append(np.clip(noisy, 0, 255).astype(np.uint8))
    assert min(rate(scenes, pictures)) >= 0.97


def test_full_size_pictures_and_geometry() -> None:
    for scene in single_scenes(25, 13):
        found, truth = recognise(np.asarray(draw(scene))), scene.shapes[0]
        assert found is not None
        assert (found.colour, found.shape, found.background) == (truth.colour, truth.kind, scene.background)
        assert found.x == pytest.approx(truth.x, abs=0.02)
        assert found.y == pytest.approx(truth.y, abs=0.02)
        assert found.radius == pytest.approx(truth.radius, rel=0.08)


def test_nothing_is_seen_where_nothing_is() -> None:
    assert recognise(np.full((64, 64, 3), 128, np.uint8)) is None
    grain = np.random.default_rng(0).normal(128, 4, (64, 64, 1)).repeat(3, axis=2)
    assert recognise(grain.astype(np.uint8)) is None


def test_largest_component_by_flood_of_a_known_pattern() -> None:
    spiral = np.array(
        [
            [1, 1, 1, 1, 1, 0, 1],
            [0, 0, 0, 0, 1, 0, 0],
            [1, 1, 1, 0, 1, 0, 1],
            [1, 0, 0, 0, 1, 0, 1],
            [1, 1, 1, 1, 1, 0, 1],
        ],
        bool,
    )
    expected = spiral.copy()
    expected[:, 6] = False
    assert np.array_equal(largest_component(spiral), expected)
    assert not largest_component(np.zeros((4, 4), bool)).any()
