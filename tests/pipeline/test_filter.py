"""The decisions of `filter`: the first stage that lost a row has the word, all failed checks are kept."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pytest

from pipeline import checks
from pipeline.checks.caption import Caption
from pipeline.demo.scenes import draw, sample_scene
from pipeline.filter import READS, FilterStage
from pipeline.progress import Progress
from pipeline.recipe import from_dict
from pipeline.run import Run
from pipeline.schema import FILTER, STAGES
from pipeline.stages import execute

GOOD: dict[str, Any] = {
    "fetch_outcome": "ok", "decode_outcome": "ok", "duplicate_of": None, "relation": None, "distance": None,
    "width": 600, "height": 400, "captions": ["a red barn"], "tone_range": 90.0, "sharpness": 0.9,
    "native_sharpness": 0.9, "fine_detail": -3.0, "jpeg_quality": 90.0, "trace_evidence": 0.0,
}
TINY = {"width": 90, "height": 80}


def decided(*changes: dict[str, Any], **settings: Any) -> list[dict[str, Any]]:
    """Rows that differ from a good one by `changes`, as `filter` decides them."""
    types = {column.name: column.type for stage in STAGES.values() for column in stage.columns}
    types |= {column.name: column.type for column in checks.columns()}
    rows = [{"id": f"{number:032x}", **GOOD, **change} for number, change in enumerate(changes)]
    names = dict.fromkeys((*READS, *checks.columns_read()))
    table = pa.table({name: pa.array([row.get(name) for row in rows], types[name]) for name in names})
    chosen = {name: check.Settings() for name, check in checks.registry().items()} | settings
    run: Any = SimpleNamespace(recipe=SimpleNamespace(checks=chosen))
    made = FilterStage().compute(run, table)[""]
    assert made.schema == FILTER.arrow
    return made.to_pylist()


def test_a_good_row_stays() -> None:
    (row,) = decided({})
    assert row["kept"] is True
    assert row["failed"] == []
    assert [row[name] for name in ("dropped_by", "reason", "value", "threshold")] == [None] * 4


@pytest.mark.parametrize(("change", "stage", "reason", "value", "threshold"), [
    ({"fetch_outcome": "not_found", "decode_outcome": None, **TINY}, "ingest", "not_found", None, None),
    ({"decode_outcome": "truncated", **TINY}, "measure", "truncated", None, None),
    ({"duplicate_of": "ff", "relation": "bytes", "distance": 0, **TINY}, "dedupe", "duplicate_bytes", 0, None),
    ({"duplicate_of": "ff", "relation": "perceptual", "distance": 6}, "dedupe", "duplicate_perceptual", 6, None),
    (TINY, "filter", "low_resolution", 80, 200),
    ({"tone_range": 3.0}, "filter", "blank", 3, 12),
    ({"jpeg_quality": 11.0}, "filter", "heavy_compression", 11, 25),
    ({"traced_quality": 7.0, "trace_evidence": 0.9}, "filter", "heavy_compression", 7, 25),
])
def test_who_dropped_it_and_why(change: dict[str, Any], stage: str, reason: str, value: float | None,
                                threshold: float | None) -> None:
    (row,) = decided(change)
    assert (row["kept"], row["dropped_by"], row["reason"]) == (False, stage, reason)
    assert (row["value"], row["threshold"]) == (value, threshold)


def test_all_failed_checks_are_kept_also_those_that_only_flag_and_those_of_duplicates() -> None:
    bad = {**TINY, "jpeg_quality": 5.0, "captions": ["IMG_1.jpg"]}
    for row in decided(bad, {**bad, "duplicate_of": "ff", "relation": "pixels", "distance": 0}):
        assert [(one["check"], one["action"]) for one in row["failed"]] == [
            ("resolution", "drop"), ("compression", "drop"), ("caption", "flag")]


def test_a_flag_keeps_the_row_and_off_says_nothing() -> None:
    compression = checks.registry()["compression"].Settings
    (flagged,) = decided({"jpeg_quality": 5.0}, compression=compression(action="flag"))
    assert flagged["kept"]
    assert [one["reason"] for one in flagged["failed"]] == ["heavy_compression"]
    (ignored,) = decided({"jpeg_quality": 5.0}, compression=compression(action="off"))
    assert (ignored["kept"], ignored["failed"]) == (True, [])


def test_a_threshold_moves_the_border_exactly() -> None:
    rows = decided({"jpeg_quality": 24.0}, {"jpeg_quality": 25.0}, {"jpeg_quality": 26.0})
    assert [row["kept"] for row in rows] == [False, True, True]


def test_what_was_found_in_captions_is_kept_for_other_thresholds(tmp_path: Path,
                                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for seed, name in enumerate(["a red barn.png", "barn.png", "IMG_0001.png"]):
        draw(sample_scene(np.random.default_rng(seed))).save(folder / name)
    looked, find = list[int](), Caption.find
    monkeypatch.setattr(Caption, "find", lambda self, *given: looked.append(1) or find(self, *given))

    def weak(**settings: Any) -> tuple[list[str], int]:
        """Names of the pictures whose captions are called weak, and how often captions were looked at so far."""
        raw = {"name": "found", "workdir": str(tmp_path), "engine": {"workers": 1}, "filter": {"caption": settings},
               "ingest": {"sources": [{"kind": "folder", "name": "f", "path": str(folder)}]}}
        run = Run(from_dict(raw), Progress(quiet=True))
        execute(run, ["ingest", "measure", "dedupe", "filter"])
        rows = run.manifests.joined(["url", "failed"], stages=("ingest", "filter")).arrow(["url", "failed"]).to_pylist()
        return sorted(unquote(row["url"]).rsplit("/", 1)[1] for row in rows
                      if any(one["check"] == "caption" for one in row["failed"])), len(looked)

    assert weak() == (["IMG_0001.png"], 1)
    assert weak(min_words=2) == (["IMG_0001.png", "barn.png"], 1)
    assert weak(scripts=["greek"]) == (["IMG_0001.png", "a red barn.png", "barn.png"], 2)
    (folder / "barn.png").rename(folder / "a blue boat.png")
    assert weak(scripts=["latin"], min_words=2) == (["IMG_0001.png"], 3)
