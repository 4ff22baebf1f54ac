"""The stage `ingest`: list every source once, then fetch row by row."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import ExitStack, closing
from functools import partial
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline import storage
from pipeline.errors import RecipeError
from pipeline.ingest.ban import Ban
from pipeline.ingest.fetch import READS, VALUES, FetchWorker
from pipeline.ingest.freshness import RAW, Generations, RawTars, limits, manners, still_good, whole
from pipeline.ingest.guarded import Guarded, without_words
from pipeline.ingest.listing import CARRIED, FOLDER, HIDDEN, Frozen, Listing, Opening, key_of, opened, source_columns
from pipeline.ingest.outcomes import AWAY
from pipeline.ingest.settings import IngestSettings
from pipeline.ingest.sources import build
from pipeline.ingest.sources.base import Log, Source
from pipeline.ingest.tally import Tally, counted
from pipeline.ingest.web import LazyWeb
from pipeline.manifest import read_part
from pipeline.memo import Holds
from pipeline.receipt import JsonObject, Receipt
from pipeline.rowstage import RowStage, Step
from pipeline.run import Run
from pipeline.schema import ID, INGEST, VALUE_KEY, TableSchema
from pipeline.stage import Output

FETCH_VERSION = 1
"""Rises when the same answer of a server would give other values."""

_PLACES = ["container", "offset", "length"]


class IngestStage(RowStage):
    """Rows are the listing's; values are what fetching each row's address came to."""

    name: ClassVar[str] = "ingest"
    version: ClassVar[int] = 2
    counted: ClassVar[str | None] = "fetch_outcome"

    def __init__(self) -> None:
        self._tally = Tally()
        self._sources: list[Source] = []
        self._listing: Guarded | None = None
        self._ban: Ban | None = None
        self._generations: dict[str, int] = {}

    def tables(self, run: Run) -> dict[str, TableSchema]:
        return {"": INGEST.with_columns(source_columns(self.sources(run)))}

    def settings(self, run: Run) -> JsonObject:
        settings = _settings(run)
        return {
            "sources": [source.model_dump(mode="json") for source in settings.sources],
            "manners": manners(settings.fetch), "limits": limits(settings.fetch), **self.ban(run).basis(),
        }

    def fingerprints(self, run: Run) -> JsonObject:
        return {
            source.settings.name: [source.version, source.fingerprint(), self._generation(run, source)]
            for source in self.sources(run)
        }

    def check(self, run: Run) -> None:
        """Every source can be opened. Raises SourceError, RecipeError without any source."""
        if not self.sources(run):
            raise RecipeError("ingest.sources is empty", hint="`curate init` writes a recipe with a source to fill in")
        source_columns(self.sources(run))
        self.fingerprints(run)

    def sources(self, run: Run) -> list[Source]:
        if not self._sources:
            self._sources = [build(settings) for settings in _settings(run).sources]
        return self._sources

    def ban(self, run: Run) -> Ban:
        """What is kept out of the run."""
        if self._ban is None:
            self._ban = Ban.of(run)
        return self._ban

    def source_rows(self, run: Run) -> Guarded:
        """The listing, made where it is missing, with what is kept out refused before it is asked for."""
        if self._listing is None:
            self._listing = Guarded(self._listed(run), self.ban(run))
        return self._listing

    def execute(self, run: Run, output: Output) -> None:
        with ExitStack() as sessions:
            for source in self.sources(run):
                sessions.enter_context(source.session(run))
            listing = self.source_rows(run)
            sessions.enter_context(closing(listing))
            columns = (*CARRIED, *source_columns(self.sources(run)))
            self.carried = tuple(column.name for column in columns)
            self.live = self._tally.lines
            super().execute(run, output)
            _say_outcomes(run, output)
            output.layout = listing.layout

    def steps(self, run: Run) -> list[Step]:
        fetch = _settings(run).fetch
        return [Step(
            table="", values=TableSchema((ID, *VALUES.columns, VALUE_KEY)),
            namespace={"version": FETCH_VERSION, "manners": manners(fetch)},
            reads=READS, key=("url", "state", "refused"), kind="inline", chunk_rows=_settings(run).chunk_rows,
            worker=partial(FetchWorker, fetch, run.data, self.ban(run), self._tally),
        )]

    def holds(self, run: Run, output: Output) -> Holds | None:
        before = None if output.previous is None else output.previous.basis["settings"].get("limits")
        now, tars = limits(_settings(run).fetch), RawTars(run.data)

        def good(values: pa.Table) -> np.ndarray:
            settled = still_good(values, tars, before, now, run.retry) & self.ban(run).stand(values)
            return settled & whole(values, run.data, settled) if output.force and not run.retry else settled

        return good

    def lost(self, run: Run) -> list[str]:
        """Raw tars that are gone or cut, and pictures whose disk or server was away; changes of pictures in place are
        looked after by their source's fingerprint."""
        away = run.manifests.need(self.name).counts.get(AWAY, 0)
        lost = {f"the bytes of {away} pictures"} if away else set[str]()
        tars = RawTars(run.data)
        for part in run.manifests.need(self.name).tables[""]:
            lost.update(tars.lost(read_part(run.manifests.folder(self.name), part, _PLACES)))
        return sorted(lost)

    def settle(self, run: Run, receipt: Receipt) -> None:
        """Remove raw tars and listings that no row refers to any more; spare values without bytes are not used."""
        folder, named = run.manifests.folder(self.name), set[str]()
        for part in receipt.tables[""]:
            named.update(_distinct(read_part(folder, part, ["container"])))
        raw = storage.join(run.data, RAW)
        _keep_only(raw, {os.path.basename(url) for url in named})
        listings = storage.join(folder, FOLDER)
        stems = {f"{source.settings.name}-{self._key(run, source)}" for source in self.sources(run)}
        _keep_only(listings, {"generations.json", *(f"{s}.parquet" for s in stems), *(f"{s}.json" for s in stems)})

    def _listed(self, run: Run) -> Listing:
        """What can only be listed whole is frozen now; long lists are listed as their rows are asked for."""
        folder, sources = storage.join(run.manifests.folder(self.name), FOLDER), self.sources(run)
        web, listed = LazyWeb(_settings(run).fetch, self.ban(run)), list[Frozen | Opening]()
        try:
            for source in sources:
                generation = self._generation(run, source)
                done = partial(self._frozen, run, source, folder, generation)
                one = opened(source, folder, self._key(run, source), generation, web, done)
                listed.append(one.whole() if isinstance(one, Opening) and not source.streams else one)
        finally:
            web.close()
        return Listing(listed, (*CARRIED, *source_columns(sources), *HIDDEN))

    def _frozen(self, run: Run, source: Source, folder: str, generation: int, one: Frozen, log: Log | None) -> Frozen:
        """The listing of a source now that it stands; the log only when it was made now."""
        Generations(folder).settle(source.settings.name, generation)
        if log is not None:
            run.progress.say(_said(source, log))
        return without_words(one, self.ban(run))

    def _key(self, run: Run, source: Source) -> str:
        return key_of(source, self._generation(run, source), manners(_settings(run).fetch))

    def _generation(self, run: Run, source: Source) -> int:
        """0 for what lies on this machine; on the web, one more than before when asked to refresh."""
        if not source.on_web:
            return 0
        name = source.settings.name
        if name not in self._generations:
            folder = storage.join(run.manifests.folder(self.name), FOLDER)
            self._generations[name] = Generations(folder).of(name) + bool(run.refresh)
        return self._generations[name]


def _settings(run: Run) -> IngestSettings:
    return run.recipe.ingest


def _distinct(table: pa.Table) -> list[str]:
    return [url for url in pc.unique(table.column(0)).to_pylist() if url is not None]


def _keep_only(folder: str, names: set[str]) -> None:
    for name in storage.names(folder):
        if name not in names:
            storage.remove(storage.join(folder, name))


def _say_outcomes(run: Run, output: Output) -> None:
    """One line per source: how its rows ended, those of earlier runs included."""
    outcomes: dict[str, Counter[str]] = {}
    folder = run.manifests.folder(output.stage.name)
    for part in output.tables[""]:
        rows = read_part(folder, part, ["source", "fetch_outcome"])
        for each in rows.group_by(["source", "fetch_outcome"]).aggregate([([], "count_all")]).to_pylist():
            outcomes.setdefault(each["source"], Counter())[each["fetch_outcome"]] += each["count_all"]
    for name, counts in outcomes.items():
        run.progress.say(f"  {name}: {counted(counts)}")


def _said(source: Source, log: Log) -> str:
    counts = ", ".join(f"{count} {what}" for what, count in sorted(log.counts.items()))
    failed = f"; {len(log.failed)} pages failed, e.g. {log.failed[0]['url']} ({log.failed[0]['outcome']})" \
        if log.failed else ""
    return f"  {source.settings.name} ({source.settings.kind}): {counts}{failed}"
