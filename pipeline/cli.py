"""`curate`: parse, call, print. No logic lives here."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from pipeline.errors import RecipeError, near_miss, run_command

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False,
                  help="Gristmill: from scraped image-text pairs to clean, captioned, weighted shards.")

RecipeOption = Annotated[str, typer.Option("--recipe", "-r", help="TOML file, or the name of a shipped recipe.")]
SetOption = Annotated[list[str] | None, typer.Option("--set", help="Override: filter.resolution.min_side=512")]
WorkdirOption = Annotated[str | None, typer.Option("--workdir", help="Where manifests/, data/, runs/ lie.")]
SourceOption = Annotated[str | None, typer.Option("--source", help="A folder of pictures to use instead of the "
                                                  "recipe's sources.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable output on stdout.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Run although fresh.")]
RefreshOption = Annotated[bool, typer.Option("--refresh", help="Look at web sources again.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]


def _run(recipe: str, sets: list[str] | None, workdir: str | None, source: str | None = None, *,
         refresh: bool = False, quiet: bool = False) -> Any:
    from pipeline import startup

    with startup.loading():
        from pipeline import stages as _stages  # noqa: F401 - what nearly every command needs next
        from pipeline.progress import Progress
        from pipeline.recipe import load
        from pipeline.run import Run

    return Run(load(recipe, sets or [], workdir=workdir, source=source), Progress(quiet=quiet), refresh)


def _stdout() -> Console:
    """What people read; in a file or a pipe lines are wide enough for tables not to wrap."""
    return Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 120)


def _print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=1, ensure_ascii=False, default=str) + "\n")


@app.command()
def run(recipe: RecipeOption = "demo", sets: SetOption = None, workdir: WorkdirOption = None,
        source: SourceOption = None,
        start: Annotated[str | None, typer.Option("--from", help="Start at this stage, although fresh.")] = None,
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run, why, and what would stop it.")]
        = False,
        force: ForceOption = False, refresh: RefreshOption = False, quiet: QuietOption = False) -> None:
    """Bring all stages up to date, print the funnel and draw the report."""
    from pipeline import finish, stages

    job = _run(recipe, sets, workdir, source, refresh=refresh, quiet=quiet)
    if start is not None and start not in stages.STAGES:
        raise RecipeError(f"no stage {start!r}", hint=near_miss(start, stages.STAGES))
    if dry_run:
        table = Table("stage", "would", "why", box=None, pad_edge=False)
        plans = stages.plan(job, start=start)
        for plan in plans:
            table.add_row(plan.stage, "run" if plan.runs else "skip", "; ".join(plan.why))
        _stdout().print(table)
        stages.check_models(job, [stages.STAGES[plan.stage]() for plan in plans if plan.runs])
        return
    names = list(stages.STAGES)
    first = names.index(start) if start is not None else 0
    stages.execute(job, names[:first])
    stages.execute(job, names[first:], force=force or start is not None)
    finish.print_end(job, _stdout(), recipe=recipe, sets=sets or [], workdir=workdir, source=source)


def _stage_command(name: str) -> None:
    def command(recipe: RecipeOption = "demo", sets: SetOption = None, workdir: WorkdirOption = None,
                source: SourceOption = None, force: ForceOption = False, quiet: QuietOption = False) -> None:
        from pipeline import finish, stages

        job = _run(recipe, sets, workdir, source, quiet=quiet)
        stages.execute(job, [name], force=force)
        if name == "weigh" and not quiet:
            finish.print_classes(job, _stdout())

    app.command(name, help=f"Run the stage `{name}` alone; its inputs must have finished.")(command)


for _name in ("measure", "dedupe", "filter", "score", "caption", "select", "weigh", "dataset"):
    _stage_command(_name)


@app.command()
def ingest(recipe: RecipeOption = "demo", sets: SetOption = None, workdir: WorkdirOption = None,
           source: SourceOption = None, force: ForceOption = False, refresh: RefreshOption = False,
           retry: Annotated[str, typer.Option("--retry", metavar="OUTCOMES", help="Ask once more for rows that "
                                              "ended so, e.g. timeout,dns.")] = "",
           quiet: QuietOption = False) -> None:
    """Run the stage `ingest` alone; --refresh looks at web sources again, --retry only at failed rows."""
    from pipeline import stages
    from pipeline.ingest.outcomes import failures

    job = _run(recipe, sets, workdir, source, refresh=refresh, quiet=quiet)
    job.retry = failures(retry)
    stages.execute(job, ["ingest"], force=force or bool(job.retry))  # a retry looks at failed rows alone: see `holds`


@app.command()
def shard(recipe: RecipeOption = "demo", sets: SetOption = None, workdir: WorkdirOption = None,
          source: SourceOption = None, force: ForceOption = False,
          rewrite: Annotated[bool, typer.Option("--rewrite", help="Refresh .txt/.json inside the tars.")] = False,
          quiet: QuietOption = False) -> None:
    """Run the stages `shard` and `dataset`: tars, samples.parquet, index, the one wide manifest."""
    from pipeline import stages

    job = _run(recipe, sets, workdir, source, quiet=quiet)
    stages.execute(job, ["shard", "dataset"], force=force, rewrite=rewrite)


@app.command()
def status(recipe: RecipeOption = "demo", sets: SetOption = None, workdir: WorkdirOption = None,
           source: SourceOption = None, as_json: JsonOption = False) -> None:
    """Stage, rows, kept, when, fresh or stale and why."""
    from pipeline import stages

    rows = stages.status(_run(recipe, sets, workdir, source))
    if as_json:
        _print_json(rows)
        return
    table = Table("stage", "rows", "kept", "finished", "seconds", "state", "why", box=None, pad_edge=False)
    for row in rows:
        cells = [row[name] for name in ("stage", "rows", "kept", "finished", "seconds")]
        state = "never ran" if row["rows"] is None else "fresh" if row["fresh"] else "stale"
        table.add_row(*("" if cell is None else str(cell) for cell in cells), state,
                      "" if row["fresh"] else row["why"])
    _stdout().print(table)


@app.command()
def show(row: Annotated[str, typer.Argument(metavar="ID", help="A row's id, or its beginning.")],
         recipe: RecipeOption = "demo", sets: SetOption = None, workdir: WorkdirOption = None,
         source: SourceOption = None, as_json: JsonOption = False) -> None:
    """Everything known of a row, and why it is (not) in the set."""
    from pipeline import trace

    facts = trace.row_facts(_run(recipe, sets, workdir, source).manifests, row)
    if as_json:
        _print_json(facts)
    else:
        _stdout().print(trace.render_facts(facts))


@app.command()
def forget(what: Annotated[list[str], typer.Argument(metavar="ID|URL|HASH|HOST...", help="Rows, addresses, SHA-256, "
                                                     "phash:…, hosts.")],
           recipe: RecipeOption = "demo", sets: SetOption = None, workdir: WorkdirOption = None,
           source: SourceOption = None,
           reason: Annotated[str, typer.Option("--reason", help="Why, kept beside the rows.")] = "",
           similar: Annotated[int | None, typer.Option("--similar", min=0, max=16, help="Also what looks alike: bits "
                                                       "of the 64-bit pHash that may differ.")] = None,
           hide: Annotated[bool, typer.Option("--hide-address", help="Keep only hashes of the addresses.")] = False,
           dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go.")] = False,
           yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
           as_json: JsonOption = False, quiet: QuietOption = False) -> None:
    """Take pictures down everywhere in the run, with their words, and keep them out for good."""
    from pipeline.takedown import command

    def agree(told: Any) -> bool:
        Console(stderr=True).print(command.render(told))
        return typer.confirm("take down?", err=True)

    asks = sys.stdin.isatty() and not yes
    told = command.forget(_run(recipe, sets, workdir, source, quiet=quiet), what, reason=reason, similar=similar,
                          hide=hide, dry_run=dry_run, **({"agree": agree} if asks else {}))
    if as_json:
        _print_json(told)
    else:
        _stdout().print(command.render(told))


@app.command()
def explain(reason: Annotated[str, typer.Argument(metavar="REASON", help="A drop reason, e.g. blurry.")],
            recipe: RecipeOption = "demo", sets: SetOption = None, as_json: JsonOption = False) -> None:
    """What a drop reason means, and which setting changes it, with the recipe's values."""
    from pipeline import reasons, trace
    from pipeline.recipe import load

    settings = load(recipe, sets or [])
    if as_json:
        _print_json(reasons.explain(reason, settings).as_json())
    else:
        _stdout().print(trace.explain(reason, settings))


@app.command()
def schema(as_json: JsonOption = False) -> None:
    """Every manifest's columns: name, type, unit, meaning."""
    from pipeline import columns

    if as_json:
        _print_json(columns.as_rows())
    else:
        sys.stdout.write(columns.as_markdown())


@app.command()
def estimate(recipe: RecipeOption = "demo", sets: SetOption = None, workdir: WorkdirOption = None,
             source: SourceOption = None,
             sample: Annotated[int, typer.Option("--sample", min=8, help="Rows to run.")] = 256,
             hour: Annotated[float, typer.Option("--hour-price", min=0, help="This machine, per hour.")] = 0.0,
             gb: Annotated[float, typer.Option("--gb-price", min=0, help="A GB stored for a month.")] = 0.0,
             as_json: JsonOption = False, quiet: QuietOption = False) -> None:
    """Hours, requests, GB and a rough price per stage, before starting, from a sample that is really run."""
    from pipeline import estimate as estimating

    job = _run(recipe, sets, workdir, source, quiet=quiet)
    result = estimating.estimate(job, sample=sample, prices=estimating.Prices(hour, gb))
    if as_json:
        _print_json(result.as_json())
    else:
        _stdout().print(estimating.render(result))


@app.command()
def init(path: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("recipe.toml"),
         kind: Annotated[str, typer.Option("--kind", help="First source: folder, site, urls, tars.")] = "folder",
         ) -> None:
    """Write a commented recipe with every key, its unit and default."""
    from pipeline import start

    start.write_recipe(path, kind)
    _stdout().print(f"wrote {path}\nnext: curate run --recipe {path}", highlight=False)


@app.command()
def report(recipe: RecipeOption = "demo", sets: SetOption = None, workdir: WorkdirOption = None,
           source: SourceOption = None) -> None:
    """Draw the HTML report of the run as it stands."""
    from pipeline import finish

    sys.stdout.write(finish.draw_report(_run(recipe, sets, workdir, source)) + "\n")


@app.command("demo-check")
def demo_check(recipe: RecipeOption = "demo", sets: SetOption = None, workdir: WorkdirOption = None,
               as_json: JsonOption = False) -> None:
    """Precision and recall per planted fault of the demo website, from the manifests."""
    from pipeline.demo import check

    rows = check.demo_check(_run(recipe, sets, workdir))
    if as_json:
        _print_json(check.as_json(rows))
    else:
        _stdout().print(check.render(rows))


@app.command("demo-judge")
def demo_judge(folder: Annotated[str, typer.Argument(help="runs/demo/evaluation, as `train evaluate` left it.")],
               as_json: JsonOption = False) -> None:
    """Colour and shape of the trained model's pictures, judged by exact image analysis."""
    from pipeline.demo import judge

    result = judge.judge(folder)
    if as_json:
        _print_json(judge.as_json(result))
    else:
        _stdout().print(judge.render(result))


def main() -> None:
    """Entry point: users' errors become one line, one hint and exit code 2."""
    run_command(app, kept="finished work is kept")


if __name__ == "__main__":
    main()
