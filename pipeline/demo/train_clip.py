"""Train the CoCa model that the demo ships: `python -m pipeline.demo.train_clip --out FOLDER`.

A few million parameters, one thread, about half an hour. Three losses on generated scenes: a sigmoid loss over
every picture and text of the batch (Zhai et al. 2023, SigLIP) whose labels are exact, because a scene knows which
texts are true of it; a softmax contrastive loss (Radford et al. 2021) that leaves out other true texts; and CoCa's
captioning loss (Yu et al. 2022) on full captions. A head that is thrown away afterwards tells each patch's shape and
colour, which makes the picture side learn several times faster. What is shipped is an average over the weights' path.

The shipped weights came of two runs, 25 minutes on one core that was shared:

    python -m pipeline.demo.train_clip --out first
    python -m pipeline.demo.train_clip --start first --looking 0 --steps 1900 --rate 8e-4 --pictures 18000 --seed 8
"""

from __future__ import annotations

import argparse
import hashlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import clip_init
from .clip_data import (
    Facts,
    Pictures,
    draw_pictures,
    junk_text,
    near_miss,
    sample_scenes,
    scene_facts,
    text_facts,
    truth,
    written_caption,
)
from .clip_model import CONTEXT, MEAN, PATCH, SIDE, STD, WEIGHTS, WIDTH, model_config, save, tokenizer
from .scenes import COLOURS, SHAPES, caption

SAID_EVERY = 50  # steps
PAIRS = 0.6  # how often a scene of one shape is drawn again: about 3 in 10 training scenes then have two


@dataclass(frozen=True)
class Plan:
    """How long and how hard to train. Rates are AdamW's; `pictures` is the number of scenes drawn.

    `looking` counts the steps of the first lesson, pictures alone; `steps` those of the second, pictures and words.
    """

    pictures: int = 24_000
    batch: int = 32
    looking: int = 1500
    steps: int = 1200
    rate: float = 1e-3
    warmup: float = 0.05
    decay: float = 0.05
    average: float = 0.998
    seed: int = 7


class Lessons:
    """Batches without end: pictures in random order, captions written anew each time."""

    def __init__(self, pictures: Pictures, batch: int, rng: np.random.Generator) -> None:
        self.pictures, self.batch, self.rng = pictures, batch, rng
        self.facts = scene_facts(pictures.scenes)
        self.tokenizer = tokenizer()
        self.tokenizer.enable_truncation(CONTEXT - 1)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while True:
            order = self.rng.permutation(len(self.pictures.scenes))
            for start in range(0, len(order) - self.batch + 1, self.batch):
                yield self._batch(order[start : start + self.batch])

    def _batch(self, rows: np.ndarray) -> dict[str, Any]:
        rng, scenes = self.rng, [self.pictures.scenes[i] for i in rows]
        full = [written_caption(scene) for scene in scenes]
        texts = [caption(scene, rng) for scene in scenes]
        texts += [near_miss(scene, rng) for scene in scenes[: len(scenes) // 2]]
        texts += [junk_text(rng) for _ in range(3)]
        shown = Facts(self.facts.shapes[rows], self.facts.rest[rows])
        return {
            "pixels": normalise(torch.from_numpy(self.pictures.pixels[rows])),
            "patches": torch.from_numpy(self.pictures.patch_labels[rows]),
            "texts": self.ids(texts),
            "full": self.ids(full),
            "truth": [torch.from_numpy(t) for t in truth(shown, text_facts(texts + full))],
        }

    def ids(self, texts: list[str]) -> Tensor:
        """Token ids (n, length), padded with 0; at least one padding, which CoCa's attention mask counts on."""
        encoded = [line.ids for line in self.tokenizer.encode_batch(texts)]
        length = max(map(len, encoded)) + 1
        padded = np.zeros((len(texts), length), np.int64)
        for row, line in zip(padded, encoded, strict=True):
            row[: len(line)] = line
        return torch.from_numpy(padded)


def normalise(pixels_bhwc: Tensor) -> Tensor:
    """uint8 (b, h, w, 3) → float (b, 3, h, w) as the model's preprocessing does."""
    scaled = pixels_bhwc.permute(0, 3, 1, 2).float() / 255
    return (scaled - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]


def losses(model: Any, patch_head: nn.Module, batch: dict[str, Any]) -> dict[str, Tensor]:
    """The four terms; their plain sum is minimised."""
    image, patches_bld = model._encode_image(batch["pixels"])
    full_text, tokens_bld = model._encode_text(batch["full"])
    text = torch.cat([_encode_short_first(model, batch["texts"]), full_text])
    logits = model.logit_scale.exp() * image @ text.T
    whole, gist = batch["truth"]
    spelled = model.text_decoder(patches_bld, tokens_bld[:, :-1])
    return {
        "sigmoid": _sigmoid_loss(logits + model.logit_bias, whole, gist),
        "softmax": 0.5 * _softmax_loss(logits, whole, len(batch["full"])),
        "caption": F.cross_entropy(spelled.transpose(1, 2), batch["full"][:, 1:], ignore_index=0),
        "patch": patch_loss(patch_head, patches_bld, batch["patches"]),
    }


def patch_loss(patch_head: nn.Module, patches_bld: Tensor, labels_bl2: Tensor) -> Tensor:
    """Cross-entropies of each patch's shape and colour."""
    shape, colour = patch_head(patches_bld).split([len(SHAPES) + 1, len(COLOURS) + 1], dim=-1)
    return F.cross_entropy(shape.transpose(1, 2), labels_bl2[..., 0]) + F.cross_entropy(
        colour.transpose(1, 2), labels_bl2[..., 1]
    )


def _encode_short_first(model: Any, ids_bl: Tensor) -> Tensor:
    """Text vectors; the shorter half of the texts is encoded without the padding that the longer half needs."""
    lengths = (ids_bl != 0).sum(1)
    order = lengths.argsort(stable=True)
    halves = [half for half in order.chunk(2) if len(half)]
    found = [model.encode_text(ids_bl[half, : int(lengths[half].max()) + 1]) for half in halves]
    return torch.cat(found)[order.argsort()]


def _sigmoid_loss(logits: Tensor, whole: Tensor, gist: Tensor) -> Tensor:
    """True pairs weigh as much as false ones; a text false only in size, place or background counts a tenth."""
    each = F.binary_cross_entropy_with_logits(logits, whole.float(), reduction="none")
    false = torch.where(gist, 0.1, 1.0) * ~whole
    # The mean over false pairs is ruled by easy ones, so hard ones are weighed up by how wrong they are.
    hard = false * torch.sigmoid(logits.detach()).sqrt()
    true_loss = (each * whole).sum() / whole.sum()
    return true_loss + (each * hard).sum() / hard.sum().clamp(min=1e-3) + (each * false).sum() / len(logits)


def _softmax_loss(logits: Tensor, whole: Tensor, count: int) -> Tensor:
    """Each picture finds its own caption among all texts that are false of it, and each caption its picture."""
    own = torch.arange(count)
    total = torch.zeros(())
    for offset in (0, logits.shape[1] - count):
        others = whole.clone()
        others[own, own + offset] = False  # the caption's own column counts
        masked = logits.masked_fill(others, -math.inf)
        total = total + F.cross_entropy(masked, own + offset)
        total = total + F.cross_entropy(masked[:, offset : offset + count].T, own)
    return total / 4


def learn(plan: Plan, pictures: Pictures, folder: Path, start: Path | None = None) -> None:
    """Train and save, from the weights in `start` if given; prints the terms of the loss as it goes."""
    from open_clip.coca_model import CoCa
    from safetensors.torch import load_file

    with torch.random.fork_rng():
        torch.manual_seed(plan.seed)
        config = {k: v for k, v in model_config()["model_cfg"].items() if k != "custom_text"}
        model = CoCa(**config)
        nn.init.normal_(model.text_decoder.text_projection, std=WIDTH**-0.5)  # open_clip leaves it unset
        patch_head = nn.Linear(WIDTH, len(SHAPES) + len(COLOURS) + 2)
    if start is None:
        sample = normalise(torch.from_numpy(pictures.pixels[:2000]))
        clip_init.start(model.visual, sample, torch.Generator().manual_seed(plan.seed))
    else:
        model.load_state_dict(load_file(start / WEIGHTS))

    rng = np.random.default_rng([plan.seed, 2])
    seeing = [*model.visual.parameters(), *patch_head.parameters()]
    for _ in _steps(plan, plan.looking, seeing, lambda: _looking(model, patch_head, pictures, plan.batch, rng)):
        pass

    ema: Any = torch.optim.swa_utils.get_ema_multi_avg_fn(plan.average)  # type: ignore[no-untyped-call]
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=ema, use_buffers=False)
    lessons = iter(Lessons(pictures, plan.batch, np.random.default_rng([plan.seed, 3])))
    everything = [*model.parameters(), *patch_head.parameters()]
    for step in _steps(plan, plan.steps, everything, lambda: losses(model, patch_head, next(lessons))):
        if step >= plan.steps // 4:
            average.update_parameters(model)
            if step % 400 == 0:
                save(average.module, folder)
    save(average.module, folder)


def _looking(
    model: Any, patch_head: nn.Module, pictures: Pictures, batch: int, rng: np.random.Generator
) -> dict[str, Tensor]:  # fmt: skip
    """The first lesson: what lies on each patch. No words yet."""
    rows = rng.integers(len(pictures.pixels), size=batch)
    _, patches_bld = model._encode_image(normalise(torch.from_numpy(pictures.pixels[rows])))
    return {"patch": patch_loss(patch_head, patches_bld, torch.from_numpy(pictures.patch_labels[rows]))}


def _steps(
    plan: Plan, count: int, parameters: list[nn.Parameter], terms_of: Callable[[], dict[str, Tensor]]
) -> Iterator[int]:  # fmt: skip
    """Take `count` AdamW steps down the sum of the terms; yields after each. Cosine rate after a short warm-up."""
    optimiser = torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.ndim > 1], "weight_decay": plan.decay},
            {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
        ],
        lr=plan.rate, betas=(0.9, 0.98),
    )  # fmt: skip
    started, sums = time.monotonic(), dict[str, float]()
    for step in range(count):
        warm, ebb = (step + 1) / (count * plan.warmup), 0.5 + 0.5 * math.cos(math.pi * step / count)
        for group in optimiser.param_groups:
            group["lr"] = plan.rate * min(warm, ebb)
        terms = terms_of()
        optimiser.zero_grad()
        sum(terms.values(), torch.zeros(())).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        for name, value in terms.items():
            sums[name] = sums.get(name, 0.0) + value.item() / SAID_EVERY
        if (step + 1) % SAID_EVERY == 0:
            said = "  ".join(f"{name} {value:.3f}" for name, value in sums.items())
            print(f"step {step + 1}  {said}  {time.monotonic() - started:.0f} s", flush=True)
            sums.clear()
        yield step


def training_pictures(plan: Plan, cache: Path | None) -> Pictures:
    """Draw the training pictures, or read them from `cache`, where they lie by the scenes' hash."""
    started = time.monotonic()
    scenes = sample_scenes(plan.pictures, np.random.default_rng([plan.seed, 0]), two_shapes=PAIRS)
    kept = cache / f"pixels-{SIDE}-{hashlib.sha256(repr(scenes).encode()).hexdigest()[:12]}.npz" if cache else None
    if kept and kept.exists():
        with np.load(kept) as file:
            return Pictures(tuple(scenes), file["pixels"], file["patch_labels"])
    pictures = draw_pictures(scenes, SIDE, PATCH, np.random.default_rng([plan.seed, 1]))
    if kept:
        kept.parent.mkdir(parents=True, exist_ok=True)
        np.savez(kept, pixels=pictures.pixels, patch_labels=pictures.patch_labels)
    print(f"drew {plan.pictures} pictures in {time.monotonic() - started:.0f} s", flush=True)
    return pictures


def main() -> None:
    """Train, then examine what was saved on scenes that training never saw."""
    from . import clip_eval

    parser = argparse.ArgumentParser(prog="python -m pipeline.demo.train_clip", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "clip", help="folder to write")
    parser.add_argument("--cache", type=Path, help="folder for drawn pictures, to be used again")
    parser.add_argument("--start", type=Path, help="folder of a model to go on from")
    parser.add_argument("--examine-only", action="store_true", help="do not train; examine what is in --out")
    parser.add_argument("--test-scenes", type=int, default=1500, help="held-out scenes to examine with")
    for name, value in asdict(Plan()).items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    given = parser.parse_args()
    torch.set_num_threads(1)
    plan = Plan(**{name: getattr(given, name) for name in asdict(Plan())})
    if not given.examine_only:
        learn(plan, training_pictures(plan, given.cache), given.out, given.start)
    seen = set(sample_scenes(plan.pictures, np.random.default_rng([plan.seed, 0]), two_shapes=PAIRS))
    scenes = clip_eval.held_out_scenes(given.test_scenes, plan.seed, seen)
    print(clip_eval.examine(given.out, scenes, plan.seed))


if __name__ == "__main__":
    main()
