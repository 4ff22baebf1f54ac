"""Filling the caches: latents of every chosen picture, text states of every caption."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from numpy.typing import NDArray

from pipeline import storage
from train import randomness
from train.latents import ArrayStore, encode_captions, encode_pictures
from train.models import build_text
from train.models.text import TextEncoder
from train.models.vae import Vae
from train.pictures import Pictures
from train.session import ChosenRows, Session
from train.vae_stage import encoder, load_vae

SECONDS_BETWEEN_LINES = 10.0


@dataclass(frozen=True)
class Caches:
    """One latent store per bucket, the same for each version of the training pictures where they are varied, text
    states unless the text encoder is trained, and the unreadable rows."""

    latents: list[ArrayStore]
    views: list[list[ArrayStore]]
    texts: ArrayStore | None
    bad: dict[int, str] = field(default_factory=dict)


def encode(session: Session, vae: Vae | None = None, text: TextEncoder | None = None) -> Caches:
    """Encode what is not cached yet, shared out over the ranks."""
    vae, text = vae or load_vae(session), text or load_text(session)
    splits = [session.chosen("train"), session.chosen("validation")]
    bad: dict[int, str] = {}
    centred = _stores(session, vae, session.pictures, splits, 0, bad)
    varied = session.training_pictures
    views = [_stores(session, vae, varied, splits[:1], view, bad) for view in range(session.settings.data.views)
             ] if varied.vary.any else [centred]
    session.report_bad(bad)
    texts = None
    if not text.trainable:
        texts = ArrayStore(session.place("text", text.fingerprint))
        captions = ["", *(caption for chosen in splits for caption in all_captions(session, chosen))]
        encode_captions(texts, captions, _text_states(text), ranks=session.ranks,
                        report=_report(session, "captions"))
    return Caches(centred, views, texts, bad)


def _stores(session: Session, vae: Vae, pictures: Pictures, splits: Sequence[ChosenRows], view: int,
            bad: dict[int, str]) -> list[ArrayStore]:
    """One version of the splits' pictures, a store per bucket; adds to `bad`."""
    stores = []
    vary = f"-{pictures.vary.name}-seed{session.seed}-{view}" if pictures.vary.any else ""
    for number, shape in enumerate(session.buckets.shapes):
        store = ArrayStore(session.place("latents", f"{vae.fingerprint}-{shape[0]}x{shape[1]}{vary}"))
        rows = [row for chosen in splits for row in chosen.rows[chosen.buckets == number].tolist() if row not in bad]
        what = f"latents, version {view + 1}" if vary else "latents"
        bad |= encode_pictures(store, pictures, rows, shape, encoder(vae, session), view=view, ranks=session.ranks,
                               threads=session.settings.data.workers, report=_report(session, what))
        stores.append(store)
    return stores


def load_text(session: Session) -> TextEncoder:
    """The text encoder on this rank's device; a trainable one with fresh weights.

    Its vocabulary is learnt from the training captions once and kept in `denoiser/tokenizer/`.
    """
    settings, folder = session.settings.text, session.place("denoiser", "tokenizer")
    if settings.kind == "pretrained":
        text = build_text(settings, session.recipe.name)
    else:
        done = storage.join(folder, "done")
        if session.ranks.main and not storage.exists(done):
            captions = all_captions(session, session.chosen("train"))
            build_text(settings, session.recipe.name, captions=captions).save_tokenizer(folder)
            storage.write_bytes(done, b"")
        session.ranks.barrier()
        with randomness.seeded_torch(session.seed, "text weights"):
            text = build_text(settings, session.recipe.name, folder=folder)
    text.module.to(session.ranks.device)
    return text


def all_captions(session: Session, chosen: ChosenRows) -> list[str]:
    """Every acceptable caption of the rows, in row order."""
    rows = (session.shards.row(row) for row in chosen.rows.tolist())
    return [caption for row in rows for caption in dict.fromkeys((row.caption, *row.captions))]


def _text_states(text: TextEncoder) -> Callable[[list[str]], tuple[NDArray[Any], NDArray[Any]]]:
    @torch.no_grad()
    def states(captions: list[str]) -> tuple[NDArray[Any], NDArray[Any]]:
        text_bld, mask_bl = text.encode(captions)
        return text_bld.float().cpu().numpy(), mask_bl.cpu().numpy()

    return states


def _report(session: Session, what: str) -> Callable[[int, int], None]:
    """Says how far encoding is: at the end, and every ten seconds before."""
    begun = said = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal said
        now = time.monotonic()
        if done == total or now - said > SECONDS_BETWEEN_LINES:
            said = now
            session.say(f"{what}: {done} of {total} encoded, {done / max(now - begun, 1e-9):.0f}/s")

    return report
