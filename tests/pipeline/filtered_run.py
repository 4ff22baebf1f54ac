"""A made-up run as it stands after `filter`, to be copied and gone on with."""

from __future__ import annotations

import shutil
import types
from pathlib import Path
from typing import Any

from pipeline.checks.caption import Caption
from pipeline.engine import LocalEngine
from pipeline.progress import Progress
from pipeline.score import ScoreSettings
from pipeline.select import SelectSettings
from tests.pipeline.made_up import MadeUpRun, make_up


def filtered_run(folder: Path) -> MadeUpRun:
    """Everything up to `filter`."""
    made = make_up(folder)
    made.write("ingest", "measure", "dedupe", "filter")
    return made


def copy_of(made: MadeUpRun, folder: Path) -> MadeUpRun:
    """The same rows and manifests in a folder of its own; the bytes stay where they are."""
    shutil.copytree(Path(made.workdir) / "manifests", folder / "manifests")
    return MadeUpRun(str(folder), made.rows, made.name, made.planted)


def run_of(made: MadeUpRun, settings: ScoreSettings, workers: int = 1, **more: Any) -> Any:
    """What stages are given: the run with a recipe of just the sections at hand."""
    more.setdefault("select", SelectSettings())
    recipe = types.SimpleNamespace(name="mine", seed=0, score=settings, checks={"caption": Caption.Settings()}, **more)
    return types.SimpleNamespace(
        recipe=recipe, manifests=made.manifests, engine=LocalEngine(workers), progress=Progress(), lease=None,
        data=str(Path(made.workdir) / "data" / made.name),
    )
