"""All stages in running order, and the commands over them: run, plan (dry run), status."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow.compute as pc

from pipeline.caption import CaptionStage
from pipeline.dataset import DatasetStage
from pipeline.dedupe import DedupeStage
from pipeline.engine import check_engine
from pipeline.errors import GristmillError, StorageError
from pipeline.filter import FilterStage
from pipeline.ingest.stage import IngestStage
from pipeline.lease import Lease
from pipeline.measure import MeasureStage
from pipeline.receipt import JsonObject, Receipt
from pipeline.run import Run
from pipeline.score import ScoreStage
from pipeline.select import SelectStage
from pipeline.shard import ShardStage
from pipeline.stage import Stage, freshness, run_stage
from pipeline.takedown.settle import settle
from pipeline.weigh import WeighStage

STAGES: dict[str, Callable[[], Stage]] = {
    "ingest": IngestStage, "measure": MeasureStage, "dedupe": DedupeStage, "filter": FilterStage,
    "score": ScoreStage, "caption": CaptionStage, "select": SelectStage, "weigh": WeighStage,
    "shard": ShardStage, "dataset": DatasetStage,
}


@dataclass(frozen=True)
class Plan:
    """What would happen to a stage, and why."""

    stage: str
    runs: bool
    why: list[str]


def plan(run: Run, *, start: str | None = None) -> list[Plan]:
    """What `execute` would do. A stage whose input would run may turn out fresh when that gives the same rows."""
    plans: list[Plan] = []
    running: set[str] = set()
    for name, make in STAGES.items():
        stage = make()
        state = freshness(stage, run)
        upstream = [each for each in stage.inputs if each in running]
        if not state.fresh:
            plans.append(Plan(name, True, state.why))
        elif start == name:
            plans.append(Plan(name, True, ["asked for with --from"]))
        elif upstream:
            plans.append(Plan(name, True, [f"follows {upstream[-1]}"]))
        else:
            plans.append(Plan(name, False, ["fresh"]))
        if plans[-1].runs:
            running.add(name)
    return plans


def check_models(run: Run, stages: Sequence[Stage]) -> None:
    """Everything that would stop a later stage is found before any work starts."""
    check_engine(run.recipe.engine)
    for stage in stages:
        stage.check(run)


@contextmanager
def writing(run: Run) -> Iterator[None]:
    """Hold the run's lease; engines are closed and a full disk is said in one line."""
    try:
        with Lease(run.recipe.manifests_url) as run.lease:
            run.manifests.reload()
            settle(run)
            yield
    except OSError as error:
        if isinstance(error, GristmillError):
            raise
        raise StorageError(f"the system refused: {error}", hint="check space, permissions and open-file limits; "
                           "finished work is kept") from error
    finally:
        run.close()


def execute(run: Run, names: Sequence[str], *, force: bool = False, rewrite: bool = False) -> list[str]:
    """Bring the named stages up to date, in order. Returns those that computed anything."""
    stages = [ShardStage(rewrite=rewrite) if name == "shard" else STAGES[name]() for name in names]
    done: list[str] = []
    with writing(run):
        check_models(run, stages)
        for stage in stages:
            again = force or (rewrite and stage.name == "shard")
            receipt, computed = run_stage(stage, run, force=again)
            run.progress.say(f"{stage.name:<8} {'done' if computed else 'fresh'}  {_summary(receipt)}")
            if computed:
                done.append(stage.name)
    return done


def _summary(receipt: Receipt) -> str:
    seconds = receipt.timings.get("seconds", 0.0)
    return f"{receipt.rows} rows, {seconds:.1f} s"


def status(run: Run) -> list[JsonObject]:
    """Per stage: rows, kept, when, seconds, fresh or stale, why."""
    rows: list[JsonObject] = []
    for plan_of in plan(run):
        receipt = run.manifests.receipt(plan_of.stage)
        rows.append({
            "stage": plan_of.stage, "rows": None if receipt is None else receipt.rows,
            "kept": _kept(run, plan_of.stage), "finished": _when(receipt),
            "seconds": None if receipt is None else receipt.timings.get("seconds"),
            "fresh": not plan_of.runs, "why": "; ".join(plan_of.why[:3]),
        })
    return rows


def _when(receipt: Receipt | None) -> str | None:
    if receipt is None or "finished" not in receipt.timings:
        return None
    return datetime.fromtimestamp(receipt.timings["finished"], UTC).strftime("%Y-%m-%d %H:%MZ")


def _kept(run: Run, stage: str) -> int | None:
    """Rows still in after the stage, for the stages that decide."""
    if run.manifests.receipt(stage) is None:
        return None
    column = {"ingest": "fetch_outcome", "measure": "decode_outcome", "filter": "kept", "select": "kept"}.get(stage)
    if column is None:
        return None
    counted = (pc.value_counts(part.column(column)).to_pylist() for part in run.manifests.stage(stage).parts([column]))
    return sum(int(each["counts"]) for part in counted for each in part if each["values"] in (True, "ok"))
