"""Forgetting pictures and captions: out of cached latents, text states and bytes, and drawings that may show them.

What a model has learnt stays in its weights, its checkpoints and its tokenizer: only training anew removes it.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline import storage

SHA256_BYTES = 32
DRAWN = (("vae", "grids"), ("evaluation",))
"""Folders with pictures drawn of samples, and the captions beside them; they come anew with the next look."""


def forget(folder: str, cache: str, sha256: Collection[bytes], captions: Collection[str], *, drawn: bool) -> None:
    """Remove them from below `folder` (a run's) and from `cache`. May be killed at any moment and called again."""
    pictures = set(sha256)
    for name in storage.names(storage.join(folder, "latents")):
        _without(storage.join(folder, "latents", name), lambda key: key[:SHA256_BYTES] in pictures)
    if captions and (stores := storage.names(storage.join(folder, "text"))):
        from train.latents import content_key  # only now: it brings torch

        texts = {content_key(text) for text in captions}
        for name in stores:
            _without(storage.join(folder, "text", name), texts.__contains__)
    if storage.names(cache):
        for digest in pictures:
            storage.remove(storage.join(cache, digest.hex()[:2], digest.hex()))
    if drawn:
        for place in DRAWN:
            storage.remove(storage.join(folder, *place))


def _without(store: str, gone: Callable[[bytes], bool]) -> None:
    """Rewrite those parts of an array store that hold gone keys: the new part first, then the old one's list of keys,
    then its arrays, so that a reader never finds a key without its array."""
    heads = [name for name in storage.names(store) if name.endswith(".json") and not name.startswith(".")]
    for name in heads:
        stem = storage.join(store, name.removesuffix(".json"))
        head = json.loads(storage.read_bytes(f"{stem}.json"))
        keep = np.array([not gone(bytes.fromhex(key)) for key in head["keys"]], bool)
        if not keep.all():
            if keep.any():
                _write(store, stem, head, keep)
            storage.remove(f"{stem}.json")
    stems = {name.removesuffix(".json") for name in storage.names(store) if name.endswith(".json")}
    for name in storage.names(store):
        if name in storage.leftovers(store) or (name.endswith(".npy") and name.split(".")[0] not in stems):
            storage.remove(storage.join(store, name))


def _write(store: str, stem: str, head: dict[str, Any], keep: NDArray[np.bool_]) -> None:
    names = [key for key, stays in zip(head["keys"], keep.tolist(), strict=True) if stays]
    new = storage.join(store, "part-" + hashlib.blake2b("".join(names).encode(), digest_size=8).hexdigest())
    for array in head["arrays"]:
        buffer = io.BytesIO()
        np.save(buffer, np.load(f"{stem}.{array}.npy", mmap_mode="r")[keep])
        storage.write_bytes(f"{new}.{array}.npy", buffer.getvalue())
    storage.write_bytes(f"{new}.json", json.dumps({**head, "keys": names}).encode())
