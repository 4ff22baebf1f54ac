"""Long tests, run by `make soak`: the demo's promises at full size."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline import stages
from pipeline.demo import check, judge
from pipeline.progress import Progress
from pipeline.recipe import load
from pipeline.run import Run
from tests.conftest import free_port

CERTAIN = {"exact_copy", "truncated", "html_as_image", "thumbnail", "sliver", "blank", "robots", "opt_out_page",
           "opt_out_header"}
LEAST = {**dict.fromkeys(CERTAIN, (1.0, 0.98)),
         **dict.fromkeys(("reencoded_copy", "rescaled_copy", "heavy_jpeg", "blurred", "blown_up"), (0.95, 0.95)),
         "wrong_caption": (0.9, 0.9)}
"""Fault → least recall and precision."""


@pytest.mark.soak
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_planted_faults_are_found_on_a_website_of_full_size(seed: int, tmp_path: Path) -> None:
    sets = [f"ingest.sources.0.seed={seed}", f"ingest.sources.0.port={free_port()}"]
    run = Run(load("demo", sets, workdir=str(tmp_path)), Progress(quiet=True))
    stages.execute(run, list(stages.STAGES))
    found = {row.fault: row for row in check.demo_check(run).faults}
    for fault, (recall, precision) in LEAST.items():
        assert (found[fault].recall or 0) >= recall, fault
        assert (found[fault].precision or 0) >= precision, fault


CURATE, TRAIN = [sys.executable, "-m", "pipeline.cli"], [sys.executable, "-m", "train"]


def run_to_the_end(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def content(workdir: Path) -> dict[str, str]:
    """Hash of every manifest part, raw tar, shard and sample table."""
    kept = [*workdir.glob("manifests/demo/**/*.parquet"), *workdir.glob("data/demo/shards/*"),
            *workdir.glob("data/demo/raw/*")]
    return {str(path.relative_to(workdir)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(kept)
            if path.is_file() and ".work" not in path.parts}


@pytest.mark.soak
def test_killed_at_twenty_random_moments_it_ends_in_the_same_bytes(tmp_path: Path) -> None:
    port, draw = free_port(), random.Random(0)
    command = [*CURATE, "run", "--set", f"ingest.sources.0.port={port}", "--workdir"]
    run_to_the_end(*command, str(tmp_path / "undisturbed"))
    killed = 0
    for _ in range(20):
        process = subprocess.Popen([*command, str(tmp_path / "killed")], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, start_new_session=True)
        time.sleep(draw.uniform(1.0, 14.0))
        if process.poll() is None:
            os.killpg(process.pid, 9)
            killed += 1
        process.wait()
    assert killed >= 10
    run_to_the_end(*command, str(tmp_path / "killed"))
    assert content(tmp_path / "killed") == content(tmp_path / "undisturbed")


@pytest.mark.soak
def test_a_whole_training_draws_what_was_asked_for(tmp_path: Path) -> None:
    """Half of the pictures have the right shape in the right colour, also of pairs that were never shown."""
    for command in ([*CURATE, "run", "--set", f"ingest.sources.0.port={free_port()}"], [*TRAIN, "run"],
                    [*TRAIN, "evaluate"]):
        run_to_the_end(*command, "--workdir", str(tmp_path))
    judged = {(row.group, row.prompts): row for row in judge.judge(str(tmp_path / "runs" / "demo" / "evaluation"))}
    assert judged["sample", "all"].both >= 0.5
    assert judged["sample", "withheld"].both >= 0.25
    assert judged["sample", "all"].chance < 0.1
    assert judged["reconstruction", "all"].both >= 0.75
