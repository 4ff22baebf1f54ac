"""dedupe.mirrored: mirror images are copies where asked for, and what is said of their sides stays with them."""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from pipeline.dedupe import DedupeSettings, edge_reads
from pipeline.demo.scenes import draw, sample_scene
from pipeline.image import decode
from pipeline.measure import thumb
from pipeline.pairs import copies
from pipeline.progress import Progress
from pipeline.recipe import from_dict
from pipeline.run import Run
from pipeline.schema import INGEST, MEASURE
from pipeline.stages import execute, plan

TYPES = {c.name: c.type for schema in (INGEST, MEASURE) for c in schema.columns}
ON = DedupeSettings(max_distance=3, mirrored=True)


def lopsided(seed: int) -> Image.Image:
    """Smooth light and colour that differs from its mirror image."""
    levels = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), np.uint8)
    return Image.fromarray(levels).resize((400, 300), Image.Resampling.BICUBIC)


def test_a_mirrored_thumbnail_is_that_of_the_mirror_image(tmp_path: Path) -> None:
    for seed, size in enumerate([(400, 300), (64, 48), (701, 333), (31, 200)]):
        image = lopsided(seed).resize(size)
        image.save(tmp_path / "one.png")
        ImageOps.mirror(image).save(tmp_path / "other.png")
        one, other = (np.frombuffer(thumb(decode((tmp_path / name).read_bytes())), np.uint8).astype(int)
                      for name in ("one.png", "other.png"))
        luma, chroma = one[:256].reshape(16, 16)[:, ::-1], one[256:].reshape(2, 8, 8)[..., ::-1]
        assert np.abs(np.concatenate([luma.ravel(), chroma.ravel()]) - other).max() <= 4, size


def _turned(thumb: bytes) -> bytes:
    luma, blue, red = (thumb[start:end] for start, end in ((0, 256), (256, 320), (320, 384)))
    lines = [plane[at:at + side] for plane, side in ((luma, 16), (blue, 8), (red, 8))
             for at in range(0, len(plane), side)]
    return b"".join(line[::-1] for line in lines)


def _busy(seed: int) -> bytes:
    return np.random.default_rng(seed).integers(0, 256, 384, np.uint8).tobytes()


THUMBS = [_busy(0), _turned(_busy(0)), _busy(1), _turned(_busy(1))]
ROW = st.fixed_dictionaries({
    "sha256": st.integers(0, 5).map(lambda n: bytes([n]) * 32), "phash": st.integers(0, 15),
    "phash_mirrored": st.integers(0, 15), "thumb": st.sampled_from(THUMBS),
})


@given(st.lists(ROW, max_size=10), st.permutations(range(10)))
def test_edges_are_those_of_the_definition(rows: list[dict[str, Any]], names: list[int]) -> None:
    named = [{"id": f"{name:032x}", "kind": "site", "url": str(name), "decode_outcome": "ok", **row,
              "pixel_digest": row["sha256"][:16]} for row, name in zip(rows, names, strict=False)]
    first = {}
    for row in sorted(named, key=lambda row: row["id"]):
        first.setdefault(row["sha256"], row)
    expected: dict[tuple[str, str], tuple[str, int]] = {}
    for row in named:
        if row is not (head := first[row["sha256"]]):
            expected[head["id"], row["id"]] = "bytes", 0
    for a, b in combinations(sorted(first.values(), key=lambda row: row["id"]), 2):
        apart = (a["phash"] ^ b["phash"]).bit_count()
        turned = min((a["phash"] ^ b["phash_mirrored"]).bit_count(), (a["phash_mirrored"] ^ b["phash"]).bit_count())
        if apart <= 3 and a["thumb"] == b["thumb"]:
            expected[a["id"], b["id"]] = "perceptual", apart
        elif turned <= 3 and a["thumb"] == _turned(b["thumb"]):
            expected[a["id"], b["id"]] = "mirrored", turned
    table = pa.table({name: pa.array([row[name] for row in named], TYPES[name]) for name in edge_reads(ON)})
    found = copies(table, ON).to_pylist()
    assert [((e["a"], e["b"]), (e["relation"], e["distance"])) for e in found] == sorted(expected.items())
    assert "mirrored" not in {e["relation"] for e in copies(table, DedupeSettings(max_distance=3)).to_pylist()}


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Three pictures, mirror images of two of them (smaller, recompressed), and scenes of their own."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    for seed, caption in enumerate(["a dog left of a house", "a boat", "a tree"]):
        lopsided(seed).save(folder / f"{seed}.png")
        (folder / f"{seed}.txt").write_text(caption)
    for seed, caption in enumerate(["a dog to the Right of a house", "a boat at sea, leftover paint"]):
        ImageOps.mirror(lopsided(seed)).resize((280, 210), Image.Resampling.LANCZOS).save(
            folder / f"{seed}m.jpg", quality=60)
        (folder / f"{seed}m.txt").write_text(caption)
    for seed in range(3):
        draw(sample_scene(np.random.default_rng(seed))).save(folder / f"a scene {seed}.png")
    return folder


def run_of(pictures: Path, **dedupe: Any) -> Run:
    raw = {"name": "mine", "workdir": str(pictures.parent), "engine": {"workers": 1}, "dedupe": dedupe,
           "ingest": {"sources": [{"kind": "folder", "name": "f", "path": str(pictures)}]}}
    return Run(from_dict(raw), Progress(quiet=True))


def test_mirror_images_go_where_asked_for_and_no_picture_is_measured_again(pictures: Path) -> None:
    run = run_of(pictures)
    execute(run, ["ingest", "measure", "dedupe"])
    table = run.manifests.joined(["id", "url", "relation", "duplicate_of"]).arrow()
    assert table.column("relation").null_count == table.num_rows
    run = run_of(pictures, mirrored=True)
    assert {each.stage for each in plan(run) if each.runs and each.stage in ("ingest", "measure", "dedupe")} == {
        "dedupe"}
    execute(run, ["dedupe", "filter"])
    rows = run.manifests.joined().arrow().to_pylist()
    by_name = {row["url"].rsplit("/", 1)[-1]: row for row in rows}
    dropped = {name: (row["relation"], row["reason"], row["duplicate_of"]) for name, row in by_name.items()
               if row["duplicate_of"] is not None}
    assert dropped == {f"{seed}m.jpg": ("mirrored", "duplicate_mirrored", by_name[f"{seed}.png"]["id"])
                       for seed in (0, 1)}
    assert by_name["0.png"]["pooled_captions"] == ["a dog left of a house"], "what names a side would be wrong there"
    assert by_name["1.png"]["pooled_captions"] == ["a boat", "a boat at sea, leftover paint"]
    assert by_name["0m.jpg"]["pooled_captions"] == ["a dog to the Right of a house"]


def test_a_copy_of_a_mirror_image_is_one_too(pictures: Path) -> None:
    (pictures / "0n.jpg").write_bytes((pictures / "0m.jpg").read_bytes())
    run = run_of(pictures, mirrored=True)
    execute(run, ["ingest", "measure", "dedupe"])
    rows = run.manifests.joined(["url", "relation", "group"]).arrow().to_pylist()
    by_name = {row["url"].rsplit("/", 1)[-1]: row for row in rows}
    assert [by_name[name]["relation"] for name in ("0.png", "0m.jpg", "0n.jpg")] == [None, "mirrored", "mirrored"]
    assert all(a["group"] == b["group"] for a, b in pairwise(by_name[name] for name in ("0.png", "0m.jpg", "0n.jpg")))
