"""JPEG quality from tables and from traces, against files written by libjpeg at known qualities."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from pipeline.demo.scenes import draw, sample_scene
from pipeline.image import read_header
from pipeline.quantisation import table_quality, traced_quality


def jpeg(image: Image.Image, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", **options)
    return buffer.getvalue()


def reopened(image: Image.Image, form: str, quality: int) -> Image.Image:
    buffer = io.BytesIO()
    image.save(buffer, form, quality=quality)
    return Image.open(io.BytesIO(buffer.getvalue())).convert("RGB")


@pytest.fixture(scope="module")
def scene() -> Image.Image:
    return draw(replace(sample_scene(np.random.default_rng(12)), width=800, height=600))


@pytest.mark.parametrize("progressive", [False, True])
def test_every_quality_reads_back_exactly(progressive: bool) -> None:
    image = Image.new("RGB", (16, 16), (120, 40, 90))
    read = [table_quality(read_header(jpeg(image, quality=q, progressive=progressive)).quantisation)
            for q in range(1, 101)]
    assert read == list(range(1, 101))


def test_other_tables_get_the_nearest_coarseness() -> None:
    assert table_quality({0: (16,) * 64}) == pytest.approx(85, abs=5)
    flat = [table_quality({0: (step,) * 64}) for step in (1, 4, 16, 60, 255)]
    assert flat == sorted(flat, reverse=True)
    assert np.isnan(table_quality({}))
    assert np.isnan(table_quality({0: (1, 2, 3)}))


@pytest.mark.parametrize("quality", [5, 8, 12, 15, 20])
@pytest.mark.parametrize("again", ["PNG", "WEBP", "JPEG"])
def test_an_earlier_coarse_jpeg_is_traced(scene: Image.Image, quality: int, again: str) -> None:
    crushed = reopened(reopened(scene, "JPEG", quality), again, 95)
    traced, evidence = traced_quality(np.asarray(crushed.convert("L")))
    assert traced == quality
    assert evidence > 0.75


@pytest.mark.parametrize("quality", [60, 80, 95])
@pytest.mark.parametrize("form", ["PNG", "WEBP", "JPEG"])
def test_finely_saved_pictures_show_no_trace(scene: Image.Image, quality: int, form: str) -> None:
    assert traced_quality(np.asarray(reopened(scene, form, quality).convert("L")))[1] < 0.6


def test_off_the_grid_there_is_no_trace(scene: Image.Image) -> None:
    """A stated limit: the trace lies on the 8-pixel grid of the file, and a crop moves the grid."""
    crushed = np.asarray(reopened(scene, "JPEG", 10).convert("L"))
    assert traced_quality(crushed)[1] > 0.75
    assert traced_quality(crushed[3:, 5:])[1] < 0.5


@pytest.mark.parametrize("shape", [(8, 8), (7, 300), (16, 16), (64, 64)])
def test_pictures_with_nothing_to_see_have_no_trace(shape: tuple[int, int]) -> None:
    quality, evidence = traced_quality(np.full(shape, 77, np.uint8))
    assert np.isnan(quality)
    assert evidence == 0
