"""Long tests, run by `make soak`: the demo's promises on three websites of full size."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline import stages
from pipeline.demo import check
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
