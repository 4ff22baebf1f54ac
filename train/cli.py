"""`train`: parse, call, print. No logic lives here."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.errors import run_command

if TYPE_CHECKING:
    from train.session import Session

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False,
                  help="Gristmill: train a latent-diffusion model on the shards that `curate` made.")

RecipeOption = Annotated[str, typer.Option("--recipe", "-r", help="TOML file, or the name of a shipped recipe.")]
SetOption = Annotated[list[str] | None, typer.Option("--set", help="Override: train.optimiser.steps=500")]
WorkdirOption = Annotated[str | None, typer.Option("--workdir", help="Where manifests/, data/, runs/ lie.")]
SourceOption = Annotated[str | None, typer.Option("--source", help="The folder given to `curate run --source`.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable output on stdout.")]
FreshOption = Annotated[bool, typer.Option("--fresh", help="Start anew: run removes the denoiser, vae both.")]


@contextmanager
def _session(recipe: str, sets: list[str] | None, workdir: str | None, source: str | None = None, *,
             quiet: bool = False) -> Iterator[Session]:
    from pipeline.recipe import load
    from train.distributed import joined
    from train.session import Session

    whole = load(recipe, sets or [], workdir=workdir, source=source)
    with joined(whole.section("train").device) as ranks:  # type: ignore[attr-defined]
        yield Session(whole, ranks, quiet=quiet)


def _next(command: str, recipe: str, sets: list[str] | None, workdir: str | None, source: str | None) -> str:
    """The next command to type, with the same options."""
    options = [] if recipe == "demo" else ["--recipe", recipe]
    options += [] if workdir in (None, ".") else ["--workdir", str(workdir)]
    options += [] if source is None else ["--source", source]
    options += [part for one in sets or [] for part in ("--set", one)]
    return " ".join([f"next: {command}", *map(shlex.quote, options)])


@app.command()
def run(recipe: RecipeOption = "demo", sets: SetOption = None, workdir: WorkdirOption = None,
        source: SourceOption = None, fresh: FreshOption = False, quiet: QuietOption = False) -> None:
    """Train all that is left: the VAE, the cached latents, the denoiser; draw the last grid."""
    from train.denoiser_stage import train_denoiser
    from train.vae_stage import train_vae

    with _session(recipe, sets, workdir, source, quiet=quiet) as session:
        if fresh:
            session.forget("denoiser", "grid.png")
        train_vae(session)
        train_denoiser(session)
        if session.ranks.main:
            example = shlex.quote(session.example_prompt())
            sys.stdout.write(session.place("grid.png") + "\n")
            session.say(_next(f"train sample {example}", recipe, sets, workdir, source))


@app.command()
def vae(recipe: RecipeOption = "demo", sets: SetOption = None, workdir: WorkdirOption = None,
        source: SourceOption = None, fresh: FreshOption = False, quiet: QuietOption = False) -> None:
    """Train the autoencoder alone."""
    from train.vae_stage import train_vae

    with _session(recipe, sets, workdir, source, quiet=quiet) as session:
        if fresh:
            session.forget("vae", "denoiser", "grid.png")
        train_vae(session)
        session.say(_next("train run", recipe, sets, workdir, source))


@app.command()
def encode(recipe: RecipeOption = "demo", sets: SetOption = None, workdir: WorkdirOption = None,
           source: SourceOption = None, quiet: QuietOption = False) -> None:
    """Cache the latents of all pictures, and the text states when the text encoder is frozen."""
    from train import encode as caches

    with _session(recipe, sets, workdir, source, quiet=quiet) as session:
        caches.encode(session)
        session.say(_next("train run", recipe, sets, workdir, source))


@app.command()
def sample(prompts: Annotated[list[str], typer.Argument(metavar="PROMPT...", help='E.g. "a red circle".')],
           recipe: RecipeOption = "demo", sets: SetOption = None, workdir: WorkdirOption = None,
           source: SourceOption = None,
           out: Annotated[Path | None, typer.Option("--out", help="Folder; default: runs/<name>/samples.")] = None,
           count: Annotated[int, typer.Option("--count", "-n", min=1, help="Pictures per prompt.")] = 1,
           seed: Annotated[int, typer.Option("--seed", min=0, help="Of the first picture; the next gets +1.")] = 0,
           steps: Annotated[int | None, typer.Option("--steps", min=1, help="Denoising steps.")] = None,
           guidance: Annotated[float | None, typer.Option("--guidance", min=0, help="CFG scale.")] = None,
           as_json: JsonOption = False, quiet: QuietOption = False) -> None:
    """Draw pictures and print where they lie."""
    from train.denoiser_stage import load_models
    from train.drawing import draw_to_folder

    with _session(recipe, sets, workdir, source, quiet=quiet) as session:
        folder = str(out) if out is not None else session.place("samples")
        drawn = draw_to_folder(load_models(session), prompts, folder, count=count, seed=seed, steps=steps,
                               guidance=guidance)
    if as_json:
        sys.stdout.write(json.dumps(drawn, indent=1, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write("".join(f"{picture['file']}\n" for picture in drawn))


@app.command()
def evaluate(recipe: RecipeOption = "demo", sets: SetOption = None, workdir: WorkdirOption = None,
             source: SourceOption = None, as_json: JsonOption = False, quiet: QuietOption = False) -> None:
    """Draw the recipe's prompts, put real pictures through the VAE, score both; print the figures."""
    from train import evaluate as evaluating
    from train.denoiser_stage import load_models

    with _session(recipe, sets, workdir, source, quiet=quiet) as session:
        figures = evaluating.evaluate(session, load_models(session))
        folder = session.place(evaluating.FOLDER)
        if as_json:
            sys.stdout.write(json.dumps({"folder": folder, **figures}, indent=1) + "\n")
            return
        sys.stdout.write("".join(f"{name}: {value}\n" for name, value in figures.items() if value is not None))
        sys.stdout.write(folder + "\n")
        if session.recipe.name.startswith("demo"):
            session.say(f"next: curate demo-judge {shlex.quote(folder)}")


@app.command()
def export(out: Annotated[Path | None, typer.Argument(metavar="FOLDER", help="Default: runs/<name>/pipeline.")]
           = None, recipe: RecipeOption = "demo", sets: SetOption = None, workdir: WorkdirOption = None,
           source: SourceOption = None, quiet: QuietOption = False) -> None:
    """Write a diffusers pipeline directory and print where it lies."""
    from train import export as exporting
    from train.denoiser_stage import load_models

    with _session(recipe, sets, workdir, source, quiet=quiet) as session:
        folder = str(out) if out is not None else session.place("pipeline")
        sys.stdout.write(exporting.export(load_models(session), folder) + "\n")


@app.command()
def estimate(recipe: RecipeOption = "demo", sets: SetOption = None, workdir: WorkdirOption = None,
             source: SourceOption = None, as_json: JsonOption = False, quiet: QuietOption = False) -> None:
    """How long training will take and how much memory, by timing a few steps on this machine."""
    from train.estimate import estimated, render

    with _session(recipe, sets, workdir, source, quiet=quiet) as session:
        rows = estimated(session)
    sys.stdout.write(json.dumps(rows, indent=1) + "\n" if as_json else render(rows))


def main() -> None:
    """Entry point: users' errors become one line, one hint and exit code 2."""
    run_command(app, kept="checkpoints are kept")
