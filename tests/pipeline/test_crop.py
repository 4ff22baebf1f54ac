"""shard.crop_borders: bars are cut off what goes into tars, and everything beside says so."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from pipeline import crop, stages
from pipeline.errors import RecipeError
from pipeline.progress import Progress
from pipeline.recipe import from_dict
from pipeline.run import Run
from pipeline.takedown.command import forget
from train.shards import ByteCache, open_shards

TOP, BOTTOM = 60, 45


def photograph(seed: int) -> Image.Image:
    levels = np.random.default_rng(seed).integers(70, 200, (30, 40, 3), np.uint8)
    return Image.fromarray(levels).resize((400, 300), Image.Resampling.BICUBIC)


def letterboxed(seed: int) -> Image.Image:
    image = Image.new("RGB", (400, 300 + TOP + BOTTOM))
    image.paste(photograph(seed), (0, TOP))
    return image


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    letterboxed(0).save(folder / "film.png")
    letterboxed(1).save(folder / "film.jpg", quality=92)
    sideways = letterboxed(2).transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise
    sideways.save(folder / "turned.jpg", quality=92, exif=exif)
    photograph(3).save(folder / "whole.png")
    return folder


def run_of(pictures: Path, *, bars: dict[str, Any] | None = None, **shard: Any) -> Run:
    raw = {"name": "mine", "workdir": str(pictures.parent), "engine": {"workers": 1}, "shard": shard,
           "score": {"model": "none"}, "filter": {"bars": bars or {}, "blown_up": {"action": "off"},
                                                  "blur": {"action": "off"}, "caption": {"action": "off"}},
           "ingest": {"sources": [{"kind": "folder", "name": "f", "path": str(pictures)}]}}
    return Run(from_dict(raw), Progress(quiet=True))


def rows(run: Run) -> dict[str, dict[str, Any]]:
    """File name → everything known of it."""
    run.manifests.reload()
    return {row["url"].rsplit("/", 1)[-1]: row for row in run.manifests.joined().arrow().to_pylist()}


def member(run: Run, row: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    with tarfile.open(Path(run.data) / "shards" / row["shard"]) as tar:
        picture, facts = (tar.extractfile(name) for name in (row["shard_member"], f"{row['id']}.json"))
        assert picture is not None
        assert facts is not None
        return picture.read(), json.loads(facts.read())


def test_bars_are_cut_off_and_everything_says_so(pictures: Path) -> None:
    run = run_of(pictures, crop_borders=True)
    stages.execute(run, list(stages.STAGES))
    samples = {row["id"]: row for row in pq.read_table(f"{run.data}/shards/samples.parquet").to_pylist()}
    for name, row in rows(run).items():
        data, facts = member(run, row)
        sample = samples[row["id"]]
        assert hashlib.sha256(data).digest() == row["shard_sha256"] == sample["sha256"]
        assert facts["sha256"] == row["shard_sha256"].hex()
        with Image.open(io.BytesIO(data)) as image:
            size = image.size
            pixels = np.asarray(image.convert("RGB")).astype(int)
        assert size == (row["shard_width"], row["shard_height"]) == (sample["width"], sample["height"]) == (
            facts["width"], facts["height"])
        assert (row["shard_length"], sample["length"]) == (len(data), len(data))
        if name == "whole.png":
            assert (row["shard_box"], row["shard_sha256"]) == (None, row["sha256"])
            assert "source_box" not in facts
            continue
        left, top, right, bottom = row["shard_box"]
        assert (left, right) == (0, 400)
        assert abs(top - TOP) <= 1
        assert abs(bottom - TOP - 300) <= 1
        assert (right - left, bottom - top) == size
        assert (row["width"], row["height"]) == (400, 300 + TOP + BOTTOM), "of what was measured"
        assert (facts["source_sha256"], facts["source_box"]) == (row["sha256"].hex(), row["shard_box"])
        assert pixels.min() > 40, "nothing of the bars is left"
        assert sample["bucket"] == "4:3"
    film = rows(run)["film.png"]
    kept = np.asarray(letterboxed(0))[film["shard_box"][1]:film["shard_box"][3]]
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(member(run, film)[0]))), kept), "PNG stays without loss"
    shards = open_shards(f"{run.data}/shards")
    for position in range(len(shards)):
        shards.read(position)  # which checks the SHA-256


def test_off_takes_the_bytes_as_they_are_and_turning_it_on_writes_only_tars(pictures: Path) -> None:
    run = run_of(pictures)
    stages.execute(run, list(stages.STAGES))
    for name, row in rows(run).items():
        assert (row["shard_box"], row["shard_sha256"]) == (None, row["sha256"])
        assert member(run, row)[0] == (pictures / name).read_bytes()
    tars = [path.name for path in Path(run.data, "shards").glob("*.tar")]
    on = run_of(pictures, crop_borders=True)
    ran = {each.stage for each in stages.plan(on) if each.runs}
    assert ran <= {"shard", "dataset"}
    stages.execute(on, list(stages.STAGES))
    assert sum(row["shard_box"] is not None for row in rows(on).values()) == 3
    off = run_of(pictures)
    stages.execute(off, list(stages.STAGES))
    assert [path.name for path in Path(run.data, "shards").glob("*.tar")] == tars, "the same bytes as before"


def test_the_check_says_what_is_cut(pictures: Path) -> None:
    run = run_of(pictures, bars={"max_share": 0.5}, crop_borders=True)
    stages.execute(run, list(stages.STAGES))
    assert all(row["shard_box"] is None for row in rows(run).values())
    with pytest.raises(RecipeError, match=r"filter\.bars finds, and that is off"):
        stages.execute(run_of(pictures, bars={"action": "off"}, crop_borders=True), list(stages.STAGES))


def test_cut_pictures_outlive_their_source(pictures: Path) -> None:
    run = run_of(pictures, crop_borders=True)
    stages.execute(run, list(stages.STAGES))
    before = {name: row["shard_sha256"] for name, row in rows(run).items()}
    away = pictures.rename(pictures.parent / "away")
    for path in Path(run.data, "shards", ".entries").iterdir():  # so that the tar is written anew
        renamed = path.with_name("00000-other.json")
        path.rename(renamed)
    stages.execute(run, ["shard"], force=True)
    assert {name: row["shard_sha256"] for name, row in rows(run).items()} == before
    away.rename(pictures)


def test_takedown_keeps_what_stays_and_the_next_run_writes_nothing(pictures: Path) -> None:
    run = run_of(pictures, crop_borders=True)
    stages.execute(run, list(stages.STAGES))
    known = rows(run)
    gone = known["film.jpg"]
    cache = ByteCache(str(pictures.parent / "runs/mine/cache"), 10**9)
    for name in ("film.jpg", "film.png"):
        cache.put(known[name]["shard_sha256"], b"as the trainer read it")
    forget(run, [gone["id"]])
    assert [cache.get(known[name]["shard_sha256"]) is None for name in ("film.jpg", "film.png")] == [True, False]
    after = rows(run)
    assert after["film.jpg"]["shard"] is None
    assert {name for name, value in after["film.jpg"].items() if name.startswith("shard") and value} == set()
    for name in ("film.png", "turned.jpg", "whole.png"):
        data, facts = member(run, after[name])
        assert hashlib.sha256(data).digest() == after[name]["shard_sha256"] == known[name]["shard_sha256"]
        assert facts["sha256"] == known[name]["shard_sha256"].hex()
    tars = {path.name: path.stat().st_mtime_ns for path in Path(run.data, "shards").glob("*.tar")}
    stages.execute(run_of(pictures, crop_borders=True), list(stages.STAGES))
    assert {path.name: path.stat().st_mtime_ns for path in Path(run.data, "shards").glob("*.tar")} == tars


@pytest.mark.parametrize("box", [(0, 0, 401, 300), (10, 0, 10, 300), (-1, 0, 20, 20)])
def test_a_box_beyond_the_picture_is_refused(box: crop.Box) -> None:
    buffer = io.BytesIO()
    photograph(0).save(buffer, "PNG")
    with pytest.raises(ValueError, match="does not lie within 400 × 300 px"):
        crop.cut(buffer.getvalue(), box)
