"""The README is true: commands run as shown, the file tree is the files, pictures and pages exist."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline import columns
from pipeline.cli import app as curate_app
from tests.conftest import free_port
from train.cli import app as train_app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [line[2:] for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL)
            for line in block.splitlines() if line.startswith("$ ")]

SMALL = {
    # what a demo command is given besides what is shown, so that the whole page runs in a minute or two
    "curate": ["ingest.sources.0.scenes=150"],
    "train": ["train.vae.optimiser.steps=4", "train.optimiser.steps=4", "train.evaluate.per_prompt=1",
              "train.watch.every=4", "train.sample.steps=2", "train.optimiser.batch=8",
              "train.vae.optimiser.batch=8"],
}


def _names(app: object) -> set[str]:
    import typer

    return set(typer.main.get_command(app).commands)  # type: ignore[attr-defined,arg-type]


def _pictures(folder: Path) -> None:
    import numpy as np

    from pipeline.demo.scenes import draw, full_caption, sample_scene

    folder.mkdir(parents=True)
    rng = np.random.default_rng(5)
    for number in range(40):
        scene = sample_scene(rng)
        draw(scene).save(folder / f"{number}.png")
        (folder / f"{number}.txt").write_text(full_caption(scene))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder like a clone's: the Makefile, the shipped files and some pictures."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("Makefile", "pyproject.toml", "requirements.lock", "pipeline", "train", "tests"):
        (folder / name).symlink_to(ROOT / name)
    _pictures(folder / "path" / "to" / "pictures")
    return folder


def _as_run(command: str, port: int) -> str:
    """The command as shown, made small where it concerns the demo."""
    words = shlex.split(command)
    sets = [*SMALL["curate"], f"ingest.sources.0.port={port}"]
    other = "SOURCE=" in command or "--recipe" in command or "--source" in command
    if words[0] == "make":
        settings = SMALL["train"] if other else [*sets, *SMALL["train"]]
        if words[1] in ("help", "clean"):
            settings = []
        extra = [f"SET={' '.join(settings)}", f"VENV={sys.prefix}"]
        return shlex.join([*words, *extra])
    if words[:2] in (["curate", "explain"], ["curate", "schema"], ["curate", "init"], ["curate", "demo-judge"]):
        return command
    settings = SMALL["train"] if words[0] == "train" else []
    settings = settings if other else [*sets, *settings]
    return shlex.join([*words, *(part for one in settings for part in ("--set", one))])


@pytest.mark.skipif(not (Path(sys.prefix) / "test").exists(), reason="needs the environment that `make test` makes")
def test_every_command_runs_as_shown(place: Path) -> None:
    assert len(COMMANDS) > 10
    port = free_port()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for shown in COMMANDS:
        if shown.startswith("make test"):
            continue  # this is what runs here
        done = subprocess.run(["bash", "-c", _as_run(shown, port)], cwd=place, capture_output=True, text=True,
                              env={**os.environ, "PATH": path}, check=False)
        assert done.returncode == 0, f"{shown}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        (place / "my.toml").exists() and _point_at_pictures(place / "my.toml")


def _point_at_pictures(recipe: Path) -> None:
    """What a user does after `curate init`: name the folder."""
    recipe.write_text(recipe.read_text().replace("# model = \"ViT-B-32\"", "model = \"none\""))


@pytest.mark.parametrize(("program", "app"), [("curate", curate_app), ("train", train_app)])
def test_every_command_is_in_the_readme(program: str, app: object) -> None:
    missing = [name for name in _names(app) if not re.search(rf"{program} {name}\b|\| `{name}` \|", README)]
    assert missing == []


def test_the_file_tree_is_the_files() -> None:
    listed = subprocess.run(["git", "ls-files", "pipeline", "train"], cwd=ROOT, capture_output=True, text=True,
                            check=True).stdout.split()
    files = {name for name in listed if name.endswith(".py") and not name.endswith("__init__.py")}
    tree = README.split("## The files", 1)[1]
    shown = set(re.findall(r"^(\S+\.py)\s", tree, re.MULTILINE))
    assert shown == files


def test_pages_and_pictures_it_points_to_exist() -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", README)
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_the_columns_page_is_what_curate_schema_prints() -> None:
    assert (ROOT / "manifests" / "README.md").read_text(encoding="utf-8") == columns.as_markdown()
