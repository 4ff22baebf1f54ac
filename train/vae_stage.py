"""Training of the VAE: pixels in, `vae/model/` and `vae/vae.json` out. A pretrained one is only loaded."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline import storage
from pipeline.errors import TrainingError
from train import randomness
from train.feed import Feed, PixelImages, Sharing, fixed_batches
from train.loop import State
from train.models import build_vae
from train.models.vae import Vae
from train.session import ChosenRows, Session
from train.tasks import VaeTask, to_signed
from train.watch import Watch

SECTIONS = ("vae",)
"""The parts of `[train]` that decide the VAE's weights."""

SCALE_SAMPLES = 1024
GRID_PICTURES = 8
ENCODE_BATCH = 64


def train_vae(session: Session) -> None:
    """Train, fit the scale and save; nothing is done for a pretrained or a finished VAE.

    Raises Stopped when interrupted, TrainingError when a finished one was made with other settings.
    """
    settings = session.settings.vae
    if settings.pretrained is not None or _finished(session):
        return
    with randomness.seeded_torch(session.seed, "vae weights"):
        vae = build_vae(settings)
    task = VaeTask(vae).to(session.ranks.device)
    chosen, held = session.chosen("train"), session.chosen("validation")
    bad: dict[int, str] = {}
    images = PixelImages(session.training_pictures, session.buckets.shapes, bad)
    fixed = PixelImages(session.pictures, session.buckets.shapes, bad)
    feed = Feed(images, session.shards.row, session.seed, noise_shape=partial(latent_shape, vae))
    probe = Feed(fixed, session.shards.row, session.seed)
    job = session.job("vae", settings.optimiser, SECTIONS, feed, chosen)
    session.say(f"vae: {parameters(task)} parameters, {len(chosen.rows)} pictures")
    grid = partial(_grid, session, vae, held if len(held.rows) else chosen)
    with Watch(job.folder, session.settings.watch, probes=session.probes(job, probe, chosen, held),
               grid=grid if session.settings.watch.grid else None, quiet=session.quiet) as watch:
        state = session.trained(task, job, watch, bad)
    if session.ranks.main:
        _keep(session, vae, state, chosen)
    session.ranks.barrier()


def load_vae(session: Session) -> Vae:
    """The finished or pretrained VAE, frozen, on this rank's device. Raises TrainingError when not trained yet."""
    settings = session.settings.vae
    if settings.pretrained is None and not storage.exists(session.place("vae", "vae.json")):
        raise TrainingError("the VAE is not trained yet", hint="run `train vae` or `train run` first")
    vae = build_vae(settings, session.place("vae", "model"))
    vae.module.requires_grad_(False).eval().to(session.ranks.device)
    if vae.downsample != settings.downsample:
        raise TrainingError(f"the VAE shrinks by {vae.downsample}, vae.downsample is {settings.downsample}",
                            hint=f"set train.vae.downsample = {vae.downsample}")
    return vae


def encoder(vae: Vae, session: Session) -> Callable[[NDArray[np.uint8]], NDArray[Any]]:
    """uint8 pixels (b, 3, h, w) → scaled latents (b, c, h', w') as float32, always the posterior's mean."""
    @torch.no_grad()
    def encode(pixels: NDArray[np.uint8]) -> NDArray[Any]:
        latents = vae.encode(to_signed(torch.from_numpy(pixels).to(session.ranks.device)))
        result: NDArray[Any] = latents.float().cpu().numpy()
        return result

    return encode


def latent_shape(vae: Vae, pixels_chw: tuple[int, ...]) -> tuple[int, ...]:
    """(c, h', w') of the latents of pixels (3, h, w)."""
    return vae.latent_channels, pixels_chw[1] // vae.downsample, pixels_chw[2] // vae.downsample


def parameters(module: torch.nn.Module) -> str:
    """How many are trained, as people say it."""
    count = sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)
    return f"{count / 1e6:.2f} M"


def _finished(session: Session) -> bool:
    place = session.place("vae", "vae.json")
    if not storage.exists(place):
        return False
    facts, mine = _facts(place), _made_with(session)
    kept = facts["made_with"]
    changed = sorted(key for key in kept.keys() | mine.keys() if kept.get(key) != mine.get(key))
    if changed:
        raise TrainingError(
            f"the VAE in {session.place('vae')} was trained with {changed[0]} = {kept.get(changed[0])}, "
            f"now it is {mine.get(changed[0])}",
            hint="set it back, or start anew: `train vae --fresh` removes it and the denoiser")
    if facts["shards"] != session.shards.fingerprint:
        session.say("vae: kept, though the shards have changed since; `train vae --fresh` trains it on today's")
    return True


def _facts(place: str) -> dict[str, Any]:
    """What `vae.json` says. Raises TrainingError when it is damaged."""
    try:
        facts: dict[str, Any] = json.loads(storage.read_bytes(place))
        if isinstance(facts["made_with"], dict) and isinstance(facts["shards"], str):
            return facts
    except (ValueError, KeyError, TypeError):
        pass
    raise TrainingError(f"{place} is damaged, or of an earlier version",
                        hint="start anew: `train vae --fresh` removes the VAE and the denoiser")


def _made_with(session: Session) -> dict[str, str]:
    """The settings that a finished VAE has to have been made with."""
    steps = session.settings.vae.optimiser.steps
    return {**session.decided(("resolution", *SECTIONS)), "vae.optimiser.steps": str(steps)}


def _keep(session: Session, vae: Vae, state: State, chosen: ChosenRows) -> None:
    """Take the averaged weights, fit the scale on training pictures, save, and put `vae.json` in place last."""
    if state.ema is not None:
        state.task.load_state_dict({**state.task.state_dict(), **state.ema.average})
    vae.module.eval()
    order = randomness.generator(session.seed, "scale").permutation(len(chosen.rows))[:SCALE_SAMPLES]
    some = chosen.at(np.sort(order))
    feed = Feed(PixelImages(session.pictures, session.buckets.shapes), session.shards.row, session.seed)
    encode = encoder(vae, session)
    latents = [torch.from_numpy(encode(batch.images[batch.valid > 0].numpy())).flatten()
               for batch in fixed_batches(feed, some.rows, some.buckets, ENCODE_BATCH, Sharing())]
    scale = vae.fit_scale(torch.cat(latents))
    vae.save(session.place("vae", "model"))
    facts = {"version": 1, "scale": scale, "fingerprint": vae.fingerprint, "made_with": _made_with(session),
             "shards": session.shards.fingerprint}
    storage.write_bytes(session.place("vae", "vae.json"), (json.dumps(facts, indent=1) + "\n").encode())
    session.say(f"vae: latents scaled by {scale:.4f}, kept in {session.place('vae', 'model')}")


@torch.no_grad()
def _grid(session: Session, vae: Vae, chosen: ChosenRows) -> NDArray[np.uint8]:
    """Pictures above, their reconstructions below: (2, n, H, W, 3)."""
    some = chosen.at(np.flatnonzero(chosen.buckets == chosen.buckets[0])[:GRID_PICTURES])
    feed = Feed(PixelImages(session.pictures, session.buckets.shapes), session.shards.row, session.seed)
    batch = next(fixed_batches(feed, some.rows, some.buckets, GRID_PICTURES, Sharing()))
    drawn = vae.decode(vae.encode(to_signed(batch.images.to(session.ranks.device)))).float().cpu()
    pixels = ((drawn.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
    return torch.stack([batch.images, pixels]).permute(0, 1, 3, 4, 2).numpy()
