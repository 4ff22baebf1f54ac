"""The end of a run: the funnel, where things lie, the next command, the report's path last."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from pipeline import balance, funnel, report, stages, storage
from pipeline.takedown.settle import pending

if TYPE_CHECKING:
    from pipeline.run import Run


def draw_report(run: Run) -> str:
    """Draw the report; returns its path. What is kept out by now is taken down first, so that it is not shown."""
    if pending(run):
        with stages.writing(run):
            pass
    return report.write(run.manifests, run.recipe)


def print_classes(run: Run, console: Console) -> None:
    """What `weigh` made of the classes; nothing where there are none."""
    made = balance.render(balance.balance(run.manifests.joined(balance.READS).arrow()))
    if made is not None:
        console.print(made)


def print_end(run: Run, console: Console, *, recipe: str, sets: Sequence[str], workdir: str | None,
              source: str | None) -> None:
    """What a person reads after `curate run`."""
    console.print(funnel.render(funnel.funnel(run.manifests)))
    print_classes(run, console)
    path = draw_report(run)
    options = [] if recipe == "demo" else ["--recipe", recipe]
    options += [] if source is None else ["--source", source]
    options += [word for each in sets for word in ("--set", each)]
    if workdir not in (None, "."):  # the Makefile always names it
        options += ["--workdir", str(workdir)]
    lines = {
        "manifests": run.recipe.manifests_url,
        "shards": storage.join(run.data, "shards"),
        "next": shlex.join(["train", "run", *options]),
        "report": path,
    }
    for name, value in lines.items():
        console.print(f"{name + ':':<11}{value}", highlight=False, soft_wrap=True)
