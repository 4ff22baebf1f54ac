"""The promises of a measuring stage: computed once, taken over, resumed, byte for byte the same."""

from __future__ import annotations

import hashlib
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from pipeline import stage
from pipeline.engine import LocalEngine
from pipeline.manifest import Manifests
from pipeline.progress import Progress
from pipeline.receipt import digest
from pipeline.rowstage import RowStage, Step, every_row
from pipeline.schema import ID, VALUE_KEY, Column, TableSchema
from pipeline.stage import Output, freshness, run_stage

LISTING = TableSchema((ID, Column("word", pa.string(), "any word"), Column("rank", pa.int64(), "any number")))
VALUES = TableSchema((ID, Column("letters", pa.int64(), "length of the word"), VALUE_KEY))


class Listing(RowStage):
    """Stands for ingest: fixed rows in parts of three."""

    name: ClassVar[str] = "ingest"
    carried = ("id", "word", "rank")

    def __init__(self, words: list[str], rank: int = 0) -> None:
        self.words, self.rank = words, rank

    def tables(self, run: Any) -> dict[str, TableSchema]:
        return {"": LISTING}

    def settings(self, run: Any) -> dict[str, Any]:
        return {"words": self.words, "rank": self.rank}

    def steps(self, run: Any) -> list[Step]:
        return []

    def execute(self, run: Any, output: Output) -> None:
        output.layout = digest(self.words)
        for start in range(0, len(self.words), 3):
            part = self.words[start:start + 3]
            output.write("", pa.table({"id": [f"{start + i:032x}" for i in range(len(part))], "word": part,
                                       "rank": [len(w) - self.rank for w in part]}))


def _count(log: Path, fail_at: str | None, rows: pa.Table) -> pa.Table:
    words = rows.column("word").to_pylist()
    with log.open("a") as file:
        file.writelines(f"{word}\n" for word in words)
    if fail_at in words:
        raise RuntimeError("killed")
    return pa.table({"letters": [len(word) for word in words]})


def _worker(log: Path, fail_at: str | None) -> Callable[[pa.Table], pa.Table]:
    return partial(_count, log, fail_at)


def _above(threshold: int, rows: pa.Table) -> np.ndarray:
    return rows.column("rank").to_numpy() >= threshold


class Letters(RowStage):
    """Counts letters of words whose rank reaches a threshold."""

    name: ClassVar[str] = "measure"
    inputs: ClassVar[tuple[str, ...]] = ("ingest",)

    def __init__(self, log: Path, threshold: int | None = None, fail_at: str | None = None, model: str = "a") -> None:
        self.log, self.threshold, self.fail_at, self.model = log, threshold, fail_at, model

    def tables(self, run: Any) -> dict[str, TableSchema]:
        return {"": VALUES}

    def settings(self, run: Any) -> dict[str, Any]:
        return {"threshold": self.threshold, "model": self.model}

    def steps(self, run: Any) -> list[Step]:
        wanted = every_row if self.threshold is None else partial(_above, self.threshold)
        return [Step("", VALUES, {"model": self.model}, ("word",), ("word",), partial(_worker, self.log, self.fail_at),
                     wanted, kind="inline", chunk_rows=2, wanted_reads=("rank",))]


@pytest.fixture
def run(tmp_path: Path) -> Any:
    return types.SimpleNamespace(manifests=Manifests(str(tmp_path / "run")), engine=LocalEngine(1),
                                 progress=Progress(quiet=True), recipe=None, lease=None, data=str(tmp_path / "data"))


def _computed(log: Path) -> list[str]:
    words = log.read_text().split() if log.exists() else []
    log.unlink(missing_ok=True)
    return words


def _files(run: Any) -> dict[str, str]:
    folder = Path(run.manifests.url) / "measure"
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.parquet"))}


WORDS = ["a", "bb", "ccc", "dddd", "bb", "eeeee", "ffffff"]


def test_values_are_right_and_equal_rows_are_computed_once(run: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    run_stage(Listing(WORDS), run)
    run_stage(Letters(log), run)
    assert run.manifests.stage("measure").arrow().column("letters").to_pylist() == [1, 2, 3, 4, 2, 5, 6]
    assert sorted(_computed(log)) == sorted(set(WORDS))


def test_nothing_is_done_twice(run: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    run_stage(Listing(WORDS), run)
    run_stage(Letters(log), run)
    _computed(log)
    _, computed = run_stage(Letters(log), run)
    assert not computed
    run_stage(Letters(log), run, force=True)
    assert _computed(log) == []


def test_tightening_computes_nothing_loosening_only_what_is_new(run: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    run_stage(Listing(WORDS), run)
    run_stage(Letters(log, threshold=3), run)
    assert _computed(log) == ["ccc", "dddd", "eeeee", "ffffff"]
    run_stage(Letters(log, threshold=5), run)
    assert _computed(log) == []
    assert run.manifests.stage("measure").arrow().column("letters").to_pylist() == [None] * 5 + [5, 6]
    run_stage(Letters(log, threshold=2), run)  # back down: the values let go in between were kept in reserve
    assert _computed(log) == ["bb"]
    assert run.manifests.stage("measure").arrow().column("letters").to_pylist() == [None, 2, 3, 4, 2, 5, 6]


def test_another_model_computes_everything_again(run: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    run_stage(Listing(WORDS), run)
    run_stage(Letters(log), run)
    _computed(log)
    run_stage(Letters(log, model="b"), run)
    assert sorted(_computed(log)) == sorted(set(WORDS))


def test_appended_rows_alone_are_computed(run: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    run_stage(Listing(WORDS), run)
    run_stage(Letters(log), run)
    _computed(log)
    run_stage(Listing([*WORDS, "ggggggg", "a"]), run)
    run_stage(Letters(log), run)
    assert _computed(log) == ["ggggggg"]


def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(run: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    run_stage(Listing(WORDS), run)
    with pytest.raises(RuntimeError, match="killed"):
        run_stage(Letters(log, fail_at="dddd"), run)
    done_before = _computed(log)
    assert run.manifests.receipt("measure") is None
    run_stage(Letters(log), run)
    resumed = _computed(log)
    finished = [word for word in done_before if word not in ("dddd", "eeeee")]
    assert finished
    assert not set(finished) & set(resumed)
    after = _files(run)
    other = types.SimpleNamespace(**{**vars(run), "manifests": Manifests(str(tmp_path / "other"))})
    run_stage(Listing(WORDS), other)
    run_stage(Letters(log), other)
    assert _files(other) == after


def test_a_glob_sees_one_generation(run: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    run_stage(Listing(WORDS), run)
    for threshold in (1, 3, 5):
        run_stage(Letters(log, threshold=threshold), run)
    assert len(_files(run)) == 3  # seven rows in parts of three


def test_a_run_killed_after_its_receipt_is_tidied_up_by_the_next(run: Any, tmp_path: Path,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    """The receipt stands, so nothing is to be done, but older parts and chunks still lie about."""
    log, folder = tmp_path / "log", Path(run.manifests.url) / "measure"
    run_stage(Listing(WORDS), run)
    run_stage(Letters(log, threshold=5), run)
    with monkeypatch.context() as killed:
        killed.setattr(stage, "_sweep", _die)
        with pytest.raises(RuntimeError, match="killed"):
            run_stage(Letters(log, threshold=1), run)
    assert len(_files(run)) > 3
    assert list(folder.rglob("chunk-*"))
    run.manifests.reload()
    assert run_stage(Letters(log, threshold=1), run)[1] is False
    assert len(_files(run)) == 3
    assert not list(folder.rglob("chunk-*"))
    assert not (folder / stage.SETTLING).exists()


def _die(*_: Any) -> None:
    raise RuntimeError("killed")


def test_the_reason_for_running_names_the_setting(run: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    run_stage(Listing(WORDS), run)
    run_stage(Letters(log, threshold=1), run)
    assert freshness(Letters(log, threshold=1), run).fresh
    state = freshness(Letters(log, threshold=4), run)
    assert (state.fresh, state.why) == (False, ["settings.threshold: 1 → 4"])


def test_a_lost_part_is_noticed_and_made_again_without_computing(run: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    run_stage(Listing(WORDS), run)
    run_stage(Letters(log), run)
    before = _files(run)
    _computed(log)
    lost = sorted((Path(run.manifests.url) / "measure").glob("*.parquet"))[-1]
    lost.unlink()
    assert not freshness(Letters(log), run).fresh
    run_stage(Letters(log), run)
    assert _files(run) == before
    assert _computed(log) == ["ffffff"]


def test_an_input_that_changed_without_changing_its_rows_leaves_later_stages_fresh(run: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    run_stage(Listing(WORDS), run)
    run_stage(Letters(log), run)
    run_stage(Listing(WORDS), run, force=True)
    assert freshness(Letters(log), run).fresh
