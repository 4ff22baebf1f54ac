"""Thumbnails: right pixels, kept by content, and never the end of a report."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipeline.engine import LocalEngine
from pipeline.report import thumbnails as module
from pipeline.report.thumbnails import CACHE, LOST, Sizes, Thumbnails, busiest_window, shrunk

SIZES = Sizes(whole=64, crop=32, quality=80)


def row_of(path: Path, data: bytes) -> dict[str, Any]:
    path.write_bytes(b"before" + data + b"after")
    return {"sha256": hashlib.sha256(data).digest(), "container": str(path), "offset": 6, "length": len(data)}


def png(pixels: np.ndarray[Any, Any]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def halves() -> bytes:
    """Left half red, right half blue, 200 × 100."""
    pixels = np.zeros((100, 200, 3))
    pixels[:, :100, 0], pixels[:, 100:, 2] = 250, 250
    return png(pixels)


def draw(folder: Path, *rows: dict[str, Any], engine: Any = None, crop: bool = False) -> tuple[Thumbnails, int]:
    thumbnails = Thumbnails(SIZES, "")
    for row in rows:
        thumbnails.want(row)
        if crop:
            thumbnails.want(row, "crop")
    return thumbnails, thumbnails.draw(engine or LocalEngine(2), str(folder))


def test_another_picture_in_its_place_is_not_shown_and_not_kept(tmp_path: Path) -> None:
    row = row_of(tmp_path / "raw.tar", halves())
    whole = (tmp_path / "raw.tar").read_bytes()
    other = png(np.full((100, 200, 3), 9))
    (tmp_path / "raw.tar").write_bytes(b"before" + other + bytes(len(whole) - 6 - len(other)))
    thumbnails, _ = draw(tmp_path, row)
    made = thumbnails.get(thumbnails.want(row))
    assert made.data is None
    assert (made.problem or "").startswith(LOST)
    (tmp_path / "raw.tar").write_bytes(whole)
    thumbnails, drawn = draw(tmp_path, row)
    assert drawn == 1
    assert thumbnails.get(thumbnails.want(row)).data is not None


def test_a_thumbnail_shows_its_picture(tmp_path: Path) -> None:
    row = row_of(tmp_path / "raw.tar", halves())
    thumbnails, drawn = draw(tmp_path, row)
    assert drawn == 1
    made = thumbnails.get(thumbnails.want(row)).data
    assert made is not None
    image = Image.open(io.BytesIO(made)).convert("RGB")
    assert image.size == (64, 32)
    assert np.abs(np.array(image.getpixel((10, 16))) - [250, 0, 0]).max() < 25
    assert np.abs(np.array(image.getpixel((54, 16))) - [0, 0, 250]).max() < 25


def test_the_second_time_nothing_is_drawn(tmp_path: Path) -> None:
    rows = [row_of(tmp_path / f"{n}.bin", png(np.full((40, 40, 3), 5 * n))) for n in range(20)]
    first, drawn = draw(tmp_path, *rows, crop=True)
    assert drawn == 40
    for path in tmp_path.glob("*.bin"):
        path.unlink()
    second, drawn = draw(tmp_path, *rows, crop=True)
    assert drawn == 0
    assert all(first.get(second.want(row)) == second.get(second.want(row)) for row in rows)


def test_the_cache_follows_the_page_and_survives_damage(tmp_path: Path) -> None:
    rows = [row_of(tmp_path / f"{n}.bin", png(np.full((40, 40, 3), 50 * n))) for n in range(3)]
    draw(tmp_path, *rows)
    large = (tmp_path / CACHE).stat().st_size
    draw(tmp_path, rows[0])
    assert (tmp_path / CACHE).stat().st_size < large
    (tmp_path / CACHE).write_bytes(b"PAR1 no more")
    thumbnails, drawn = draw(tmp_path, rows[0])
    assert drawn == 1
    assert thumbnails.get(thumbnails.want(rows[0])).data


@pytest.mark.parametrize(("spoil", "problem"), [
    (lambda data: data[: len(data) // 2], "truncated"),
    (lambda data: b"<html>sign in</html>", "not_an_image"),
])
def test_what_cannot_be_decoded_says_why(tmp_path: Path, spoil: Callable[[bytes], bytes], problem: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (64, 64, 3))
    bad, good = row_of(tmp_path / "a", spoil(png(pixels))), row_of(tmp_path / "b", halves())
    thumbnails, _ = draw(tmp_path, bad, good)
    assert thumbnails.get(thumbnails.want(bad)).problem == problem
    assert thumbnails.get(thumbnails.want(good)).data
    assert draw(tmp_path, bad, good)[1] == 0  # the failure is remembered


def test_lost_bytes_are_looked_for_again(tmp_path: Path) -> None:
    row = row_of(tmp_path / "a", halves())
    (tmp_path / "a").rename(tmp_path / "gone")
    thumbnails, _ = draw(tmp_path, row)
    assert (thumbnails.get(thumbnails.want(row)).problem or "").startswith(LOST)
    (tmp_path / "gone").rename(tmp_path / "a")
    thumbnails, drawn = draw(tmp_path, row)
    assert drawn == 1
    assert thumbnails.get(thumbnails.want(row)).data


def test_rows_without_bytes_have_none() -> None:
    thumbnails = Thumbnails(SIZES, "")
    assert thumbnails.want({"sha256": None, "container": None}) is None
    assert thumbnails.get(None).problem == "no bytes"
    assert Thumbnails(Sizes(64, 0, 80), "").want({"sha256": b"x" * 32, "container": "a"}, "crop") is None


def _deadly(sizes: Sizes) -> Callable[[list[Any]], list[Any]]:
    return _die


def _die(wishes: list[Any]) -> list[Any]:
    os._exit(9)


def test_a_dying_worker_does_not_end_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_drawer", _deadly)
    rows = [row_of(tmp_path / f"{n}.bin", png(np.full((40, 40, 3), n))) for n in range(module.FEW + 1)]
    thumbnails, _ = draw(tmp_path, *rows)
    problems = [thumbnails.get(thumbnails.want(row)).problem or "" for row in rows]
    assert all(problem.startswith(LOST) for problem in problems)


@pytest.mark.parametrize("size", [(30, 20), (64, 64), (900, 8), (8, 900), (1, 1), (640, 480)])
def test_the_longer_side_is_never_longer_nor_enlarged(size: tuple[int, int]) -> None:
    made = shrunk(Image.new("RGB", size), 64)
    assert max(made.size) == min(64, max(size))
    assert min(made.size) >= 1


def test_the_crop_lies_where_the_detail_is() -> None:
    luma = np.full((400, 600), 128, np.float32)
    luma[250:330, 420:500] = np.random.default_rng(0).uniform(0, 255, (80, 80))
    left, top, right, bottom = busiest_window(luma, 100)
    assert (right - left, bottom - top) == (100, 100)
    assert left <= 424  # windows start at multiples of 8
    assert right >= 496
    assert top <= 254
    assert bottom >= 326


@pytest.mark.parametrize("shape", [(1, 1), (50, 400), (400, 50), (100, 100), (101, 163)])
def test_the_crop_lies_within_the_picture(shape: tuple[int, int]) -> None:
    luma = np.random.default_rng(0).uniform(0, 255, shape).astype(np.float32)
    left, top, right, bottom = busiest_window(luma, 100)
    assert 0 <= left < right <= shape[1]
    assert 0 <= top < bottom <= shape[0]
    assert (right - left, bottom - top) == (min(100, shape[1]), min(100, shape[0]))
