"""A takedown that is killed: whichever of its steps was the last, the next command finishes it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline import storage
from pipeline.errors import StorageError
from pipeline.manifest import WORK
from pipeline.run import Run
from pipeline.takedown.command import forget
from pipeline.takedown.settle import pending
from tests.pipeline.ingest import hostile
from tests.pipeline.ingest.hostile import Hostile
from tests.pipeline.takedown.conftest import Made
from tests.pipeline.takedown.marked import WORDS, curate, recipe, rows_of, site, traces
from tests.pipeline.takedown.test_forget import MARKED, SHA, needles, reachable, trained


@pytest.fixture
def server() -> Iterator[Hostile]:
    with hostile.serve(site().paths) as running:
        yield running


class Killed(BaseException):
    """As final as kill -9 to everything that catches errors."""


def changes(monkeypatch: pytest.MonkeyPatch, last: int) -> list[str]:
    """Let `last` more files be written or removed; the one after that kills."""
    made: list[str] = []

    def counted(name: str) -> None:
        whole = getattr(storage, name)

        def change(url: str, *rest: Any) -> Any:
            if len(made) == last:
                raise Killed
            made.append(f"{name} {url}")
            return whole(url, *rest)

        monkeypatch.setattr(storage, name, change)

    for name in ("atomic_writer", "content_named", "remove"):
        counted(name)
    return made


@pytest.mark.soak
def test_killed_between_any_two_changes(made: Made, tmp_path: Path) -> None:
    given, server = made.copy(tmp_path / "whole"), made.server
    run = Run(given)
    row = rows_of(run)["marked.png"]
    trained(tmp_path / "whole", run)
    ids = reachable(tmp_path / "whole", run)
    subprocess.run(["cp", "-r", tmp_path / "whole", tmp_path / "other"], check=True)
    sought = needles(row)
    with pytest.MonkeyPatch.context() as patch:
        steps = changes(patch, 10_000)
        forget(Run(given), [SHA])
    assert len(steps) > 25
    for last in range(1, len(steps)):
        place = tmp_path / f"killed-{last}"
        subprocess.run(["cp", "-r", tmp_path / "other", place], check=True)
        killed = recipe(str(place), server)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
            changes(patch, last)
            forget(Run(killed), [SHA])
        if last > len(steps) - 3:  # only the report is missing
            continue
        assert pending(Run(killed)) or last > 3
        run = curate(killed)
        left = {name for _, name in traces(place, sought)}
        assert left <= {"magenta"}, (steps[last - 1], left)
        assert {name for name, row in rows_of(run).items() if row["fetch_outcome"] == "forgotten"} == {
            "marked.png", "again.png"}
        assert reachable(place, run) == ids - {row["id"] for row in rows_of(run).values() if not row["sha256"]}
        assert not pending(run)
    assert server.hits["/marked.png"] == 0


def test_bytes_that_a_killed_ingest_left_behind(server: Hostile, tmp_path: Path) -> None:
    """No manifest of `ingest` stands: chunks and raw tars are all there is."""
    given = recipe(str(tmp_path), server, chunk_rows=3)
    program = """
import os, sys
from pipeline import rowstage, recipe, stages
from pipeline.progress import Progress
from pipeline.run import Run
from tests.pipeline.takedown import marked
rowstage.Memo.gather = lambda *_: os._exit(9)
"""
    program += f"given = marked.recipe({str(tmp_path)!r}, marked.hostile.Hostile(port={server.port}), chunk_rows=3)\n"
    program += "stages.execute(Run(given, Progress(quiet=True)), ['ingest'])"
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": os.getcwd()}, check=False)
    assert done.returncode == 9
    manifests, raw = tmp_path / "manifests/marked", tmp_path / "data/marked/raw"
    assert len(list((manifests / "ingest" / WORK).rglob("chunk-*"))) == 3
    assert MARKED in b"".join(path.read_bytes() for path in raw.iterdir())
    forget(Run(given), [f"{server.base}/marked.png", SHA])
    assert MARKED not in b"".join(path.read_bytes() for path in raw.iterdir())
    assert {name for _, name in traces(tmp_path / "manifests", {"words": WORDS.encode()})} == set()
    before = server.hits.copy()
    run = curate(given, "ingest")
    assert {name for name, row in rows_of(run).items() if row["fetch_outcome"] == "forgotten"} >= {"marked.png"}
    assert {path for path in server.hits if server.hits[path] > before[path]} <= {
        "/again.png", "/robots.txt", "/.well-known/tdmrep.json"}


@pytest.mark.parametrize("last", [7, 18])
def test_killed_at_a_few_moments(last: int, made: Made, tmp_path: Path) -> None:
    given = made.copy(tmp_path)
    row = rows_of(Run(given))["marked.png"]
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        changes(patch, last)
        forget(Run(given), [SHA])
    run = curate(given, "shard", "dataset")
    assert {name for _, name in traces(tmp_path, needles(row))} <= {"magenta"}
    assert row["id"] not in reachable(tmp_path, run)


def test_a_full_disk_is_no_end(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = made.copy(tmp_path)
    with monkeypatch.context() as patch:
        def full(url: str, data: bytes) -> None:
            raise StorageError("the disk is full", hint="free some space")

        patch.setattr("pipeline.takedown.raw.blank_members", full)
        with pytest.raises(StorageError, match="disk is full"):
            forget(Run(given), [SHA])
    assert pending(Run(given))
    curate(given, "dataset")
    assert {name for _, name in traces(tmp_path / "data", {"bytes": MARKED[200:260]})} <= {"magenta"}
