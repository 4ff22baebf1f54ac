"""Text: writing of known extent is found, textures are not taken for it, and only a recipe that asks pays for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from pipeline import checks
from pipeline.checks.text import Text
from pipeline.demo.scenes import draw, sample_scene
from pipeline.errors import ModelError
from pipeline.image import Header, Picture
from pipeline.progress import Progress
from pipeline.recipe import from_dict
from pipeline.run import Run
from pipeline.stages import execute

WORDS = "a model learns to draw what it is shown and this page is all words".split()


def _measured(image: Image.Image) -> dict[str, float]:
    return Text().measure(Picture(image, Header("PNG", "RGB", *image.size)))


def _lines(image: Image.Image, texts: list[str], size: int, colour: str = "black") -> tuple[Image.Image, float]:
    """The texts in lines below one another, and the share of the picture that they cover."""
    image, covered = image.copy(), 0.0
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(size)
    for number, text in enumerate(texts):
        at = (size, size + number * 2 * size)
        pen.text(at, text, font=font, fill=colour)
        left, top, right, bottom = pen.textbbox(at, text, font=font)
        covered += (right - left) * (bottom - top)
    return image, covered / (image.width * image.height)


@pytest.mark.parametrize(("size", "count"), [(18, 16), (24, 8), (40, 1)])
def test_the_share_is_about_what_the_letters_cover(size: int, count: int) -> None:
    image, covered = _lines(Image.new("RGB", (640, 640), "white"), [" ".join(WORDS[:6])] * count, size)
    found = _measured(image)
    assert found["text_lines"] == pytest.approx(count, abs=1)
    assert covered * 0.8 < found["text_share"] < covered * 2.5, "boxes have a margin"


@pytest.mark.parametrize("seed", range(4))
def test_scenes_and_noise_hold_no_writing_until_it_is_laid_over_them(seed: int) -> None:
    scene = draw(sample_scene(np.random.default_rng(seed))).resize((600, 450))
    assert _measured(scene)["text_share"] < 0.004
    meme, _ = _lines(scene, ["WHEN THE LOSS", "GOES DOWN"], 56, "white")
    assert _measured(meme)["text_share"] > Text.Settings().max_share
    noise = np.random.default_rng(seed).integers(0, 256, (300, 400, 3), np.uint8)
    assert _measured(Image.fromarray(noise)) == {"text_share": 0.0, "text_lines": 0.0}


@pytest.mark.parametrize("size", [(1, 1), (8, 300), (2000, 40)])
def test_any_size(size: tuple[int, int]) -> None:
    assert _measured(Image.new("RGB", size, "white")) == {"text_share": 0.0, "text_lines": 0.0}


def test_only_a_recipe_that_asks_pays_for_it(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    page, _ = _lines(Image.new("RGB", (640, 640), "white"), [" ".join(WORDS)[:50]] * 10, 20)
    page.save(folder / "page.png")
    draw(sample_scene(np.random.default_rng(1))).resize((600, 450)).save(folder / "scene.png")
    raw = {"name": "words", "workdir": str(tmp_path), "engine": {"workers": 1},
           "ingest": {"sources": [{"kind": "folder", "name": "f", "path": str(folder)}]}}

    def rows(**more: object) -> dict[str, tuple[float | None, str | None]]:
        run = Run(from_dict({**raw, **more}), Progress(quiet=True))
        execute(run, ["ingest", "measure", "dedupe", "filter"])
        names = ["url", "text_share", "reason"]
        table = run.manifests.joined(names, stages=("ingest", "measure", "filter")).arrow(names)
        return {row["url"].rsplit("/", 1)[1]: (row["text_share"], row["reason"]) for row in table.to_pylist()}

    assert {share for share, _ in rows().values()} == {None}
    found = rows(filter={"text": {"action": "drop"}})
    assert found["page.png"][1] == "much_text"
    assert found["scene.png"] == (0.0, None)
    assert rows(filter={"text": {"action": "drop", "max_share": 0.99, "max_lines": 99}})["page.png"][1] is None


def test_without_the_extra_it_says_so_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.checks.text.find_spec", lambda name: None)
    assert "text" not in checks.measuring()
    with pytest.raises(ModelError, match="text detector") as caught:
        Text().ready()
    assert "gristmill[ocr]" in caught.value.hint
