"""`curate estimate`: hours, requests, GB and a rough price per stage, before starting, from a sample that is run.

Every source is listed (a website only by its first pages), rows are drawn from the whole list, and all stages run on
two samples of them in a folder of their own. Two sizes tell what a stage costs once (loading a model, starting
processes) from what it costs per row; cost per row is then multiplied out.
"""

from __future__ import annotations

import math
import os
import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from rich.console import Group
from rich.table import Table
from rich.text import Text

from pipeline import storage
from pipeline.errors import SourceError
from pipeline.ingest import tombstones
from pipeline.ingest.sources.base import Found, Log, Source, Web
from pipeline.ingest.stage import IngestStage
from pipeline.ingest.web import LazyWeb
from pipeline.progress import Progress
from pipeline.receipt import JsonObject
from pipeline.run import Run
from pipeline.stage import Stage, run_stage
from pipeline.stages import STAGES, check_models, writing

FILES_PER_ORIGIN = 2
"""Requests that every web server gets besides those for pages and pictures: robots.txt and tdmrep.json."""


@dataclass(frozen=True)
class Prices:
    """What the reader pays, in one currency. `hour`: the machine, per hour; `gb_month`: storage, per GB and month."""

    hour: float = 0.0
    gb_month: float = 0.0


@dataclass(frozen=True)
class Row:
    """One stage's cost. `gb` is what it leaves behind, 10⁹ bytes; `price` its machine hours and one month of that."""

    stage: str
    hours: float
    requests: int
    gb: float
    price: float


@dataclass(frozen=True)
class Estimate:
    """`rows` pictures in all, of which `sample` were run; `notes` tell what the figures rest on."""

    rows: int
    sample: int
    stages: tuple[Row, ...]
    notes: tuple[str, ...]

    def as_json(self) -> JsonObject:
        return {"rows": self.rows, "sample": self.sample, "stages": [vars(row) for row in self.stages],
                "notes": list(self.notes)}


@dataclass
class _Listed:
    """What listing a source came to: rows drawn evenly from all of them, and how many there are."""

    source: Source
    drawn: list[tuple[int, Found]] = field(default_factory=list)
    seen: int = 0
    rows: int = 0
    pages: int = 0
    hosts: Counter[str] = field(default_factory=Counter)


class _Drawn(Source):
    """A source that lists only the rows drawn from another."""

    def __init__(self, listed: _Listed, rows: Sequence[Found]) -> None:
        super().__init__(listed.source.settings)
        self._columns, self._rows = listed.source.columns(), rows

    def columns(self) -> JsonObject:
        return self._columns

    def rows(self, web: Web, log: Log) -> Iterator[Found]:
        yield from self._rows

    def fingerprint(self) -> str:
        return "drawn"


class _DrawnIngest(IngestStage):
    def __init__(self, sources: Sequence[Source]) -> None:
        super().__init__()
        self._sources = list(sources)


@dataclass(frozen=True)
class _Cost:
    """What one stage took on one sample: seconds, and bytes left behind."""

    seconds: float
    size: int


def estimate(run: Run, *, sample: int = 256, prices: Prices = Prices()) -> Estimate:
    """Run a sample of about `sample` rows through all stages. Writes nothing into the run's own folders, but the
    demo's website. Raises SourceError when a source lists nothing, and whatever stops a run before it starts."""
    ingest = IngestStage()
    ingest.check(run)
    with ExitStack() as stack:
        for source in ingest.sources(run):
            stack.enter_context(source.session(run))
        web = LazyWeb(run.recipe.ingest.fetch, ingest.ban(run))
        stack.callback(web.close)
        listed = [_list(source, web, sample, run) for source in ingest.sources(run)]
        total, drawn = sum(each.rows for each in listed), _share(listed, sample)
        if not drawn:
            raise SourceError("the sources list no pictures", hint="look at their settings: `curate run` would end "
                              "with an empty set too")
        small = drawn[:: 4]
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix="gristmill-estimate-"))
        costs = []
        for number, rows in enumerate((small, drawn) if len(drawn) >= 8 else (drawn, drawn)):
            run.progress.say(f"  running {len(rows)} of {total:,} rows through all stages")
            costs.append(_measured(run, os.path.join(place, str(number)), listed, rows))
    stages = [_row(name, costs, (len(small), len(drawn)), total, listed, run, prices) for name in STAGES]
    return Estimate(total, len(drawn), tuple(stages), tuple(_notes(run, listed, prices)))


def _list(source: Source, web: Web, sample: int, run: Run) -> _Listed:
    """Draw rows by Vitter's algorithm R, so that every row of a long list is as likely as any other."""
    glance, log, rng = source.at_a_glance(), Log(), random.Random(f"{run.recipe.seed} {source.settings.name}")
    listed = _Listed(source)
    for number, found in enumerate(glance.rows(web, log)):
        listed.seen += 1
        if found.path is None and found.place is None:
            listed.hosts[urlsplit(found.url).netloc if found.url.startswith("http") else ""] += 1
        if len(listed.drawn) < sample:
            listed.drawn.append((number, found))
        elif (slot := rng.randrange(number + 1)) < sample:
            listed.drawn[slot] = (number, found)
    rng.shuffle(listed.drawn)  # `_share` takes the first few
    read, beyond = log.counts.get("pages", 0), log.counts.get("pages beyond the limits", 0)
    most = getattr(source.settings, "max_pages", read)
    listed.pages = min(read + beyond, most) if glance is not source else read
    listed.rows = round(listed.seen * listed.pages / read) if read else listed.seen
    run.progress.say(f"  {source.settings.name}: {listed.rows:,} pictures" + (
        f", judging by {read:,} of {listed.pages:,} pages" if listed.pages > read else ""))
    return listed


def _share(listed: Sequence[_Listed], sample: int) -> list[tuple[int, int, Found]]:
    """(source, number, found) of about `sample` rows, every source by its share of all rows, in order."""
    total = max(1, sum(each.rows for each in listed))
    return [(place, number, found) for place, each in enumerate(listed)
            for number, found in sorted(each.drawn[: math.ceil(sample * each.rows / total)], key=lambda one: one[0])]


def _measured(run: Run, place: str, listed: Sequence[_Listed], rows: Sequence[tuple[int, int, Found]]
              ) -> dict[str, _Cost]:
    """Stage → its cost on these rows, in a work folder of its own."""
    part = Run(run.recipe.model_copy(update={"workdir": place}), Progress(quiet=True))
    tombstones.lend(run.recipe.manifests_url, part.recipe.manifests_url)
    stages: list[Stage] = [STAGES[name]() for name in STAGES]
    stages[0] = _DrawnIngest([_Drawn(each, [found for source, _, found in rows if source == number])
                              for number, each in enumerate(listed)])
    costs = {}
    with writing(part):
        check_models(part, stages)
        for stage in stages:
            receipt, _ = run_stage(stage, part)
            folders = [part.folder(stage.name)]
            folders += [storage.join(part.data, {"ingest": "raw", "shard": "shards"}[stage.name])] \
                if stage.name in ("ingest", "shard") else []
            costs[stage.name] = _Cost(receipt.timings["seconds"], sum(_size(folder) for folder in folders))
    return costs


def _size(folder: str) -> int:
    return sum(os.path.getsize(os.path.join(place, name)) for place, _, names in os.walk(folder) for name in names)


def _row(stage: str, costs: Sequence[dict[str, _Cost]], sizes: tuple[int, int], total: int,
         listed: Sequence[_Listed], run: Run, prices: Prices) -> Row:
    small, large = (cost[stage] for cost in costs)
    hours = line(sizes, (small.seconds, large.seconds), total) / 3600
    gb = line(sizes, (small.size, large.size), total) / 1e9
    requests = 0
    if stage == "ingest":
        hosts: Counter[str] = Counter()
        for each in listed:
            hosts.update({host: round(count * each.rows / max(1, each.seen)) for host, count in each.hosts.items()})
        requests = sum(hosts.values()) + sum(each.pages for each in listed) + FILES_PER_ORIGIN * len(hosts)
        busiest = max(hosts.values(), default=0)
        hours = max(hours, busiest * run.recipe.ingest.fetch.delay_s / 3600)
    return Row(stage, hours, requests, gb, hours * prices.hour + gb * prices.gb_month)


def line(sizes: tuple[int, int], values: tuple[float, float], total: int) -> float:
    """The value at `total` on the line through two samples, but never below what the larger sample took.

    Noise can make the line fall; then the larger sample's own mean per row is used.
    """
    (few, many), (less, more) = sizes, values
    per_row = (more - less) / (many - few) if many > few else 0.0
    if per_row <= 0:
        per_row = more / many
        return max(more, per_row * total)
    return max(more, more + per_row * (total - many))


def _notes(run: Run, listed: Sequence[_Listed], prices: Prices) -> Iterator[str]:
    for each in listed:
        if each.rows > each.seen:
            yield (f"{each.source.settings.name}: only its first pages were read; more pages may come to light, up to "
                   f"max_pages = {getattr(each.source.settings, 'max_pages', 0):,}")
        host, most = each.hosts.most_common(1)[0] if each.hosts else ("", 0)
        if len(each.hosts) > 1 and most > each.seen / 5:
            yield (f"{each.source.settings.name}: {host} holds {most / each.seen:.0%} of the pictures, and gets at "
                   f"most {run.recipe.ingest.fetch.connections_per_host} requests at a time: ingest may take longer")
    if prices == Prices():
        yield "no price: give --hour-price, and --gb-price for a month of storage"
    yield "measured on this machine; network and disk vary, so take the hours as a guess within a factor of two"


def render(result: Estimate) -> Group:
    """The estimate as a table for the terminal."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    priced = any(row.price for row in result.stages)
    for name in ("stage", "time", "requests", "GB", *(["price"] if priced else [])):
        table.add_column(name, justify="left" if name == "stage" else "right")
    whole = Row("in all", sum(row.hours for row in result.stages), sum(row.requests for row in result.stages),
                sum(row.gb for row in result.stages), sum(row.price for row in result.stages))
    for row in (*result.stages, whole):
        cells = [row.stage, spoken(row.hours), f"{row.requests:,}" if row.requests else "", f"{row.gb:,.2f}"]
        table.add_row(*cells, *([f"{row.price:,.2f}"] if priced else []), style="bold" if row is whole else "")
    head = Text(f"{result.rows:,} rows, from {result.sample:,} of them that were run", style="bold")
    return Group(head, table, *(Text(f"note: {note}") for note in result.notes))


def spoken(hours: float) -> str:
    """A duration as people say it: seconds below two minutes, minutes below two hours, then hours."""
    seconds = hours * 3600
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{hours:,.1f} h"
