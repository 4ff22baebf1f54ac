"""What was lost or damaged comes back: by itself, or by the command that the error names."""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import pipeline
from pipeline import stages
from pipeline.errors import GristmillError, ManifestError, RecipeError
from pipeline.memo import Memo
from pipeline.progress import Progress
from pipeline.recipe import load
from pipeline.run import Run


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(6):
        picture = Image.effect_noise((300, 300), 60 + 10 * number).convert("RGB")
        picture.save(folder / f"{number}.png")
        (folder / f"{number}.txt").write_text(f"grey noise of strength {number}")
    return folder


def curate(pictures: Path, workdir: Path, *names: str, force: bool = False) -> list[str]:
    """Run stages (all of them without names) in this process; returns those that computed anything."""
    recipe = load("folder", [f'ingest.sources.0.path="{pictures}"', "engine.workers=1"], workdir=str(workdir))
    return stages.execute(Run(recipe, Progress(quiet=True)), list(names or stages.STAGES), force=force)


def outcomes(manifests: Path) -> Counter[str]:
    return Counter(pipeline.open(str(manifests)).joined(["decode_outcome"]).arrow()["decode_outcome"].to_pylist())


def content(manifests: Path) -> dict[str, str]:
    return {str(path.relative_to(manifests)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(manifests.rglob("*.parquet"))}


def test_pictures_whose_disk_was_away_are_measured_when_it_is_back(pictures: Path, tmp_path: Path) -> None:
    manifests = tmp_path / "manifests" / "folder"
    curate(pictures, tmp_path, "ingest")
    away = pictures.rename(tmp_path / "away")
    curate(pictures, tmp_path, "measure")
    assert outcomes(manifests) == {"bytes_lost": 6}
    away.rename(pictures)
    assert "measure" in curate(pictures, tmp_path)
    assert outcomes(manifests) == {"ok": 6}
    assert curate(pictures, tmp_path) == []


@pytest.mark.parametrize("stage", ["measure", "filter"])
@pytest.mark.parametrize("damage", ["one byte", "other content"])
def test_a_damaged_part_is_mended_by_the_command_that_is_named(
        pictures: Path, tmp_path: Path, stage: str, damage: str) -> None:
    manifests = tmp_path / "manifests" / "folder"
    curate(pictures, tmp_path)
    before = content(manifests)
    part = next((manifests / stage).glob("part-*.parquet"))
    whole = part.read_bytes()
    middle = len(whole) // 3
    part.write_bytes(bytes(len(whole)) if damage == "other content"
                     else whole[:middle] + bytes([whole[middle] ^ 0xFF]) + whole[middle + 1:])
    if damage == "other content":
        with pytest.raises(ManifestError, match=part.name) as caught:
            pipeline.open(str(manifests)).stage(stage).arrow()
        assert "--force" in caught.value.hint
    curate(pictures, tmp_path, stage, force=True)
    assert content(manifests) == before


def test_a_damaged_chunk_of_a_killed_run_is_computed_again(tmp_path: Path) -> None:
    memo = Memo(str(tmp_path), "", "namespace", ["value"])
    for key in (b"a" * 16, b"b" * 16):
        memo.add([key], pa.table({"value": [1.0]}))
    damaged, sound = sorted(tmp_path.rglob("chunk-*.parquet"))
    left = pq.read_table(sound)["value_key"].to_pylist()
    damaged.write_bytes(b"no Parquet")
    again = Memo(str(tmp_path), "", "namespace", ["value"])
    again.load(None, "", "namespace")
    assert [key for key in (b"a" * 16, b"b" * 16) if key in again] == left


@pytest.mark.parametrize("name", ["samples.parquet", "index.json"])
@pytest.mark.parametrize("damage", ["gone", "cut", "{}"])
def test_what_readers_of_the_shards_need_is_written_again(
        pictures: Path, tmp_path: Path, name: str, damage: str) -> None:
    curate(pictures, tmp_path)
    place = tmp_path / "data" / "folder" / "shards" / name
    before = place.read_bytes()
    if damage == "gone":
        place.unlink()
    else:
        place.write_bytes(before[:-20] if damage == "cut" else b"{}")
    assert curate(pictures, tmp_path) == ["shard"]
    assert place.read_bytes() == before


@pytest.mark.parametrize("damage", ["{", "{}"])
def test_a_damaged_note_of_a_tar_costs_only_that_tar(pictures: Path, tmp_path: Path, damage: str) -> None:
    curate(pictures, tmp_path)
    shards = tmp_path / "data" / "folder" / "shards"
    before = {path.name: path.read_bytes() for path in shards.glob("*.tar")}
    next((shards / ".entries").iterdir()).write_text(damage)
    curate(pictures, tmp_path, "shard", force=True)
    assert {path.name: path.read_bytes() for path in shards.glob("*.tar")} == before


@pytest.mark.parametrize("buckets", [[], ["4x3"], ["0:1"], ["1:1", "4:"]])
def test_buckets_that_are_no_ratios_are_refused_before_any_work(buckets: list[str]) -> None:
    with pytest.raises(RecipeError, match="buckets"):
        load("folder", [f"shard.buckets={json.dumps(buckets)}"])


def test_a_missing_engine_is_said_before_any_work(pictures: Path, tmp_path: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    recipe = load("folder", [f'ingest.sources.0.path="{pictures}"', "engine.kind=ray"], workdir=str(tmp_path))
    with pytest.raises(GristmillError, match=r"(?i)ray"):
        stages.execute(Run(recipe, Progress(quiet=True)), list(stages.STAGES))
    assert not list(tmp_path.glob("manifests/*/ingest"))
