"""measure: numbers for good pictures, an outcome for bad ones, thumbnails that tell copies from look-alikes."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import imagehash
import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from pipeline import checks
from pipeline.checks.base import Check
from pipeline.demo.scenes import COLOURS, draw, recoloured, sample_scene, stands_out
from pipeline.image import Picture, decode
from pipeline.measure import BYTES, REASONS, MeasureStage, measure_one, measure_rows, thumb
from pipeline.progress import Progress
from pipeline.recipe import from_dict
from pipeline.run import Run
from pipeline.stage import Output
from pipeline.stages import execute


def _jpeg(image: Image.Image, quality: int = 90) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def _scene(seed: int) -> Image.Image:
    return draw(sample_scene(np.random.default_rng(seed)))


def _levels(data: bytes) -> np.ndarray:
    return np.frombuffer(thumb(decode(data)), np.uint8).astype(int)


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _place(path: Path) -> tuple[bytes, str, int, int]:
    """A file of its own as `BYTES`."""
    return _sha256(path.read_bytes()), str(path), 0, path.stat().st_size


def test_a_row_holds_what_the_file_and_the_reference_library_say(tmp_path: Path) -> None:
    image = _scene(1)
    data = _jpeg(image, 73)
    path = tmp_path / "a.jpg"
    path.write_bytes(b"xx" + data + b"yy")  # found by offset and length, as in a raw tar
    row = measure_one(_sha256(data), str(path), 2, len(data), max_pixels=10**8)
    assert (row["decode_outcome"], row["format"], row["width"], row["height"]) == ("ok", "JPEG", *image.size)
    assert row["jpeg_quality"] == 73
    with Image.open(io.BytesIO(data)) as reference:
        assert f"{row['phash']:016x}" == str(imagehash.phash(reference))


def test_bad_bytes_and_lost_bytes_are_rows_with_a_documented_reason(tmp_path: Path) -> None:
    good = _jpeg(_scene(2))
    files = {"cut.jpg": good[: len(good) // 2], "page.jpg": b"<html></html>", "empty.jpg": b"", "good.jpg": good}
    places = []
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        places.append(dict(zip(BYTES, _place(tmp_path / name), strict=True)))
    places.append(places[-1] | {"container": str(tmp_path / "gone.jpg")})
    changed = tmp_path / "changed.jpg"  # since `ingest` saw it
    changed.write_bytes(_jpeg(_scene(4)))
    places.append(dict(zip(BYTES, (b"another SHA-256, which is not it", str(changed), 0, 100), strict=True)))
    table = measure_rows(pa.Table.from_pylist(places), max_pixels=10**8)
    outcomes = table.column("decode_outcome").to_pylist()
    assert outcomes == ["truncated", "not_an_image", "empty", "ok", "bytes_lost", "bytes_lost"]
    assert set(outcomes) - {"ok"} <= set(REASONS)
    assert table.num_rows == len(places)


def test_a_check_that_stumbles_costs_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stumbling(Check):
        def measure(self, picture: Picture) -> dict[str, float]:
            raise ZeroDivisionError("by this picture")

    monkeypatch.setitem(checks.registry(), "stumbling", Stumbling())
    path = tmp_path / "a.jpg"
    path.write_bytes(_jpeg(_scene(3)))
    row = measure_one(*_place(path), max_pixels=10**8)
    assert row["decode_outcome"] == "check_failed"
    assert "stumbling: ZeroDivisionError" in row["decode_detail"]


@pytest.mark.parametrize("size", [(8, 8), (1, 300), (300, 1), (16, 16), (33, 17), (64, 9)])
def test_pictures_of_any_size_are_measured(tmp_path: Path, size: tuple[int, int]) -> None:
    for seed, image in enumerate([Image.new("RGB", size, "red"), Image.effect_noise(size, 90).convert("RGB")]):
        path = tmp_path / f"{seed}.png"
        image.save(path)
        assert measure_one(*_place(path), max_pixels=10**8)["decode_outcome"] == "ok"


def test_thumbnails_of_copies_agree_and_those_of_colour_twins_do_not() -> None:
    rng = np.random.default_rng(4)
    for _ in range(8):
        scene = sample_scene(rng)
        image = draw(scene)
        original = _levels(_jpeg(image, 95))
        small = image.resize((image.width * 2 // 3, image.height * 2 // 3), Image.Resampling.LANCZOS)
        assert np.abs(original - _levels(_jpeg(image, 40))).max() <= 10
        assert np.abs(original - _levels(_jpeg(small, 90))).max() <= 10
        colours = [c for c in COLOURS if stands_out(c, scene.background, scene.night) and c != scene.shapes[0].colour]
        twin = draw(recoloured(scene, colours[0]))
        assert np.abs(original - _levels(_jpeg(twin, 95))).max() > 10


def test_a_picture_that_takes_too_long_costs_one_row(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(5):
        _scene(number).save(folder / f"a picture of {number}.png")
    Image.new("1", (16_000, 12_000)).save(folder / "endless.png")  # seconds of decoding in a few kB
    raw = {"name": "slow", "workdir": str(tmp_path), "measure": {"deadline_s": 0.8}, "engine": {"workers": 1},
           "ingest": {"sources": [{"kind": "folder", "name": "f", "path": str(folder)}]}}
    run = Run(from_dict(raw), Progress(quiet=True))
    execute(run, ["ingest", "measure"])
    assert run.manifests.stage("measure").arrow().column("decode_outcome").to_pylist() == ["ok"] * 5 + ["decoder_died"]
    assert MeasureStage().holds(run, Output(MeasureStage(), run))(  # type: ignore[misc]
        run.manifests.stage("measure").arrow()).tolist() == [True] * 6
    patient = Run(from_dict({**raw, "measure": {"deadline_s": 600}}), Progress(quiet=True))
    assert MeasureStage().holds(patient, Output(MeasureStage(), patient))(  # type: ignore[misc]
        run.manifests.stage("measure").arrow()).tolist() == [True] * 5 + [False], "it is tried again"
