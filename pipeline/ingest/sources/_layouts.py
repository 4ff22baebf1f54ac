"""How well-known lists of picture addresses are laid out, so that naming one is enough."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Name = Literal["", "laion", "cc3m", "cc12m", "coyo", "datacomp"]


@dataclass(frozen=True)
class Layout:
    """`url` and `captions` are names of columns, of which the first that a file has is taken. `columns` are those of a
    table without a header row, whose quotation marks are plain text."""

    url: tuple[str, ...]
    captions: tuple[str, ...]
    columns: tuple[str, ...] = ()


LAYOUTS: dict[str, Layout] = {
    # SAMPLE_ID, URL, TEXT, HEIGHT, WIDTH, LICENSE, NSFW, similarity (400M); hash, punsafe, pwatermark (5B);
    # lower-case names in later editions
    "laion": Layout(("URL", "url"), ("TEXT", "caption", "text")),
    # Train_GCC-training.tsv: caption, address
    "cc3m": Layout(("url", "image_url"), ("caption",), ("caption", "url")),
    # cc12m.tsv: address, caption
    "cc12m": Layout(("url", "image_url"), ("caption",), ("url", "caption")),
    # id, url, text, width, height, image_phash, clip_similarity_vitb32, nsfw_score_opennsfw2, …
    "coyo": Layout(("url",), ("text",)),
    # uid, url, text, original_width, original_height, clip_b32_similarity_score, face_bboxes, sha256, …
    "datacomp": Layout(("url",), ("text",)),
}


def first_of(names: tuple[str, ...], there: Iterable[str]) -> str:
    """The first of `names` that is there, or just the first."""
    found = set(there)
    return next((name for name in names if name in found), names[0])
