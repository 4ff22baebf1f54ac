"""Training of the denoiser (and of a trainable text encoder) on latents, and loading of what was trained."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import TrainingError
from train import checkpoint, randomness
from train.encode import Caches, encode, load_text
from train.feed import Feed, Images, LatentImages, PixelImages
from train.loop import State
from train.models import build_denoiser
from train.models.text import TextEncoder
from train.models.vae import Vae
from train.objective import Objective
from train.sample import Models, generate
from train.session import Session
from train.tasks import DenoiserTask
from train.vae_stage import latent_shape, load_vae, parameters
from train.watch import Watch, evaluating, save_grid

MODEL_SECTIONS = ("vae", "text", "denoiser", "objective")
"""The parts of `[train]` that say what the weights mean: drawing needs the same ones."""

WHERE = {"vae.pretrained", "vae.subfolder", "text.pretrained"}
"""Settings that say where a frozen model lies; which one it is, its fingerprint says."""

SECTIONS = (*MODEL_SECTIONS, "optimiser", "cfg_dropout")
"""The parts of `[train]` that decide the denoiser's weights."""


def train_denoiser(session: Session) -> None:
    """Train until the recipe's steps and draw the last grid. Raises Stopped and TrainingError."""
    vae, text = load_vae(session), load_text(session)
    caches = encode(session, vae, text) if session.settings.data.cache_latents else None
    out = caches.bad if caches else {}
    chosen, held = session.chosen("train", out), session.chosen("validation", out)
    task = fresh_task(session, vae, text)
    bad = dict(out)
    feed, probe = _feeds(session, vae, caches, bad)
    job = session.job("denoiser", session.settings.optimiser, SECTIONS, feed, chosen)
    job.identity.update(_weights(vae, text))
    epochs = job.settings.steps * job.settings.batch / job.plan.samples_per_epoch
    session.say(f"denoiser: {parameters(task)} parameters, {len(chosen.rows)} samples, {epochs:.1f} epochs")
    models = _models(session, task, vae, text)
    grid = partial(draw_grid, session, models) if session.settings.watch.grid else None
    with Watch(job.folder, session.settings.watch, probes=session.probes(job, probe, chosen, held), grid=grid,
               quiet=session.quiet) as watch:
        state = session.trained(task, job, watch, bad)
    if grid is not None and session.ranks.main:
        _last_grid(session, state, models)
    session.ranks.barrier()


def load_models(session: Session) -> Models:
    """The trained models with averaged weights, from the newest checkpoint. Raises TrainingError without one."""
    kept = checkpoint.load(session.place("denoiser"), device=session.ranks.device)
    if kept is None:
        raise TrainingError(f"there is no trained model in {session.place('denoiser')}",
                            hint="run `make train` or `train run` first")
    vae, text = load_vae(session), load_text(session)
    _check_meaning(session, {**session.decided(MODEL_SECTIONS), **_weights(vae, text)}, kept["identity"])
    task = fresh_task(session, vae, text)
    try:
        task.load_state_dict({**kept["task"], **kept["ema"]})
    except RuntimeError as error:
        raise TrainingError("the checkpoint does not fit the recipe's models",
                            hint="use the recipe and the --set options that it was trained with") from error
    task.eval().requires_grad_(False)
    return _models(session, task, vae, text)


def _weights(vae: Vae, text: TextEncoder) -> dict[str, str]:
    """Fingerprints of the frozen models that the denoiser works with."""
    return {"vae.weights": vae.fingerprint, **({} if text.trainable else {"text.weights": text.fingerprint})}


def _check_meaning(session: Session, mine: dict[str, str], theirs: dict[str, str]) -> None:
    """Weights drawn with under other settings than trained with may fit and yet mean something else.

    A setting that is new since is none that they were trained with.
    """
    changed = sorted(key for key in (mine.keys() & theirs.keys()) - WHERE if mine[key] != theirs[key])
    if changed:
        name = changed[0]
        raise TrainingError(
            f"the model in {session.place('denoiser')} was trained with {name} = {theirs.get(name)}, "
            f"now it is {mine.get(name)}",
            hint="use the recipe and the --set options that it was trained with")


def fresh_task(session: Session, vae: Vae, text: TextEncoder) -> DenoiserTask:
    """A denoiser with fresh weights, on this rank's device, and what trains it."""
    side = session.settings.resolution
    channels, height, width = latent_shape(vae, (3, side, side))
    with randomness.seeded_torch(session.seed, "denoiser weights"):
        denoiser = build_denoiser(session.settings.denoiser, text.width, (channels, height, width))
    return DenoiserTask(denoiser, Objective(session.settings.objective), text, vae).to(session.ranks.device)


def draw_grid(session: Session, models: Models) -> NDArray[np.uint8]:
    """(prompts, pictures per prompt, H, W, 3), always from the same noise."""
    watch, sample = session.settings.watch, session.settings.sample
    prompts = grid_prompts(session)
    repeated = [prompt for prompt in prompts for _ in range(watch.grid)]
    drawn = generate(models, repeated, session.seed, sample.steps, sample.guidance)
    return drawn.reshape(len(prompts), watch.grid, *drawn.shape[1:])


def grid_prompts(session: Session) -> list[str]:
    """The recipe's, or captions of held-out rows (training rows where there are none), all different."""
    watch = session.settings.watch
    if watch.prompts:
        return list(watch.prompts)
    held = session.chosen("validation")
    rows = (held if len(held.rows) else session.chosen("train")).rows.tolist()
    return list(dict.fromkeys(session.shards.row(row).caption for row in rows))[:watch.grid_prompts]


def _feeds(session: Session, vae: Vae, caches: Caches | None, bad: dict[int, str]) -> tuple[Feed, Feed]:
    """For training, and for losses on fixed samples; without caches, `bad` is told of unreadable pictures."""
    data, row = session.settings.data, session.shards.row
    images: Images
    fixed: Images
    if caches is not None:
        images = LatentImages(caches.views, session.training_pictures.key, session.seed)
        fixed = LatentImages([caches.latents], session.pictures.key, session.seed)
        noise = _same
    else:
        images = PixelImages(session.training_pictures, session.buckets.shapes, bad)
        fixed = PixelImages(session.pictures, session.buckets.shapes, bad)
        noise = partial(latent_shape, vae)
    texts = caches.texts if caches is not None else None
    feed = Feed(images, row, session.seed, cfg_dropout=session.settings.cfg_dropout, mix=data.captions == "mix",
                noise_shape=noise, texts=texts)
    probe = Feed(fixed, row, randomness.key(session.seed, "probe"), noise_shape=noise, even_times=True, texts=texts)
    return feed, probe


def _same(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape


def _models(session: Session, task: DenoiserTask, vae: Vae, text: TextEncoder) -> Models:
    return Models(vae=vae, text=text, denoiser=task.denoiser, objective=Objective(session.settings.objective),
                  settings=session.settings)


def _last_grid(session: Session, state: State, models: Models) -> None:
    with state.ema.in_place() if state.ema else nullcontext(), evaluating(state.task):
        save_grid(session.place("grid.png"), draw_grid(session, models))
    session.say(f"sample grid: {session.place('grid.png')}")
