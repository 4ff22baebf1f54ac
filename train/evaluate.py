"""What a trained model can do: pictures of chosen prompts, real pictures through the VAE, and their CLIP scores.

    runs/<name>/evaluation/samples/000-0.png          prompt 0, picture 0, averaged weights
    runs/<name>/evaluation/reconstructions/000.png    a held-out picture through the VAE: the ceiling
    runs/<name>/evaluation/samples.png                all samples, a row per prompt
    runs/<name>/evaluation/evaluation.json            the figures
    runs/<name>/evaluation/prompts.jsonl              file, prompt, group and clip_score of each picture, written last

`group` is `sample` or `reconstruction`. On the demo, `curate demo-judge` reads this folder.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from pipeline import clip, storage
from train.pictures import BadPicture
from train.sample import Models, generate, to_pixels
from train.watch import save_grid

if TYPE_CHECKING:
    from train.session import Session

FOLDER = "evaluation"
PROMPTS = "prompts.jsonl"

Bytes = NDArray[np.uint8]
Figures = dict[str, float | int | str | None]


@dataclass(frozen=True)
class Drawn:
    """One picture to be judged: uint8 (H, W, 3), its path below the evaluation's folder, prompt and group."""

    pixels: Bytes
    file: str
    prompt: str
    group: str


def evaluate(session: Session, models: Models) -> Figures:
    """Draw, reconstruct, score, and write the folder anew. Returns the figures of `evaluation.json`.

    Raises ModelError for a CLIP that cannot be loaded, before anything is drawn.
    """
    settings = session.settings.evaluate
    clip.check(settings.clip_model, settings.clip_pretrained, recipe_name=session.recipe.name)
    prompts = settings.prompts or captions(session, settings.prompt_count)
    samples = draw(models, prompts, settings.per_prompt, session.seed)
    reconstructions, psnr = reconstruct(session, models, settings.reconstructions)
    pictures = [*samples, *reconstructions]
    scores = clip_scores(session, pictures) if settings.clip_model != clip.NONE else [None] * len(pictures)
    figures: Figures = {
        "prompts": len(prompts), "samples": len(samples), "reconstructions": len(reconstructions),
        "reconstruction_psnr": psnr, "clip_model": settings.clip_model,
        "sample_clip_score": _mean(scores[:len(samples)]),
        "reconstruction_clip_score": _mean(scores[len(samples):]),
        "steps": models.settings.sample.steps, "guidance": models.settings.sample.guidance}
    _write(session.place(FOLDER), pictures, scores, figures)
    sheet = np.stack([picture.pixels for picture in samples])
    save_grid(session.place(FOLDER, "samples.png"), sheet.reshape(len(prompts), settings.per_prompt, *sheet.shape[1:]))
    return figures


def captions(session: Session, count: int) -> tuple[str, ...]:
    """The first `count` different captions of held-out rows; of training rows when nothing is held out."""
    rows = session.shards.rows("validation")
    rows = rows if len(rows) else session.shards.rows("train")
    found: dict[str, None] = {}
    for row in rows.tolist():
        if len(found) == count:
            break
        found.setdefault(session.shards.row(row).caption)
    return tuple(found)


def draw(models: Models, prompts: Sequence[str], per_prompt: int, seed: int) -> list[Drawn]:
    """`per_prompt` pictures of every prompt, each from noise of its own."""
    repeated = [prompt for prompt in prompts for _ in range(per_prompt)]
    return [Drawn(pixels, f"samples/{number // per_prompt:03d}-{number % per_prompt}.png", prompt, "sample")
            for number, (pixels, prompt) in enumerate(zip(generate(models, repeated, seed), repeated, strict=True))]


def reconstruct(session: Session, models: Models, count: int) -> tuple[list[Drawn], float | None]:
    """Up to `count` held-out pictures through the VAE, and their mean PSNR in dB (peak 255)."""
    side = session.settings.resolution
    rows = session.shards.rows("validation")
    rows = rows if len(rows) else session.shards.rows("train")
    drawn: list[Drawn] = []
    ratios: list[float] = []
    for row in rows.tolist():
        if len(drawn) == count:
            break
        try:
            pixels_chw = session.pictures.pixels(row, (side, side))
        except BadPicture:
            continue
        again = through_vae(models, pixels_chw)
        ratios.append(psnr(again, pixels_chw.transpose(1, 2, 0)))
        drawn.append(Drawn(again, f"reconstructions/{len(drawn):03d}.png", session.shards.row(row).caption,
                           "reconstruction"))
    return drawn, _mean(ratios)


@torch.no_grad()
def through_vae(models: Models, pixels_chw: Bytes) -> Bytes:
    """A uint8 (3, h, w) picture encoded and decoded: uint8 (h, w, 3)."""
    signed = torch.from_numpy(pixels_chw).to(models.device).float()[None] / 127.5 - 1.0
    drawn: Bytes = to_pixels(models.vae.decode(models.vae.encode(signed)))[0]
    return drawn


def psnr(a: Bytes, b: Bytes) -> float:
    """Peak signal-to-noise ratio in dB: 10 · log10(255² / mean square error); infinite for equal pictures."""
    error = float(np.square(a.astype(np.float64) - b).mean())
    return 10 * math.log10(255**2 / error) if error else math.inf


def clip_scores(session: Session, pictures: Sequence[Drawn]) -> list[float | None]:
    """CLIP cosine of each picture and its prompt, -1..1 (Hessel et al. 2021 without their factor 2.5)."""
    settings = session.settings.evaluate
    model = clip.load(settings.clip_model, settings.clip_pretrained, recipe_name=session.recipe.name)
    seen = model.embed_images([picture.pixels for picture in pictures])
    texts = list(dict.fromkeys(picture.prompt for picture in pictures))
    read = dict(zip(texts, model.embed_texts(texts), strict=True))
    return [float(vector @ read[picture.prompt]) for vector, picture in zip(seen, pictures, strict=True)]


def _write(folder: str, pictures: Sequence[Drawn], scores: Sequence[float | None], figures: Figures) -> None:
    storage.remove(folder)
    lines = []
    for picture, score in zip(pictures, scores, strict=True):
        with storage.atomic_writer(storage.join(folder, picture.file)) as file:
            Image.fromarray(picture.pixels).save(file, format="PNG")
        lines.append(json.dumps({"file": picture.file, "prompt": picture.prompt, "group": picture.group,
                                 "clip_score": score}, ensure_ascii=False))
    storage.write_bytes(storage.join(folder, "evaluation.json"), (json.dumps(figures, indent=1) + "\n").encode())
    storage.write_bytes(storage.join(folder, PROMPTS), ("\n".join(lines) + "\n").encode())


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
