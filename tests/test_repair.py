"""What was lost or damaged comes back: by itself, or by the command that the error names."""

from __future__ import annotations

import hashlib
import io
import json
import os
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
from tests.pipeline.ingest import hostile

NOISY = 'filter.noise.action="off"'
"""These pictures are nothing but noise, which makes large files that no two share."""


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
    recipe = load("folder", [f'ingest.sources.0.path="{pictures}"', "engine.workers=1", NOISY],
                  workdir=str(workdir))
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


def test_pictures_that_are_lost_before_sharding_are_named_and_come_back(pictures: Path, tmp_path: Path) -> None:
    manifests, shards = tmp_path / "manifests" / "folder", tmp_path / "data" / "folder" / "shards"
    curate(pictures, tmp_path, *list(stages.STAGES)[:-2])
    one, other = pictures / "1.png", pictures / "2.png"
    away, before = one.rename(tmp_path / "away.png"), other.read_bytes()
    other.write_bytes(before[:-40] + bytes(40))  # same length, other bytes: must not pass for the picture
    curate(pictures, tmp_path, "shard")
    rows = pipeline.open(str(manifests)).joined(["url", "shard", "shard_outcome"]).arrow().to_pylist()
    told = {row["url"].rsplit("/", 1)[-1]: (row["shard"] is None, row["shard_outcome"]) for row in rows}
    assert told == {f"{n}.png": (n in (1, 2), "bytes_lost" if n in (1, 2) else "ok") for n in range(6)}
    assert pq.read_table(shards / "samples.parquet").num_rows == 4
    away.rename(one)
    other.write_bytes(before)
    assert curate(pictures, tmp_path, "shard") == ["shard"]
    whole = {path.name: path.read_bytes() for path in shards.iterdir() if path.is_file()}
    assert pq.read_table(shards / "samples.parquet").num_rows == 6
    curate(pictures, tmp_path / "undisturbed")
    there = tmp_path / "undisturbed" / "data" / "folder" / "shards"
    assert whole == {path.name: path.read_bytes() for path in there.iterdir() if path.is_file()}
    assert curate(pictures, tmp_path, "shard") == []


def test_a_changed_byte_in_a_cached_side_table_is_no_longer_taken_over(pictures: Path, tmp_path: Path) -> None:
    Image.open(pictures / "0.png").save(pictures / "copy.png", compress_level=1)
    curate(pictures, tmp_path)
    before = content(tmp_path / "manifests" / "folder")
    edges = next((tmp_path / "manifests" / "folder" / "dedupe" / "edges").glob("*.parquet"))
    table = pq.read_table(edges)
    pq.write_table(table.slice(0, 0), edges)  # opens well, and tells of no duplicates
    curate(pictures, tmp_path, "dedupe", force=True)
    assert content(tmp_path / "manifests" / "folder") == before


def test_a_run_that_was_moved_finds_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spelled relative, absolute, from elsewhere and after a move: it is the same run."""
    here = tmp_path / "here"
    picture = io.BytesIO()
    Image.effect_noise((300, 300), 80).convert("RGB").save(picture, "PNG")
    with hostile.serve({"/a.png": hostile.reply(picture.getvalue()), "/robots.txt": hostile.reply(b"", 404)}) as site:
        (tmp_path / "list.jsonl").write_text(json.dumps({"url": f"{site.base}/a.png", "caption": "grey noise"}) + "\n")
        source = f'{{kind="urls", name="l", path="{tmp_path}/list.jsonl", captions=["caption"]}}'
        sets = ['name="moved"', f"ingest.sources=[{source}]",
                'ingest.fetch.contact="t@example.org"', 'ingest.fetch.allow_hosts=["127.0.0.1"]', "engine.workers=1",
                NOISY]

        def again(workdir: str, *, force: bool = False) -> list[str]:
            run = Run(load("folder", sets, workdir=workdir), Progress(quiet=True))
            return stages.execute(run, list(stages.STAGES), force=force)

        here.mkdir()
        monkeypatch.chdir(here)
        again(".")
        before = content(here / "manifests" / "moved")
        assert again(str(here)) == []
        monkeypatch.chdir(tmp_path)
        assert again("here") == []
        here.rename(tmp_path / "there")
        assert again("there") == []
        assert again("there", force=True)
        assert content(tmp_path / "there" / "manifests" / "moved") == before
    assert pq.read_table(tmp_path / "there/data/moved/shards/samples.parquet").num_rows == 1


def test_tars_outlive_the_loss_of_their_source(pictures: Path, tmp_path: Path) -> None:
    curate(pictures, tmp_path)
    shards = tmp_path / "data" / "folder" / "shards"
    before = pq.read_table(shards / "samples.parquet")
    pictures.rename(tmp_path / "away")
    sets = [f'ingest.sources.0.path="{pictures}"', "engine.workers=1", "shard.target_mb=0.1"]
    stages.execute(Run(load("folder", sets, workdir=str(tmp_path)), Progress(quiet=True)), ["shard"], rewrite=True)
    after = pq.read_table(shards / "samples.parquet")
    assert after["id"].to_pylist() == before["id"].to_pylist()
    assert len(set(after["shard"].to_pylist())) > 1
    for name, offset, length, sha256 in zip(
            *(after[column].to_pylist() for column in ("shard", "offset", "length", "sha256")), strict=True):
        data = (shards / name).read_bytes()[offset:offset + length]
        assert hashlib.sha256(data).digest() == sha256


def test_bytes_that_were_changed_unnoticed_come_back_by_force(pictures: Path, tmp_path: Path) -> None:
    """Another picture of the same size and age, as a copying tool may leave it: nothing but its bytes tells."""
    curate(pictures, tmp_path, "ingest")
    manifests, one = tmp_path / "manifests" / "folder", pictures / "3.png"
    stat, before = one.stat(), one.read_bytes()
    one.write_bytes(before[:-200] + before[-200:-100][::-1] + before[-100:])
    os.utime(one, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    curate(pictures, tmp_path, "ingest", "measure")
    assert outcomes(manifests)["bytes_lost"] == 1
    curate(pictures, tmp_path, "ingest", force=True)
    curate(pictures, tmp_path, "measure")
    assert outcomes(manifests)["bytes_lost"] == 0
    assert sum(outcomes(manifests).values()) == 6
