"""A source of another package, really installed: found by its entry point, in the recipe, and run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pipeline
from pipeline.ingest.addresses import row_id
from tests.pipeline.ingest import hostile

MODULE = '''
from typing import Literal

from pydantic import Field

from pipeline.ingest.sources.base import Found, Source, SourceSettings


class Pairs(Source):
    """A file with a picture's path and its caption on each line."""

    class Settings(SourceSettings):
        kind: Literal["pairs"] = Field("pairs", description="lines of path and caption")
        path: str = Field(description="the file")

    def fingerprint(self):
        return open(self.settings.path).read()

    def rows(self, web, log):
        for line in open(self.settings.path):
            path, caption = line.rstrip().split("=")
            yield Found(path=path, address=path, captions=(caption,), origins=("pairs",))
'''
PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "gristmill-pairs"
version = "1"
[project.entry-points."gristmill.sources"]
pairs = "gristmill_pairs:Pairs"
[tool.setuptools]
py-modules = ["gristmill_pairs"]
"""


def run(*words: str, place: Path) -> subprocess.CompletedProcess[str]:
    home = str(Path(pipeline.__path__[0]).parent)
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=place, check=False,
                          env={**os.environ, "PYTHONPATH": f"{place / 'installed'}{os.pathsep}{home}"})


def test_a_source_of_another_package(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "gristmill_pairs.py").write_text(MODULE)
    (tmp_path / "package" / "pyproject.toml").write_text(PROJECT)
    done = run("-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index", "--target", "installed",
               "./package", place=tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "a.png").write_bytes(hostile.png(1))
    (tmp_path / "pairs.txt").write_text("a.png=of a\nb.png=of b\n")
    assert run("-m", "pipeline", "init", "new.toml", "--kind", "pairs", place=tmp_path).returncode == 0
    assert 'kind = "pairs"' in (tmp_path / "new.toml").read_text()
    (tmp_path / "mine.toml").write_text('name = "mine"\n[[ingest.sources]]\nkind = "pairs"\nname = "p"\n'
                                        'path = "pairs.txt"\n[score]\nmodel = "none"\n')
    done = run("-m", "pipeline", "ingest", "--recipe", "mine.toml", place=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = pipeline.open(str(tmp_path / "manifests" / "mine")).stage("ingest").arrow(
        ["id", "captions", "fetch_outcome"]).to_pylist()
    assert rows == [
        {"id": row_id("p", "pairs", "a.png", 0), "captions": ["of a"], "fetch_outcome": "ok"},
        {"id": row_id("p", "pairs", "b.png", 0), "captions": ["of b"], "fetch_outcome": "not_found"}]
    wrong = run("-m", "pipeline", "ingest", "--recipe", "mine.toml", "--set", "ingest.sources.p.pth=1", place=tmp_path)
    assert (wrong.returncode, "Traceback" in wrong.stderr) == (2, False), json.dumps(wrong.stderr)
