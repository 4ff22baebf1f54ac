"""A project folder that is moved as a whole goes on: same ids, bytes found, nothing measured or scored again."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline import storage
from pipeline.demo.scenes import draw, sample_scene
from pipeline.engine import LocalEngine
from pipeline.progress import Progress
from pipeline.recipe import load
from pipeline.run import Run
from pipeline.stages import STAGES, execute
from tests.pipeline.ingest.test_parquet_source import images, write
from tests.pipeline.ingest.test_tars_source import tar_of

RECIPE = """
name = "mine"
[[ingest.sources]]
kind = "folder"
name = "folder"
path = "pictures"
[[ingest.sources]]
kind = "tars"
name = "tars"
path = "shards/*.tar"
[[ingest.sources]]
kind = "parquet"
name = "parquet"
path = "dataset"
[score]
model = "none"
[weigh]
classes = "none"
"""
ABOUT_PLACES = ["url", "container", "value_key"]


class Idle(LocalEngine):
    """Fetching may look at bytes where they now lie; whoever wants a decoder or a model is stopped."""

    def map(self, factory: Any, jobs: Iterable[Any], *, kind: Any, **how: Any) -> Iterator[Any]:
        if kind == "inline":
            yield from super().map(factory, jobs, kind=kind, **how)
            return
        for _ in jobs:
            raise AssertionError("a picture is measured again")


def three() -> list[bytes]:
    rng, files = np.random.default_rng(3), [io.BytesIO() for _ in range(3)]
    for file in files:
        draw(sample_scene(rng)).save(file, "png")
    return [file.getvalue() for file in files]


def run_all(engine: LocalEngine) -> tuple[list[str], list[dict[str, Any]]]:
    """Stages that computed something, and all rows, in the present folder."""
    run = Run(load("mine.toml"), Progress(quiet=True))
    run.__dict__["engine"] = engine
    done = execute(run, list(STAGES))
    return done, pipeline.open(run.recipe.manifests_url).joined().arrow().drop_columns(ABOUT_PLACES).to_pylist()


def test_a_moved_project_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = three()
    old, new = tmp_path / "old", tmp_path / "elsewhere" / "new"
    (old / "pictures").mkdir(parents=True)
    (old / "shards").mkdir()
    new.parent.mkdir()
    (old / "mine.toml").write_text(RECIPE)
    (old / "pictures" / "a.png").write_bytes(pictures[0])
    (old / "shards" / "0.tar").write_bytes(tar_of([("0.png", pictures[1]), ("0.txt", b"from a tar")]))
    write(old / "dataset" / "0.parquet", {"image": images(pictures[2])})
    monkeypatch.chdir(old)
    done, before = run_all(LocalEngine(1))
    assert done == list(STAGES)
    assert [row["fetch_outcome"] for row in before] == ["ok"] * 3
    assert run_all(Idle(1)) == ([], before)
    old.rename(new)
    monkeypatch.chdir(new)
    _, after = run_all(Idle(1))
    assert after == before
    assert run_all(Idle(1)) == ([], after)
    places = ["container", "offset", "length", "sha256"]
    for row in pipeline.open("manifests/mine").stage("ingest").located("data/mine").arrow(places).to_pylist():
        storage.read_range(row["container"], row["offset"], row["length"], sha256=row["sha256"])


@pytest.mark.parametrize("where", [".", "data"])
def test_a_run_does_not_read_what_it_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Manifests, raw tars and shards lie in the working folder, as may the pictures."""
    pictures = three()
    monkeypatch.chdir(tmp_path)
    recipe = RECIPE.replace("pictures", "nothing").replace("shards/*.tar", where).replace("dataset", where)
    folder = re.compile(r'\[\[ingest.sources]]\nkind = "folder".*?(?=\[\[)', re.DOTALL)
    Path("mine.toml").write_text(folder.sub("", recipe))
    write(Path("data/0.parquet"), {"image": images(pictures[0], pictures[2])})
    Path("data/0.tar").write_bytes(tar_of([("0.png", pictures[1])]))
    done, rows = run_all(LocalEngine(1))
    assert ([row["fetch_outcome"] for row in rows], done) == (["ok"] * 3, list(STAGES))
    assert run_all(Idle(1)) == ([], rows)
