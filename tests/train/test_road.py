"""The whole road on a tiny shard folder: VAE, latents, denoiser, grid, samples; and that nothing is done twice."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from pipeline.errors import TrainingError
from pipeline.recipe import Recipe, from_dict
from tests.train.shardfolder import write_shards
from train import checkpoint
from train.cli import main
from train.denoiser_stage import load_models, train_denoiser
from train.distributed import Ranks
from train.drawing import draw_to_folder, file_stem
from train.encode import encode
from train.feed import LatentImages
from train.latents import view_number
from train.session import Session
from train.vae_stage import load_vae, train_vae
from train.watch import read_log

TINY: dict[str, Any] = {
    "resolution": 32, "cfg_dropout": 0.2,
    "vae": {"widths": [8], "layers": 1, "latent_channels": 4, "downsample": 8,
            "optimiser": {"steps": 12, "batch": 8, "ema_half_life": 20}},
    "text": {"width": 16, "layers": 1, "heads": 2, "max_tokens": 12},
    "denoiser": {"widths": [16, 32], "layers": 1, "heads": 2},
    "optimiser": {"steps": 12, "batch": 8, "lr": 1e-3, "ema_half_life": 40},
    "sample": {"steps": 3},
    "watch": {"every": 5, "log_every": 4, "grid": 2, "grid_prompts": 2, "validation_samples": 8},
    "checkpoint": {"every": 5},
}


def tiny_recipe(workdir: Path, **changes: Any) -> Recipe:
    """A recipe whose shards lie where `curate` would have put them."""
    folder = workdir / "pictures"
    folder.mkdir(exist_ok=True)
    return from_dict({"name": "tiny", "workdir": str(workdir), "train": {**TINY, **changes},
                      "ingest": {"sources": [{"kind": "folder", "name": "pictures", "path": str(folder)}]}})


def session(workdir: Path, **changes: Any) -> Session:
    return Session(tiny_recipe(workdir, **changes), Ranks(), quiet=True)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    workdir = tmp_path_factory.mktemp("road")
    write_shards(workdir / "data" / "tiny" / "shards", rows=40, broken=(1,), weights="varied")
    one = session(workdir)
    train_vae(one)
    train_denoiser(one)
    return workdir


def test_the_folder_holds_what_the_page_says(trained: Path) -> None:
    run = trained / "runs" / "tiny"
    assert (run / "vae" / "model" / "config.json").exists()
    assert checkpoint.positions(str(run / "denoiser")) == [80, 96]
    assert sorted(path.name for path in (run / "denoiser" / "grids").iterdir()) == [
        "grid-0000005.png", "grid-0000010.png", "grid-0000012.png"]
    assert Image.open(run / "grid.png").size == (2 * 32 + 2, 2 * 32 + 2)
    assert list((run / "denoiser" / "tensorboard").glob("events*"))
    assert len((run / "bad.jsonl").read_text().splitlines()) == 1


def test_the_log_tells_training_and_validation(trained: Path) -> None:
    log = read_log(str(trained / "runs" / "tiny" / "denoiser"))
    training = [line for line in log if line["kind"] == "train"]
    assert [line["step"] for line in training] == [4, 8, 12]
    assert [line["samples"] for line in training] == [32, 64, 96]
    looked = [line for line in log if line["kind"] == "validation"]
    assert [line["step"] for line in looked] == [5, 10, 12]
    assert all(np.isfinite([line["validation_loss"], line["train_loss"]]).all() for line in looked)


def test_latents_have_unit_deviation_and_every_readable_row(trained: Path) -> None:
    one = session(trained)
    caches = encode(one)
    assert len(caches.latents[0]) == 39
    assert list(caches.bad) == [1]
    good = [digest for row, digest in enumerate(one.shards.digests) if row != 1]
    latents = caches.latents[0].take(good)["latents"].astype(np.float32)
    assert latents.shape == (39, 4, 4, 4)
    assert latents.std() == pytest.approx(1, abs=0.1)
    vae = load_vae(one)
    pixels = torch.from_numpy(one.pictures.pixels(5, (32, 32)))[None].float() / 127.5 - 1
    with torch.no_grad():
        assert torch.allclose(vae.encode(pixels)[0], torch.from_numpy(latents[4]), atol=5e-3)  # row 5 less row 1


def test_a_second_run_does_nothing(trained: Path) -> None:
    run = trained / "runs" / "tiny"
    watched = [*run.glob("latents/**/*.npy"), *run.glob("vae/model/*"), *run.glob("denoiser/*.pt")]
    before = {path: path.stat().st_mtime_ns for path in watched}
    log = (run / "denoiser" / "log.jsonl").read_bytes()
    one = session(trained)
    train_vae(one)
    train_denoiser(one)
    assert {path: path.stat().st_mtime_ns for path in watched} == before
    assert (run / "denoiser" / "log.jsonl").read_bytes() == log


def test_other_settings_are_refused_by_name(trained: Path) -> None:
    vae = {**TINY["vae"], "latent_channels": 6}
    with pytest.raises(TrainingError, match=r"vae\.latent_channels = 4, now it is 6"):
        train_vae(session(trained, vae=vae))
    with pytest.raises(TrainingError, match=r"cfg_dropout = 0\.2, now it is 0\.3"):
        train_denoiser(session(trained, cfg_dropout=0.3))


def test_drawing_wants_the_settings_that_the_weights_mean_something_under(trained: Path) -> None:
    with pytest.raises(TrainingError, match=r"objective\.shift = 1\.0, now it is 3\.0"):
        load_models(session(trained, objective={"shift": 3.0}))
    with pytest.raises(TrainingError, match=r"text\.heads = 2, now it is 4"):
        load_models(session(trained, text={**TINY["text"], "heads": 4}))
    load_models(session(trained, cfg_dropout=0.5, sample={"steps": 9}, optimiser={**TINY["optimiser"], "lr": 9.0}))


def test_a_damaged_note_of_the_vae_is_said(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    note = tmp_path / "run" / "runs" / "tiny" / "vae" / "vae.json"
    for content in ("", "{", "[]", '{"made_with": 1, "shards": "x"}', '{"identity": {}}'):
        note.write_text(content)
        with pytest.raises(TrainingError, match="damaged") as caught:
            train_vae(session(tmp_path / "run"))
        assert "--fresh" in caught.value.hint


def test_drawing_needs_no_data(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "runs", tmp_path / "runs")
    drawn = draw_to_folder(load_models(session(tmp_path)), ["a red square"], str(tmp_path / "a"), count=1,
                           seed=0)
    assert Image.open(drawn[0]["file"]).size == (32, 32)


def test_a_finished_vae_serves_changed_shards_but_not_other_settings(
        trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(trained, tmp_path / "run")
    shards = tmp_path / "run" / "data" / "tiny" / "shards"
    shutil.rmtree(shards)
    write_shards(shards, rows=44, weights="varied")
    before = (tmp_path / "run" / "runs" / "tiny" / "vae" / "vae.json").read_bytes()
    train_vae(Session(tiny_recipe(tmp_path / "run"), Ranks()))
    assert "shards have changed" in capsys.readouterr().err
    assert (tmp_path / "run" / "runs" / "tiny" / "vae" / "vae.json").read_bytes() == before
    with pytest.raises(TrainingError, match=r"trained with shards"):
        train_denoiser(session(tmp_path / "run"))
    longer = {**TINY["vae"], "optimiser": {**TINY["vae"]["optimiser"], "steps": 20}}
    with pytest.raises(TrainingError, match=r"vae\.optimiser\.steps = 12, now it is 20"):
        train_vae(session(tmp_path / "run", vae=longer))


def test_other_readable_rows_are_another_plan(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    latents = next((tmp_path / "run" / "runs" / "tiny" / "latents").iterdir())
    shutil.rmtree(latents)
    tar = sorted((tmp_path / "run" / "data" / "tiny" / "shards").glob("*.tar"))[0]
    one = session(tmp_path / "run")
    row = next(row for row in range(2, 40) if one.shards.table["shard"][row].as_py() == tar.name)
    content = bytearray(tar.read_bytes())
    content[int(one.shards.table["offset"][row].as_py()) + 20] ^= 1
    tar.write_bytes(content)
    with pytest.raises(TrainingError, match=r"readable rows = 31 .* now it is 30 "):
        train_denoiser(session(tmp_path / "run"))


def test_a_samples_picture_hangs_on_its_seed_alone(trained: Path, tmp_path: Path) -> None:
    models = load_models(session(trained))
    many = draw_to_folder(models, ["a red square", "a blue square"], str(tmp_path / "a"), count=2, seed=7)
    one = draw_to_folder(models, ["a blue square"], str(tmp_path / "b"), count=1, seed=8)
    assert [(line["prompt"], line["seed"]) for line in many] == [
        ("a red square", 7), ("a red square", 8), ("a blue square", 7), ("a blue square", 8)]
    drawn, again = np.asarray(Image.open(many[3]["file"])), np.asarray(Image.open(one[0]["file"]))
    assert drawn.shape == (32, 32, 3)
    assert np.abs(drawn.astype(int) - again).max() <= 1  # batches of two and of one round differently
    assert file_stem("A red, round—circle!") == "a-red-round-circle"


def test_varied_pictures_have_several_cached_versions_and_all_are_drawn(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    one = session(tmp_path / "run", data={"crop": "random", "zoom": 0.8, "flip": True, "views": 3})
    vae = load_vae(one)
    caches = encode(one, vae)
    assert [len(stores[0]) for stores in caches.views] == [31, 31, 31]  # 40 rows less 8 held out and 1 broken
    row = int(one.shards.rows("train")[4])
    pixels = one.training_pictures.pixels(row, (32, 32), view_number(one.shards.digests[row], 2))
    with torch.no_grad():
        latent = vae.encode(torch.from_numpy(pixels)[None].float() / 127.5 - 1)[0]
    kept = caches.views[2][0].take([one.training_pictures.key(row)])["latents"][0].astype(np.float32)
    assert torch.allclose(latent, torch.from_numpy(kept), atol=5e-3)
    images = LatentImages(caches.views, one.training_pictures.key, one.seed)
    drawn, _ = images.load(np.full(64, row), 0, np.arange(64))
    assert len(np.unique(drawn.numpy(), axis=0)) == 3
    again, _ = images.load(np.full(32, row), 0, np.arange(32, 64))
    assert torch.equal(again, drawn[32:]), "a sample's version hangs on its number alone"


def test_training_on_the_way_without_a_latent_cache_and_with_buckets(tmp_path: Path) -> None:
    sizes = {"1:1": (40, 40), "2:1": (80, 40)}
    write_shards(tmp_path / "data" / "tiny" / "shards", rows=80, bucket_sizes=sizes, broken=(4,))
    data = {"cache_latents": False, "crop": "random", "flip": True, "aspect": "buckets"}
    one = session(tmp_path, data=data)
    assert one.buckets.shapes == [(32, 32), (16, 48)]
    train_vae(one)
    train_denoiser(one)
    assert not (tmp_path / "runs" / "tiny" / "latents").exists()
    told = [json.loads(line) for line in (tmp_path / "runs" / "tiny" / "bad.jsonl").read_text().splitlines()]
    assert [line["id"] for line in told] == [one.shards.row(4).id]
    log = read_log(str(tmp_path / "runs" / "tiny" / "denoiser"))
    assert log[-1]["step"] == 12


@dataclass
class Outcome:
    """What a command left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


@pytest.fixture
def command(recipe_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs `train …` in this process: importing diffusers anew for each command would take most of the time."""
    def run(workdir: Path, *arguments: str) -> Outcome:
        options = ["--recipe", str(recipe_file), "--workdir", str(workdir)]
        monkeypatch.setattr(sys, "argv", ["train", *arguments, *options])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        shown = capsys.readouterr()
        return Outcome(code, shown.out, shown.err)

    return run


@pytest.fixture
def recipe_file(tmp_path: Path) -> Path:
    """The tiny recipe as TOML."""
    lines = ['name = "tiny"', "[[ingest.sources]]", 'kind = "folder"', 'name = "p"', f'path = "{tmp_path}"']

    def section(name: str, values: dict[str, Any]) -> None:
        lines.append(f"[{name}]")
        lines.extend(f"{key} = {json.dumps(value)}" for key, value in values.items() if not isinstance(value, dict))
        for key, value in values.items():
            if isinstance(value, dict):
                section(f"{name}.{key}", value)

    section("train", TINY)
    path = tmp_path / "tiny.toml"
    path.write_text("\n".join(lines))
    return path


def test_the_commands_print_data_on_stdout_and_the_next_step_on_stderr(trained: Path, command: Command) -> None:
    done = command(trained, "run")
    assert done.code == 0, done.err
    assert done.out == f"{trained}/runs/tiny/grid.png\n"
    assert "next: train sample" in done.err
    drawn = command(trained, "sample", "a red square", "--json")
    assert drawn.code == 0, drawn.err
    listed = json.loads(drawn.out)
    assert listed[0]["prompt"] == "a red square"
    assert Image.open(listed[0]["file"]).size == (32, 32)
    estimated = command(trained, "estimate", "--json")
    assert [row["part"] for row in json.loads(estimated.out)] == ["vae", "denoiser"]


def test_users_errors_are_one_line_one_hint_and_exit_code_2(tmp_path: Path, command: Command) -> None:
    for arguments, words in (
            (["run"], "there are no shards at"),
            (["sample", "x"], "no trained model"),
            (["run", "--set", "train.optimizer.steps=3"], "unknown key 'train.optimizer'"),
            (["run", "--set", "train.resolution=36"], "not a multiple of 16")):
        failed = command(tmp_path, *arguments)
        assert failed.code == 2, failed.err
        assert failed.out == ""
        first, second = failed.err.splitlines()
        assert first.startswith("error: ")
        assert words in first
        assert second.startswith("hint: ")
