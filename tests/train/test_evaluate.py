"""What `train evaluate` writes, and that its figures are right."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image

from pipeline.demo.judge import judge
from pipeline.errors import ModelError
from pipeline.recipe import from_dict
from tests.pipeline.tiny_coca import save_tiny_coca
from tests.train.shardfolder import write_shards
from tests.train.tinymodels import tiny_models
from train.distributed import Ranks
from train.evaluate import evaluate, psnr, through_vae
from train.session import Session


def session(workdir: Path, **evaluation: Any) -> Session:
    if not (workdir / "data").exists():
        write_shards(workdir / "data" / "tiny" / "shards", rows=24, validation=8, broken=(17,))
    settings = {"prompts": ["a red circle", "a blue star"], "per_prompt": 3, "reconstructions": 5, **evaluation}
    recipe = from_dict({"name": "tiny", "workdir": str(workdir), "train": {"resolution": 32, "evaluate": settings},
                        "ingest": {"sources": [{"kind": "folder", "name": "pictures", "path": str(workdir)}]}})
    return Session(recipe, Ranks(), quiet=True)


def lines(workdir: Path) -> list[dict[str, Any]]:
    path = workdir / "runs" / "tiny" / "evaluation" / "prompts.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_picture_is_there_with_its_prompt(tmp_path: Path) -> None:
    figures = evaluate(session(tmp_path), tiny_models())
    folder = tmp_path / "runs" / "tiny" / "evaluation"
    listed = lines(tmp_path)
    assert [line["prompt"] for line in listed[:6]] == ["a red circle"] * 3 + ["a blue star"] * 3
    assert [line["group"] for line in listed] == ["sample"] * 6 + ["reconstruction"] * 5
    assert all(Image.open(folder / line["file"]).size == (32, 32) for line in listed)
    assert Image.open(folder / "samples.png").size == (3 * 34 - 2, 2 * 34 - 2)
    assert json.loads((folder / "evaluation.json").read_text()) == figures
    assert (figures["samples"], figures["reconstructions"], figures["clip_model"]) == (6, 5, "none")
    assert figures["sample_clip_score"] is None


def test_reconstructions_are_held_out_pictures_through_the_vae(tmp_path: Path) -> None:
    one, models = session(tmp_path, reconstructions=100), tiny_models()
    figures = evaluate(one, models)
    kept = [line for line in lines(tmp_path) if line["group"] == "reconstruction"]
    held = [row for row in one.shards.rows("validation").tolist() if row != 17]  # 17 is no picture
    assert [line["prompt"] for line in kept] == [one.shards.row(row).caption for row in held]
    errors = []
    for line, row in zip(kept, held, strict=True):
        written = np.asarray(Image.open(tmp_path / "runs" / "tiny" / "evaluation" / line["file"]))
        original = one.pictures.pixels(row, (32, 32))
        assert np.array_equal(written, through_vae(models, original))
        errors.append(((written / 255 - original.transpose(1, 2, 0) / 255) ** 2).mean())
    assert figures["reconstruction_psnr"] == pytest.approx(np.mean(-10 * np.log10(errors)))


def test_again_gives_the_same_bytes_and_leaves_nothing_old(tmp_path: Path) -> None:
    evaluate(session(tmp_path, per_prompt=4), tiny_models())
    evaluate(session(tmp_path), tiny_models())
    folder = tmp_path / "runs" / "tiny" / "evaluation"
    first = {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert "000-3.png" not in first
    evaluate(session(tmp_path), tiny_models())
    assert {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == first


def test_without_prompts_held_out_captions_are_drawn(tmp_path: Path) -> None:
    evaluate(session(tmp_path, prompts=[], prompt_count=3, per_prompt=1, reconstructions=0), tiny_models())
    drawn = [line["prompt"] for line in lines(tmp_path)]
    assert len(set(drawn)) == 3
    assert all(prompt.endswith("square") for prompt in drawn)


def test_the_demos_judge_reads_the_folder(tmp_path: Path) -> None:
    """Real pictures instead of drawn ones: the judge must see what the prompts say."""
    from pipeline.demo.scenes import SHAPES, Scene, Shape, draw_square

    evaluate(session(tmp_path, prompts=["a red circle", "a blue star"], per_prompt=1, reconstructions=0),
             tiny_models())
    folder = tmp_path / "runs" / "tiny" / "evaluation"
    for line in lines(tmp_path):
        _, colour, kind = line["prompt"].split()
        assert kind in SHAPES
        shape = Shape(kind, colour, "large", "centre", 0.5, 0.5, 0.31, 0.0)
        scene = Scene((shape,), "plain", "white", False, False, 256, 256, 1)
        Image.fromarray(draw_square(scene, 64)).save(folder / line["file"])
    whole = next(row for row in judge(str(folder)) if row.prompts == "all")
    assert (whole.group, whole.pictures, whole.both, whole.chance) == ("sample", 2, 1.0, 0.5)


def test_clip_scores_are_cosines_of_picture_and_prompt(tmp_path: Path) -> None:
    model = f"local-dir:{save_tiny_coca(tmp_path / 'model')}"
    figures = evaluate(session(tmp_path, clip_model=model), tiny_models())
    network, _, preprocess = open_clip.create_model_and_transforms(model)
    tokenizer = open_clip.get_tokenizer(model)
    network.eval()
    listed = lines(tmp_path)
    for line in listed:
        picture = Image.open(tmp_path / "runs" / "tiny" / "evaluation" / line["file"])
        with torch.no_grad():
            seen = network.encode_image(preprocess(picture)[None], normalize=True)
            read = network.encode_text(tokenizer([line["prompt"]]), normalize=True)
        assert line["clip_score"] == pytest.approx(float((seen * read).sum()), abs=1e-4)
    samples = [line["clip_score"] for line in listed if line["group"] == "sample"]
    assert figures["sample_clip_score"] == pytest.approx(np.mean(samples))


def test_a_clip_that_cannot_serve_stops_before_anything_is_drawn(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="demo"):
        evaluate(session(tmp_path, clip_model="demo"), tiny_models())
    assert not (tmp_path / "runs" / "tiny" / "evaluation").exists()


def test_psnr_by_hand() -> None:
    black, grey = np.zeros((4, 4, 3), np.uint8), np.full((4, 4, 3), 51, np.uint8)
    assert psnr(grey, black) == pytest.approx(20 * math.log10(5))
    assert psnr(black, black) == math.inf
