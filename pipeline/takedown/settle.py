"""Bringing a run in line with its rules: whatever they keep out and is still there goes, everywhere.

`settle` runs before any stage does and after `curate forget` has put its tombstone in place. It may be killed at any
moment: the mark that it has finished is written last, and every step finds again what it has left to do.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from pipeline import storage
from pipeline.ingest.ban import Ban
from pipeline.ingest.freshness import RAW
from pipeline.ingest.guarded import without_words
from pipeline.ingest.listing import FOLDER, Frozen
from pipeline.ingest.tombstones import read
from pipeline.manifest import read_part
from pipeline.takedown import raw, reserves, rows, shards
from pipeline.takedown.gone import Gone, find

if TYPE_CHECKING:
    from pipeline.run import Run

MARK = "takedown.json"
"""In the manifests folder: which rules the run was last brought in line with."""

REPORT = "report"


@runtime_checkable
class KeepsPictures(Protocol):
    """A section of the recipe whose package keeps pictures or words of its own, such as cached latents."""

    def forget(self, runs: str, sha256: Collection[bytes], captions: Collection[str], *, drawn: bool) -> None:
        """Remove them from below `runs`, the run's folder for training. `drawn`: they were among the samples, so that
        pictures drawn of some samples may show one."""


def pending(run: Run) -> bool:
    """Whether the run's rules have changed since it was last brought in line with them."""
    ban, url = Ban.of(run), storage.join(run.recipe.manifests_url, MARK)
    if not storage.exists(url):
        return not ban.empty
    try:
        return bool(json.loads(storage.read_bytes(url)) != ban.basis())
    except ValueError:
        return True


def settle(run: Run) -> None:
    """Take down what the run's rules keep out. The caller holds the run's lease. Raises StorageError, BusyError."""
    if not pending(run):
        return
    ban = Ban.of(run)
    gone = find(run, ban)
    tars = reserves.add_fetched(run, run.manifests.receipt("ingest"), gone, ban)
    gone.sha256 |= {bytes.fromhex(text) for each in read(run.recipe.manifests_url) for text in each.sha256}
    if not gone.empty:
        _take_down(run, gone, ban, tars)
    mark = json.dumps(ban.basis(), indent=1) + "\n"
    storage.write_bytes(storage.join(run.recipe.manifests_url, MARK), mark.encode())


def _take_down(run: Run, gone: Gone, ban: Ban, tars: set[str]) -> None:
    """First what people look at and train from, last the manifest of `ingest`, which tells what has to go."""
    for name in ("index.html", "thumbnails.parquet"):
        storage.remove(storage.join(run.data, REPORT, name))
    drawn, texts = shards.survey(run, gone)
    for section in type(run.recipe).model_fields:
        keeper = getattr(run.recipe, section)
        if isinstance(keeper, KeepsPictures):
            keeper.forget(run.recipe.runs_url, gone.sha256, gone.texts - texts, drawn=drawn)
    places = shards.take_out(run, gone)
    raw.blank(run, gone.places, tars | _named(run))
    rows.take_down(run, gone, ban, places)
    reserves.without_values(run.manifests.folder("ingest"), "ingest", run.manifests.receipt("ingest"), gone)
    listings = storage.join(run.manifests.folder("ingest"), FOLDER)
    for name in storage.names(listings):
        if name.endswith(".parquet"):
            without_words(Frozen(storage.join(listings, name), 0, ""), ban)
    for name in storage.leftovers(listings):
        storage.remove(storage.join(listings, name))


def _named(run: Run) -> set[str]:
    """Raw tars that rows of `ingest` name."""
    receipt = run.manifests.receipt("ingest")
    containers: set[str] = set()
    for part in [] if receipt is None else receipt.tables[""]:
        column = read_part(run.manifests.folder("ingest"), part, ["container"]).column("container")
        containers.update(name for name in column.to_pylist() if name is not None and name.startswith(f"{RAW}/"))
    return containers
