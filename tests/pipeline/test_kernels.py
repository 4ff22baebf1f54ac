"""The compiled loops give what the plain ones give, to the last bit, on any picture."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import pipeline.kernels
from pipeline import checks, edges, measure, picture, quantisation, resample, spectrum, tiles
from pipeline.demo.scenes import draw, sample_scene
from pipeline.image import Header, Picture
from pipeline.kernels import compiled, plain

SIZES = st.tuples(st.integers(1, 150), st.integers(1, 150))


def _pixels(seed: int, height: int, width: int) -> np.ndarray:
    """Noise on a ramp, with black and white parts."""
    rng = np.random.default_rng(seed)
    ramp = np.linspace(-60, 320, width)[None, :, None] + rng.normal(0, 20, (height, width, 3))
    return ramp.clip(0, 255).astype(np.uint8)


def _same(one: Any, other: Any) -> None:
    one, other = (each if isinstance(each, tuple) else (each,) for each in (one, other))
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)
        assert np.asarray(a).dtype == np.asarray(b).dtype


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), size=SIZES, cell=st.tuples(st.integers(1, 40), st.integers(1, 40)))
def test_a_picture_is_surveyed_alike(seed: int, size: tuple[int, int], cell: tuple[int, int]) -> None:
    rgb = _pixels(seed, *size)
    _same(compiled.surveyed(rgb, *cell), plain.surveyed(rgb, *cell))


def test_averages_of_tall_cells_do_not_overflow() -> None:
    rgb = np.full((600, 3, 3), 255, np.uint8)
    _same(compiled.surveyed(rgb, 3, 600), plain.surveyed(rgb, 3, 600))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), size=SIZES)
def test_planes_are_looked_at_alike(seed: int, size: tuple[int, int]) -> None:
    levels = np.ascontiguousarray(_pixels(seed, *size)[..., 0])
    for one in (compiled, plain):
        assert one.histogram(levels).sum() == levels.size
    _same(compiled.histogram(levels[::3]), plain.histogram(levels[::3]))
    _same(compiled.turned(levels), plain.turned(levels))
    for plane in (levels, levels.astype(np.uint16) * 4):
        _same(compiled.extremes(plane), plain.extremes(plane))
        _same(compiled.doubled(*compiled.extremes(plane)), plain.doubled(*plain.extremes(plane)))
        _same(compiled.steepest(plane), plain.steepest(plane))
    for count in (1, 7, levels.size, levels.size + 1):
        _same(compiled.largest(levels.ravel(), count), plain.largest(levels.ravel(), count))
    for lines in (levels, levels[::-1], levels.T, levels.T[::-1]):
        assert compiled.plain_lines(lines, 60, 9) == plain.plain_lines(lines, 60, 9)
    for side in (8, 16):
        which = np.random.default_rng(seed).permutation((size[0] // side) * (size[1] // side))
        if len(which):
            window = np.hanning(side).astype(np.float32)[:, None] * np.hanning(side).astype(np.float32)
            _same(compiled.tiles(levels, which, side), plain.tiles(levels, which, side))
            _same(compiled.windowed(levels, which, window), plain.windowed(levels, which, window))
            _same(compiled.diagonal_detail(levels, which, side, 20), plain.diagonal_detail(levels, which, side, 20))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), size=SIZES, wanted=SIZES)
def test_planes_are_resampled_alike_and_as_pillow_does(seed: int, size: tuple[int, int], wanted: tuple[int, int],
                                                       ) -> None:
    levels = np.ascontiguousarray(_pixels(seed, *size)[..., 0])
    pillow = Image.fromarray(levels).resize(wanted[::-1], Image.Resampling.LANCZOS)
    np.testing.assert_array_equal(resample.lanczos(levels, wanted[1], wanted[0]), pillow)
    smaller = min(wanted[0], size[0])
    weights = resample._mean_weights(size[0], smaller)
    assert (weights[1].sum(axis=1) == 256).all()
    _same(compiled.means_down(levels, *weights), plain.means_down(levels, *weights))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), blocks=st.integers(1, 1500), spread=st.floats(0.1, 800))
def test_coefficients_are_held_against_the_grid_alike(seed: int, blocks: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    coefficients = rng.normal(0, spread, (14, blocks)).astype(np.float32)
    _same(compiled.on_the_grid(coefficients, quantisation._low_steps()),
          plain.on_the_grid(coefficients, quantisation._low_steps()))
    words = rng.integers(0, 3, (blocks, 8)).astype(np.uint64)
    _same(compiled.marks(words), plain.marks(words))
    assert len(np.unique(compiled.marks(words))) == len(np.unique(words, axis=0))


@pytest.mark.parametrize("size", [(33, 20), (300, 200), (1200, 900), (40, 1400)])
def test_a_row_is_the_same_with_and_without_numba(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    image = draw(sample_scene(np.random.default_rng(sum(size)))).resize(size)

    def row() -> dict[str, object]:
        made = Picture(np.asarray(image), Header("PNG", "RGB", *size))
        return {**measure._facts(made), **measure._numbers(made)}

    compiled_row = row()
    asked = []
    for module in (picture, resample, tiles, edges, spectrum, quantisation, *map(_module, checks.registry().values())):
        if hasattr(module, "kernels"):
            monkeypatch.setattr(module, "kernels", lambda: asked.append(1) or plain)
    assert row() == compiled_row
    assert asked


def _module(check: object) -> Any:
    return sys.modules[type(check).__module__]


def test_without_numba_the_plain_loops_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pipeline.kernels.kernels() is compiled
    monkeypatch.setitem(sys.modules, "pipeline.kernels.compiled", None)
    monkeypatch.delattr(pipeline.kernels, "compiled")
    assert pipeline.kernels.kernels.__wrapped__() is plain
