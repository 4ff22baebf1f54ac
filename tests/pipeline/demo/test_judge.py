"""`demo-judge` on pictures whose truth is known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipeline.demo.judge import Judgement, as_json, judge
from pipeline.demo.palette import WITHHELD, Scene, Shape
from pipeline.demo.scenes import draw_square
from pipeline.errors import ManifestError


def scene(colour: str, kind: str) -> Scene:
    return Scene(
        (Shape(kind, colour, "large", "centre", 0.5, 0.5, 0.3, 0.0),), "plain", "white", False, False, 256, 256, 7
    )


def folder_of(tmp_path: Path, lines: list[tuple[str, Scene, dict[str, str]]]) -> str:
    written = []
    for number, (prompt, shown, more) in enumerate(lines):
        Image.fromarray(draw_square(shown, 64)).save(tmp_path / f"{number}.png")
        written.append(json.dumps({"file": f"{number}.png", "prompt": prompt} | more))
    (tmp_path / "prompts.jsonl").write_text("\n".join(written) + "\n")
    return str(tmp_path)


def test_right_half_right_and_wrong_pictures(tmp_path: Path) -> None:
    assert ("red", "square") in WITHHELD
    assert ("red", "circle") not in WITHHELD
    folder = folder_of(tmp_path, [
        ("a red circle", scene("red", "circle"), {}),
        ("a red circle", scene("blue", "circle"), {}),
        ("a red square", scene("red", "square"), {}),
        ("a red square", scene("teal", "heart"), {}),
    ])  # fmt: skip
    rows = {row.prompts: row for row in judge(folder)}
    # chance: of 16 deals, 2 prompts × 1 red circle and 2 prompts × 1 red square fit
    assert rows["all"] == Judgement("sample", "all", 4, 0.5, 0.75, 0.5, 4 / 16)
    assert rows["seen in training"] == Judgement("sample", "seen in training", 2, 0.5, 1.0, 0.5, 0.5)
    assert rows["withheld"] == Judgement("sample", "withheld", 2, 0.5, 0.5, 0.5, 0.5)
    assert as_json(list(rows.values()))[0]["pictures"] == 4


def test_groups_are_judged_apart_and_noise_is_no_shape(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, [
        ("a red circle", scene("red", "circle"), {"group": "reconstruction"}),
        ("a red circle", scene("red", "circle"), {"group": "sample"}),
    ])  # fmt: skip
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3)).astype(np.uint8)
    Image.fromarray(noise).save(tmp_path / "1.png")
    rows = {row.group: row for row in judge(folder) if row.prompts == "all"}
    assert rows["reconstruction"].both == 1.0
    assert rows["sample"].both == 0.0


def test_mistakes_of_people_are_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"no prompts.jsonl"):
        judge(str(tmp_path))
    (tmp_path / "prompts.jsonl").write_text("{")
    with pytest.raises(ManifestError, match="damaged"):
        judge(str(tmp_path))
    (tmp_path / "prompts.jsonl").write_text('{"file": "a.png"}\n')
    with pytest.raises(ManifestError, match="prompt"):
        judge(str(tmp_path))
    (tmp_path / "prompts.jsonl").write_text('{"file": "a.png", "prompt": "a red circle"}\n')
    with pytest.raises(ManifestError, match="cannot be read"):
        judge(str(tmp_path))
    (tmp_path / "prompts.jsonl").write_text('{"file": "a.png", "prompt": "a nice day"}\n')
    with pytest.raises(ManifestError, match="names no shape"):
        judge(str(tmp_path))
