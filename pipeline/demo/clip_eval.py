"""How good the demo's CLIP is on scenes it never saw: retrieval, telling wrong captions apart, writing captions.

Scenes are drawn at their full size, as the website shows them, and go through the model's own preprocessing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.clip import Clip, load
from pipeline.clip_files import DEMO

from .clip_data import sample_scenes, scene_facts, text_facts, truth
from .scenes import (
    CaptionAttributes,
    Mention,
    Scene,
    caption,
    caption_attributes,
    draw,
    full_caption,
    is_true,
)

HELD_OUT_STREAM = 1_000_003  # training draws from other streams of the same seed
MISMATCH_SHARE = 0.04  # about as many captions of other pictures as the website has


@dataclass(frozen=True)
class Report:
    """Shares in 0..1. `threshold` is the cosine at which wrong captions are told apart best (F1)."""

    scenes: int
    retrieval_text: float
    retrieval_image: float
    threshold: float
    recall: float
    precision: float
    lowest_true: float
    highest_false: float
    written_gist: float
    written_size: float
    written_place: float
    written_background: float
    written_all: float

    def __str__(self) -> str:
        lines = [f"  {name:<20} {value:.4f}" for name, value in asdict(self).items()]
        return "held-out scenes, drawn at full size\n" + "\n".join(lines)


def held_out_scenes(count: int, seed: int, seen: Collection[Scene]) -> list[Scene]:
    """Scenes from a stream of their own. Raises ValueError when one of them was trained on."""
    scenes = sample_scenes(count, np.random.default_rng([seed, HELD_OUT_STREAM]))
    if shared := set(scenes) & set(seen):
        raise ValueError(f"{len(shared)} held-out scenes were trained on")
    return scenes


def examine(folder: Path, scenes: Sequence[Scene], seed: int) -> Report:
    """Measure the model in `folder` on `scenes`."""
    clip = load(f"local-dir:{folder}", None, recipe_name=DEMO)
    rng = np.random.default_rng([seed, HELD_OUT_STREAM, 1])
    with ThreadPoolExecutor() as pool:
        prepared = list(pool.map(lambda scene: clip.prepare(draw(scene)), scenes))
    images = clip.embed_images(prepared)
    text_right, image_right = _retrieval(clip, images, scenes)
    own = [caption(scene, rng) for scene in scenes]
    threshold, recall, precision, low, high = _mismatches(clip, images, scenes, own, rng)
    shares = _written(clip.generate(prepared), scenes)
    return Report(len(scenes), text_right, image_right, threshold, recall, precision, low, high, *shares)


def _retrieval(clip: Clip, images: NDArray[np.float32], scenes: Sequence[Scene]) -> tuple[float, float]:
    """Among all full captions, is the nearest one true of the picture; and the other way round."""
    texts = [full_caption(scene) for scene in scenes]
    cosines = images @ clip.embed_texts(texts).T
    whole, _ = truth(scene_facts(scenes), text_facts(texts))
    rows = np.arange(len(scenes))
    text_right = whole[rows, cosines.argmax(1)].mean()
    return float(text_right), float(whole[cosines.argmax(0), rows].mean())


def _mismatches(
    clip: Clip, images: NDArray[np.float32], scenes: Sequence[Scene], own: Sequence[str], rng: np.random.Generator
) -> tuple[float, float, float, float, float]:  # fmt: skip
    """Best threshold with its recall and precision for captions of another picture, at the website's share of them.

    Every scene keeps its own caption; each also gets other scenes' captions that state a false colour or shape, and
    these are weighed down to the website's share.
    """
    vectors = clip.embed_texts(own)
    cosines = images @ vectors.T
    _, gist = truth(scene_facts(scenes), text_facts(own))
    true = np.diag(cosines)
    others = rng.integers(len(scenes), size=(len(scenes), 8))
    rows = np.arange(len(scenes))[:, None]
    false = cosines[rows, others][~gist[rows, others]]
    best = (0.0, 0.0, 0.0, 0.0)
    for threshold in np.arange(-0.2, 0.95, 0.01):
        recall = float((false < threshold).mean())
        caught = recall * MISMATCH_SHARE
        wrongly = float((true < threshold).mean()) * (1 - MISMATCH_SHARE)
        precision = caught / max(caught + wrongly, 1e-9)
        f1 = 2 * recall * precision / max(recall + precision, 1e-9)
        best = max(best, (f1, float(threshold), recall, precision))
    return (*best[1:], float(np.quantile(true, 0.001)), float(np.quantile(false, 0.95)))


def _written(texts: Sequence[str], scenes: Sequence[Scene]) -> tuple[float, float, float, float, float]:
    """Shares of captions whose colours and shapes, sizes, places, backgrounds and everything are exactly right."""
    right = []
    for text, scene in zip(texts, scenes, strict=True):
        said, meant = caption_attributes(text), caption_attributes(full_caption(scene))
        pairs = list(zip(_in_order(said), _in_order(meant), strict=False))
        same_count = len(said["mentions"]) == len(meant["mentions"])
        gist = same_count and all(a["shape"] == b["shape"] and a["colour"] == b["colour"] for a, b in pairs)
        size = same_count and all(a["size"] == b["size"] for a, b in pairs)
        place = same_count and all(a["position"] == b["position"] for a, b in pairs)
        ground = said["background"] == meant["background"]
        right.append((gist, size, place, ground, len(pairs) > 0 and same_count and is_true(text, scene)))
    shares = np.asarray(right, np.float64).mean(0)
    return (float(shares[0]), float(shares[1]), float(shares[2]), float(shares[3]), float(shares[4]))


def _in_order(stated: CaptionAttributes) -> list[Mention]:
    """Two shapes of one size can be named in either order."""
    return sorted(stated["mentions"], key=lambda mention: mention["shape"])
