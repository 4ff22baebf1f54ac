"""`curate forget`: say what would go, put tombstones in place, take down, draw the report anew."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from pipeline import stages, storage
from pipeline.errors import GristmillError
from pipeline.ingest.freshness import RAW
from pipeline.ingest.tombstones import append, read
from pipeline.manifest import read_part
from pipeline.receipt import JsonObject
from pipeline.takedown.request import Request, several
from pipeline.takedown.settle import settle
from pipeline.trace import clean

if TYPE_CHECKING:
    from pipeline.run import Run

SHOWN = 20
"""Rows listed for people; --json lists all."""


def forget(run: Run, asked: Sequence[str], *, reason: str = "", similar: int | None = None, hide: bool = False,
           dry_run: bool = False, agree: Callable[[JsonObject], bool] = lambda _: True) -> JsonObject:
    """Take down what is asked for, everywhere in the run, for good. Returns what went, or for `dry_run` would go.

    `agree` is asked with the same before anything is done. Raises GristmillError for what is not understood, BusyError
    while another process writes to the run.
    """
    when = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    told = _told(run, several(run, asked, when=when, reason=reason, similar=similar, hide=hide))
    if dry_run or not agree(told):
        return {**told, "done": False}
    begun = time.monotonic()
    with stages.writing(run):
        requests = several(run, asked, when=when, reason=reason, similar=similar, hide=hide)
        told = _told(run, requests)
        for request in requests:
            if request.tombstone.asked not in told["already"]:
                append(run.recipe.manifests_url, request.tombstone)
        settle(run)
    return {**told, "done": True, "seconds": round(time.monotonic() - begun, 1), "report": _report(run)}


def _report(run: Run) -> str | None:
    """The report without what is gone; None where it cannot be drawn, since a takedown does not wait for that."""
    from pipeline import report

    if run.manifests.receipt("ingest") is None:
        return None
    stale = {name: (False, "a takedown" if name == "ingest" else "follows ingest") for name in stages.STAGES}
    try:  # neither sources nor models are asked: a takedown needs none of them
        return report.write(run.manifests, run.recipe, states=stale)
    except (GristmillError, OSError) as error:
        run.progress.say(f"  the old report is gone; a new one cannot be drawn now ({error})")
        return None


def _told(run: Run, requests: Sequence[Request]) -> JsonObject:
    ids = {row_id: request.tombstone.asked for request in requests for row_id in request.gone.rows}
    rows = list(_rows(run, ids))
    known = {rule for tombstone in read(run.recipe.manifests_url) for rule in tombstone.rules()}
    already = [each.tombstone.asked for each in requests if known.issuperset(each.tombstone.rules())]
    mine = {row["container"] for row in rows if row["container"] and row["container"].startswith(f"{RAW}/")}
    return {
        "asked": [request.tombstone.asked for request in requests],
        "already": already,
        "matched_nothing": [request.tombstone.asked for request in requests
                            if not request.gone.rows and request.tombstone.asked not in already],
        "rows": rows, "pictures": len({row["sha256"] for row in rows} - {None}),
        "raw_tars": sorted(mine), "shards": sorted({row["shard"] for row in rows} - {None}),
        "in_place": sorted({row["container"] for row in rows if row["container"]} - mine),
        "trained": storage.exists(run.recipe.runs_url),
    }


def _rows(run: Run, ids: dict[str, str]) -> Iterator[JsonObject]:
    shard = run.manifests.receipt("shard")
    tars: dict[str, str] = {}
    for part in [] if shard is None else shard.tables[""]:
        table = read_part(run.manifests.folder("shard"), part, ["id", "shard"])
        tars.update((row["id"], row["shard"]) for row in table.to_pylist() if row["id"] in ids)
    ingest = run.manifests.receipt("ingest")
    for part in [] if ingest is None else ingest.tables[""]:
        columns = ["id", "url", "fetch_outcome", "sha256", "container"]
        for row in read_part(run.manifests.folder("ingest"), part, columns).to_pylist():
            if row["id"] in ids:
                sha256 = None if row["sha256"] is None else row["sha256"].hex()
                yield {**row, "sha256": sha256, "shard": tars.get(row["id"]), "asked": ids[row["id"]]}


def render(told: JsonObject) -> Group:
    """What went, or would go, for the terminal."""
    return Group(*_lines(told))


def _lines(told: JsonObject) -> Iterator[Text | Table]:
    does = "took down" if told["done"] else "would take down"
    yield Text(f"{does} {len(told['rows']):,} rows with {told['pictures']:,} pictures", style="bold")
    table = Table(box=None, show_header=False, pad_edge=True, padding=(0, 1, 0, 1))
    for row in told["rows"][:SHOWN]:
        table.add_row(row["id"][:12], row["fetch_outcome"], clean(row["url"]))
    if told["rows"]:
        yield table
    if len(told["rows"]) > SHOWN:
        yield Text(f" and {len(told['rows']) - SHOWN:,} more: --json lists all", style="dim")
    where = {"raw tars": told["raw_tars"], "shards": told["shards"]}
    yield from (Text(f"{what}: {len(names):,}") for what, names in where.items() if names)
    if told["in_place"]:
        yield Text(f"{len(told['in_place']):,} of your own files stay as they are, and are kept out: "
                   f"{', '.join(told['in_place'][:3])}{', …' if len(told['in_place']) > 3 else ''}")
    for asked in told["already"]:
        yield Text(f"{asked}: was forgotten before")
    for asked in told["matched_nothing"]:
        yield Text(f"{asked}: no row of this run; it {'is' if told['done'] else 'would be'} kept out from now on")
    if told["trained"]:
        yield Text("models already trained keep what they learnt: `train run --fresh` trains anew")
    if told["done"]:
        yield Text("next: curate run, which elects copies, counts and weighs without them")
