"""The exported directory is a stock pipeline that draws what `train sample` draws."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import DiffusionPipeline

from pipeline.errors import StorageError, TrainingError
from tests.train.tinymodels import CAPTIONS, tiny_models
from train.export import as_pipeline, export
from train.sample import generate

KL = {"kind": "kl", "widths": (8, 8, 8, 8), "layers": 1, "latent_channels": 4, "downsample": 8}


@pytest.mark.parametrize(("objective", "solver", "vae"), [
    ({"prediction": "flow", "shift": 2.0}, "euler", None), ({"prediction": "flow"}, "dpm++", KL),
    ({"prediction": "v", "zero_terminal_snr": True}, "euler", KL), ({"prediction": "epsilon"}, "dpm++", None)])
@pytest.mark.parametrize("guidance", [1.0, 3.0])
def test_the_pipeline_draws_the_same_pictures(tmp_path: Path, objective: dict[str, Any], solver: str,
                                              vae: dict[str, Any] | None, guidance: float) -> None:
    models = tiny_models(objective, {"solver": solver}, vae)
    export(models, str(tmp_path / "made"))
    pipeline = DiffusionPipeline.from_pretrained(str(tmp_path / "made"), low_cpu_mem_usage=False)
    pipeline.set_progress_bar_config(disable=True)
    seeds = [torch.Generator().manual_seed(40 + index) for index in range(len(CAPTIONS))]
    theirs = pipeline(CAPTIONS, generator=seeds, num_inference_steps=4, guidance_scale=guidance).images
    ours = generate(models, CAPTIONS, seed=40, guidance=guidance)
    assert type(pipeline).__name__ == "StableDiffusionPipeline"
    assert ours.std() > 1
    np.testing.assert_allclose(np.stack([np.asarray(picture) for picture in theirs]).astype(int), ours, atol=1)


def test_the_directory_explains_itself_and_holds_no_pickles(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    export(tiny_models(sample={"guidance": 4.0}), str(tmp_path / "made"))
    assert capfd.readouterr() == ("", "")  # no bars of the libraries
    page = (tmp_path / "made" / "README.md").read_text()
    assert 'from_pretrained("made")' in page
    assert "num_inference_steps=4, guidance_scale=4.0" in page
    suffixes = {path.suffix for path in (tmp_path / "made").rglob("*") if path.is_file()}
    assert suffixes == {".json", ".safetensors", ".md"}


def test_an_older_pipeline_is_replaced_and_anything_else_is_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "made"
    export(tiny_models(), str(target))
    (target / "stale.txt").write_text("old")
    export(tiny_models(), str(target))
    assert not (target / "stale.txt").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all of it")
    with pytest.raises(StorageError, match="holds no pipeline"):
        export(tiny_models(), str(tmp_path / "mine"))
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "all of it"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "mine"]


def test_a_file_in_the_place_is_refused_and_stays(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(StorageError, match="is a file"):
        export(tiny_models(), str(tmp_path / "notes.txt"))
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_move_that_fails_gives_the_older_pipeline_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "made"
    export(tiny_models(), str(target))
    (target / "mark.txt").write_text("the older one")
    rename = os.rename

    def refuse(source: str, place: str) -> None:
        if place == str(target) and source.endswith("pipeline"):
            raise PermissionError(13, "Permission denied")
        rename(source, place)

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(StorageError, match="cannot write"):
        export(tiny_models(), str(target))
    assert (target / "mark.txt").read_text() == "the older one"


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write"):
        export(tiny_models(), str(tmp_path / "file" / "made"))


def test_a_vae_that_the_pipeline_would_decode_wrongly_is_refused() -> None:
    models = tiny_models()
    models.vae.module.register_to_config(shift_factor=0.0609)  # type: ignore[operator]
    with pytest.raises(TrainingError, match=r"0\.0609"):
        as_pipeline(models)
