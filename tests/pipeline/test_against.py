"""dedupe.against: pictures of an evaluation set are kept out, whatever form they come in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipeline.demo.scenes import draw, sample_scene
from pipeline.errors import ManifestError
from pipeline.progress import Progress
from pipeline.recipe import from_dict
from pipeline.run import Run
from pipeline.stages import execute, plan


def scene(seed: int) -> Image.Image:
    return draw(sample_scene(np.random.default_rng(seed)))


def run_of(tmp_path: Path, name: str, **dedupe: Any) -> Run:
    raw = {"name": name, "workdir": str(tmp_path), "engine": {"workers": 1}, "score": {"model": "none"},
           "dedupe": dedupe, "ingest": {"sources": [{"kind": "folder", "name": "f", "path": str(tmp_path / name)}]}}
    return Run(from_dict(raw), Progress(quiet=True))


@pytest.fixture
def sets(tmp_path: Path) -> Path:
    """Evaluation: scenes 0 to 3. Training: copies of 0 (twice the size), 1 (bytes), 2 (pixels), and scenes 4 to 7."""
    for name in ("evaluation", "training"):
        (tmp_path / name).mkdir()
    for seed in range(4):
        scene(seed).save(tmp_path / "evaluation" / f"e{seed}.png")
    large = scene(0)
    large.resize((large.width * 2, large.height * 2), Image.Resampling.LANCZOS).save(
        tmp_path / "training" / "0.jpg", quality=92)
    (tmp_path / "training" / "1.png").write_bytes((tmp_path / "evaluation" / "e1.png").read_bytes())
    scene(2).save(tmp_path / "training" / "2.png", compress_level=1)
    for seed in range(4, 8):
        scene(seed).save(tmp_path / "training" / f"{seed}.png")
    return tmp_path


def decided(run: Run) -> dict[str, tuple[str | None, str | None]]:
    """File name → (relation, row or picture it is a copy of)."""
    rows = run.manifests.joined(["url", "relation", "duplicate_of"]).arrow().to_pylist()
    return {row["url"].rsplit("/", 1)[-1]: (row["relation"], row["duplicate_of"]) for row in rows}


def test_copies_of_an_evaluation_set_are_dropped(sets: Path) -> None:
    evaluation = run_of(sets, "evaluation")
    execute(evaluation, ["ingest", "measure"])
    names = decided_ids(evaluation)
    folder = str(sets / "manifests" / "evaluation")
    run = run_of(sets, "training", against=[folder])
    execute(run, ["ingest", "measure", "dedupe", "filter"])
    found = decided(run)
    assert found == {
        **{f"{seed}.{ending}": ("held_out", f"evaluation/{names[f'e{seed}.png']}")
           for seed, ending in ((0, "jpg"), (1, "png"), (2, "png"))},
        **{f"{seed}.png": (None, None) for seed in range(4, 8)},
    }
    reasons = run.manifests.stage("filter").arrow().column("reason").to_pylist()
    assert reasons == ["duplicate_held_out"] * 3 + [None] * 4

    assert not any(each.runs for each in plan(run) if each.stage in ("ingest", "measure", "dedupe", "filter"))
    scene(5).save(sets / "evaluation" / "e5.png")
    evaluation = run_of(sets, "evaluation")
    execute(evaluation, ["ingest", "measure"])
    run = run_of(sets, "training", against=[folder])
    states = {each.stage: each.runs for each in plan(run)}
    assert not states["measure"]
    assert states["dedupe"], "the evaluation set has grown"
    execute(run, ["dedupe"])
    assert decided(run)["5.png"][0] == "held_out"
    assert decided(run)["6.png"] == (None, None)


def decided_ids(run: Run) -> dict[str, str]:
    rows = run.manifests.joined(["id", "url"]).arrow().to_pylist()
    return {row["url"].rsplit("/", 1)[-1]: row["id"] for row in rows}


def test_a_set_that_was_not_measured_is_said_before_any_work(sets: Path) -> None:
    run = run_of(sets, "training", against=[str(sets / "manifests" / "nowhere")])
    with pytest.raises(ManifestError, match="nowhere"):
        execute(run, ["ingest", "measure", "dedupe"])
    assert not (sets / "manifests" / "training" / "ingest").exists()
