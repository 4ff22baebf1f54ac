"""The whole road of curation on a small demo website, as a person would run it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import pipeline
from pipeline import score, stages
from pipeline.demo import check
from pipeline.progress import Progress
from pipeline.recipe import Recipe, load
from pipeline.run import Run
from tests.conftest import free_port

SCENES = 240
CURATE = [sys.executable, "-m", "pipeline.cli"]


def _options(workdir: Path, port: int) -> list[str]:
    return ["--workdir", str(workdir), "--set", f"ingest.sources.0.scenes={SCENES}",
            "--set", f"ingest.sources.0.port={port}"]


def _curate(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*CURATE, *words], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, port: int) -> Path:
    """A workdir with a finished run."""
    workdir = tmp_path_factory.mktemp("road")
    done = _curate("run", *_options(workdir, port))
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().splitlines()[-1].startswith("report:")
    (workdir / "output.txt").write_text(done.stdout)
    return workdir


def _recipe(workdir: Path, port: int, *sets: str) -> Recipe:
    base = [f"ingest.sources.0.scenes={SCENES}", f"ingest.sources.0.port={port}", "engine.workers=1"]
    return load("demo", [*base, *sets], workdir=str(workdir))


def _files(workdir: Path) -> dict[str, str]:
    """Hash of every manifest part, shard and sample table; receipts hold times and are left out."""
    kept = [*workdir.glob("manifests/demo/**/*.parquet"), *workdir.glob("data/demo/shards/*"),
            *workdir.glob("data/demo/raw/*")]
    return {str(path.relative_to(workdir)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(kept)
            if path.is_file() and ".work" not in path.parts}


def test_the_output_names_the_funnel_the_places_and_the_next_command(finished: Path) -> None:
    text = (finished / "output.txt").read_text()
    for words in ("rows in", "kept", "manifests:", "shards:", "next:", "train run"):
        assert words in text
    report = text.rstrip().splitlines()[-1].split(None, 1)[1]
    assert Path(report).exists()


def test_every_row_is_accounted_for(finished: Path) -> None:
    rows = pipeline.open(str(finished / "manifests" / "demo")).joined().pandas()
    assert rows["id"].is_unique
    dropped = rows[~rows["kept"]]
    assert dropped["reason"].notna().all()
    assert dropped["dropped_by"].notna().all()
    assert rows[rows["kept"]]["caption"].notna().all()
    assert rows[rows["kept"]]["shard"].notna().all()
    wide = pipeline.open(str(finished / "manifests" / "demo")).stage("dataset").pandas()
    assert wide["id"].tolist() == rows["id"].tolist()


def test_planted_faults_that_need_no_judgement_are_all_found(finished: Path, port: int) -> None:
    result = check.demo_check(Run(_recipe(finished, port), Progress(quiet=True)))
    certain = {"exact_copy", "truncated", "html_as_image", "thumbnail", "sliver", "blank", "robots"}
    found = {row.fault: row for row in result.faults}
    assert certain <= set(found)
    for name in certain:
        assert found[name].recall == 1.0, name
        assert (found[name].precision or 0) >= 0.98, name


def test_a_second_run_computes_nothing(finished: Path, port: int) -> None:
    before = _files(finished)
    run = Run(_recipe(finished, port), Progress(quiet=True))
    assert stages.execute(run, list(stages.STAGES)) == []
    assert _files(finished) == before


def test_a_threshold_change_reads_no_pixel(finished: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a picture was decoded")

    monkeypatch.setattr(score, "decode", refuse)
    tight = Run(_recipe(finished, port, "filter.resolution.min_side=300"), Progress(quiet=True))
    planned = {each.stage: each for each in stages.plan(tight)}
    assert not planned["ingest"].runs
    assert not planned["measure"].runs
    assert any("filter.resolution.min_side: 200 → 300" in why for why in planned["dedupe"].why)
    done = stages.execute(tight, list(stages.STAGES))
    assert "measure" not in done
    assert "filter" in done
    before = Run(_recipe(finished, port), Progress(quiet=True))
    stages.execute(before, list(stages.STAGES))  # loosened again: values were kept, still no pixel


def _kill_after(workdir: Path, port: int, seconds: float) -> bool:
    """Run, kill -9 the whole group after a while; whether it was still running."""
    process = subprocess.Popen([*CURATE, "run", *_options(workdir, port)], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    running = process.poll() is None
    if running:
        os.killpg(process.pid, 9)
    process.wait()
    return running


def test_kill_9_anywhere_ends_in_the_same_bytes(finished: Path, port: int, tmp_path: Path) -> None:
    killed = [_kill_after(tmp_path, port, seconds) for seconds in (3.0, 6.0, 9.0, 12.0)]
    assert any(killed)
    done = _curate("run", *_options(tmp_path, port))
    assert done.returncode == 0, done.stderr
    assert _files(tmp_path) == _files(finished)
