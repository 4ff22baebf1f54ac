"""One finished run of the marked website, made once; tests work on copies."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipeline.recipe import Recipe
from tests.pipeline.ingest import hostile
from tests.pipeline.ingest.hostile import Hostile
from tests.pipeline.takedown.marked import curate, recipe, site


@dataclass
class Made:
    """The website, and a run of it that must not be written to."""

    server: Hostile
    folder: Path

    def copy(self, to: Path, **ingest: Any) -> Recipe:
        """A copy of the run in `to`, with its recipe. The website is as it was, its hits counted from 0."""
        shutil.copytree(self.folder, to, dirs_exist_ok=True)
        self.server.paths = dict(site().paths)
        self.server.hits.clear()
        return recipe(str(to), self.server, **ingest)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    folder = tmp_path_factory.mktemp("marked")
    with hostile.serve(site().paths) as server:
        curate(recipe(str(folder), server, chunk_rows=4))
        yield Made(server, folder)
