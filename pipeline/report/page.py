"""The page: everything laid out, pictures drawn, one self-contained HTML file written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2
import numpy as np
from markupsafe import Markup, escape

from pipeline import funnel, reasons, storage
from pipeline.balance import Balance
from pipeline.checks import registry
from pipeline.engine import LocalEngine
from pipeline.errors import GristmillError
from pipeline.manifest import Manifests
from pipeline.report.charts import number
from pipeline.report.panels import Line, Panel, check_lines, clip_line, in_detail, near, panel
from pipeline.report.sample import Indices, RunRows, ranks
from pipeline.report.tables import CLASSES_SHOWN, StageLine, classes, last_finished, stage_lines
from pipeline.report.thumbnails import Sizes, Thumbnails
from pipeline.report.tiles import (
    SHOWN,
    Found,
    Pair,
    Rewording,
    Sheet,
    Tile,
    choose_dropped,
    choose_kept,
    choose_pairs,
    choose_reworded,
    make_pair,
    make_rewording,
    sheet_tiles,
    tiles_of,
)

if TYPE_CHECKING:
    from pipeline.recipe import Recipe

FOLDER, FILE = "report", "index.html"
FOLLOWS = "follows "
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Contents:
    """All that the template draws."""

    name: str
    seed: int
    model: str
    finished: str
    funnel: funnel.Funnel
    stages: tuple[StageLine, ...]
    panels: tuple[Panel, ...]
    kept: tuple[Tile, ...]
    sheets: tuple[Sheet, ...]
    pairs: tuple[Pair, ...]
    copies: int
    rewordings: tuple[Rewording, ...]
    reworded: int
    balance: Balance | None

    @property
    def stale(self) -> tuple[StageLine, ...]:
        """Stale stages with a reason of their own."""
        return tuple(line for line in self.stages if line.state == "stale" and not line.why.startswith(FOLLOWS))

    @property
    def following(self) -> tuple[str, ...]:
        """Stages that are stale only because one before them is."""
        return tuple(line.stage for line in self.stages if line.state == "stale" and line.why.startswith(FOLLOWS))

    @property
    def not_run(self) -> tuple[str, ...]:
        return tuple(line.stage for line in self.stages if line.state == "not run")


def write(manifests: Manifests, recipe: Recipe, *, states: Mapping[str, tuple[bool, str]] | None = None) -> str:
    """Draw the run as it stands and write `<data>/report/index.html`; returns its path.

    `states` maps stages to (fresh, why not); without it the receipts are compared with the recipe. The page
    depends on manifests, recipe and pictures alone, never on the clock. Raises ManifestError when nothing has
    been ingested, StorageError when the page cannot be written.
    """
    settings = recipe.report
    thumbnails = Thumbnails(Sizes(settings.thumbnail_side, settings.crop_side, settings.quality), recipe.data_url)
    contents = lay_out(manifests, recipe, thumbnails, compare(recipe) if states is None else states)
    folder = storage.join(recipe.data_url, FOLDER)
    thumbnails.draw(LocalEngine(recipe.engine.workers), folder)  # a few hundred pictures: no cluster for these
    url = storage.join(folder, FILE)
    storage.write_bytes(url, render(contents, thumbnails).encode())
    return url


def compare(recipe: Recipe) -> dict[str, tuple[bool, str]]:
    """Stage → (fresh, why not): by the stage's own word, or because a stage that it reads is stale."""
    from pipeline.run import Run
    from pipeline.stage import freshness
    from pipeline.stages import STAGES

    run = Run(recipe)
    states: dict[str, tuple[bool, str]] = {}
    for name, make in STAGES.items():
        stage = make()
        try:
            state = freshness(stage, run)
        except (GristmillError, OSError) as error:  # its source is gone, its model cannot be loaded
            states[name] = (False, str(error))
            continue
        above = [each for each in stage.inputs if not states[each][0]]
        if state.fresh and above:
            states[name] = (False, f"{FOLLOWS}{above[-1]}")
        else:
            states[name] = (state.fresh, "; ".join(state.why[:3]))
    return states


def lay_out(manifests: Manifests, recipe: Recipe, thumbnails: Thumbnails,
            states: Mapping[str, tuple[bool, str]]) -> Contents:
    """Choose what the page shows, then read just those rows; pictures are only asked for."""
    rows, settings = RunRows(manifests), recipe.report
    counted = funnel.funnel(manifests)
    decided = funnel.decisions(rows.columns(funnel.COLUMNS))
    order = ranks(rows.columns(["id"]).column("id"), recipe.seed)

    kept = choose_kept(decided, order, settings.kept_samples)
    dropped = {(step.stage, reason): choose_dropped(decided, step.stage, reason, order, settings.samples)
               for step in counted.steps if step.stage != "dedupe" for reason, _ in step.dropped}
    pairs = choose_pairs(rows, order, settings.duplicate_pairs)
    reworded, reworded_count = choose_reworded(rows, decided, order, settings.captions)
    lines = list(_lines(rows, recipe))
    sides = [near(line, rows, order, settings.near_threshold) for line in lines]

    shown = [kept, *dropped.values(), np.array(pairs, np.int64).ravel(), reworded, *chain(*sides)]
    found = rows.rows(np.concatenate(shown), SHOWN)
    return Contents(
        name=recipe.name, seed=recipe.seed, model=recipe.score.model, finished=last_finished(manifests), funnel=counted,
        stages=stage_lines(manifests, states),
        panels=tuple(panel(line, side, found, rows, decided, thumbnails)
                     for line, side in zip(lines, sides, strict=True)),
        kept=tiles_of(kept, found, thumbnails),
        sheets=tuple(_sheets(counted, dropped, found, thumbnails, recipe)),
        pairs=tuple(make_pair(found[copy], found[keeper], thumbnails) for copy, keeper in pairs),
        copies=sum(count for step in counted.steps if step.stage == "dedupe" for _, count in step.dropped),
        rewordings=tuple(make_rewording(found[index], thumbnails) for index in reworded.tolist()),
        reworded=reworded_count, balance=classes(rows, decided),
    )


def _lines(rows: RunRows, recipe: Recipe) -> Iterator[Line]:
    yield from check_lines(rows, recipe.checks)
    clip = clip_line(rows, recipe.select.min_clip_score)
    if clip is not None:
        yield clip


def _sheets(counted: funnel.Funnel, dropped: Mapping[tuple[str, str], Indices], found: Found,
            thumbnails: Thumbnails, recipe: Recipe) -> Iterator[Sheet]:
    """One sheet per stage and reason, in the funnel's order."""
    detailed = {name for name, check in registry().items() if in_detail(check)}
    for step in counted.steps:
        for reason, count in step.dropped:
            if (step.stage, reason) in dropped:
                meaning, settings, check = _meaning(step.stage, reason, recipe)
                tiles = sheet_tiles(dropped[step.stage, reason], found, thumbnails, crop=check in detailed)
                yield Sheet(reason, step.stage, count, count / max(counted.rows, 1), meaning, settings, tiles,
                            any(tile.picture for tile in tiles))


def _meaning(stage: str, reason: str, recipe: Recipe) -> tuple[str, tuple[str, ...], str | None]:
    """What the reason means, the settings that change it, its check. A reason nobody explains is shown bare."""
    try:
        found = reasons.explain(reason, recipe, stage=stage)
    except GristmillError:
        return "", (), None
    settings = tuple(f"{note.key} = {note.value}" for note in found.settings)
    return found.meaning, settings, found.check


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["number"] = number
    environment.filters["count"] = lambda value: f"{value:,}"
    environment.filters["percent"] = lambda value: f"{value:.1f}\u202f%"
    environment.filters["code"] = code
    environment.filters["title_of"] = lambda reason: reason.replace("_", " ")
    environment.globals["classes_shown"] = CLASSES_SHOWN
    return environment


def code(text: str) -> Markup:
    """Escaped text in which `words between backticks` are set as code."""
    pieces = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if index % 2 else escape(piece) for index, piece in enumerate(pieces)
    )


def render(contents: Contents, thumbnails: Thumbnails) -> str:
    """The page's HTML. Scraped text is escaped, and no script runs: the page's own policy forbids it."""
    template = _environment().get_template("page.html.j2")
    return template.render(run=contents, picture=thumbnails.get, css=(HERE / "page.css").read_text("utf-8"))
