"""Drawings of few lines and few colours must not be taken for crushed pictures or for copies of one another."""

from __future__ import annotations

import io
from math import cos, pi, sin

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image, ImageDraw

from pipeline.dedupe import DedupeSettings
from pipeline.image import Header, Picture
from pipeline.measure import thumb
from pipeline.pairs import copies
from pipeline.quantisation import traced_quality


@pytest.mark.parametrize("border", [201, 203, 205, 206])
@pytest.mark.parametrize("colours", [("white", "red"), ("#2787ff", "#ffff11"), ("#f4192f", "white")])
def test_a_flag_shows_no_trace_of_jpeg(border: int, colours: tuple[str, str]) -> None:
    flag = Image.new("RGB", (600, 400), colours[0])
    ImageDraw.Draw(flag).rectangle((0, border, 600, 400), fill=colours[1])
    quality, evidence = traced_quality(np.asarray(flag.convert("L")))
    assert np.isnan(quality)
    assert evidence == 0


def test_a_shaded_drawing_that_was_crushed_still_shows_it() -> None:
    across, down = np.meshgrid(np.arange(400), np.arange(400))
    shaded = (110 + 40 * np.sin(across / 23) + 35 * np.cos(down / 31) + 30 * ((across // 50 + down // 70) % 2))
    data = io.BytesIO()
    Image.fromarray(shaded.astype(np.uint8)).save(data, "JPEG", quality=10)
    quality, evidence = traced_quality(np.asarray(Image.open(data)))
    assert abs(quality - 10) <= 1
    assert evidence > 0.75


def _star(points: int, step: int, *, side: int = 400) -> Image.Image:
    """A star polygon {points/step} in hairlines."""
    star = Image.new("RGB", (side, side), "white")
    turns = [2 * pi * step * n / points for n in range(points + 1)]
    corner = [(side * (0.5 + 0.4 * cos(turn)), side * (0.5 + 0.4 * sin(turn))) for turn in turns]
    ImageDraw.Draw(star).line(corner, fill=(90, 90, 90))
    return star


def _pairs(*pictures: Image.Image) -> list[tuple[str, str]]:
    """Copies among the pictures, as if the hash told none of them apart."""
    seen = [Picture(each, Header("PNG", "RGB", each.width, each.height)) for each in pictures]
    names = [str(number) for number in range(len(seen))]
    rows = pa.table({
        "id": names, "kind": ["folder"] * len(seen), "url": names, "sha256": [n.encode() for n in names],
        "decode_outcome": ["ok"] * len(seen), "pixel_digest": [one.digest() for one in seen],
        "phash": pa.array([1] * len(seen), pa.uint64()), "thumb": [thumb(one) for one in seen],
    })
    return [(edge["a"], edge["b"]) for edge in copies(rows, DedupeSettings()).to_pylist()]


def test_pale_line_drawings_stay_apart_and_their_copies_do_not() -> None:
    one, other = _star(29, 5), _star(47, 5)
    data = io.BytesIO()
    one.save(data, "JPEG", quality=75)
    assert _pairs(one, other, Image.open(data).convert("RGB")) == [("0", "2")]
