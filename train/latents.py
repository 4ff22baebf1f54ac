"""Cached latents and text embeddings: arrays by content key, in immutable parts on disk.

A store's folder is named by what decides its values (model fingerprint, shape, version), its keys are the SHA-256 of
a picture's bytes or a hash of a caption. So a changed caption, weight or selection encodes nothing anew, new rows
add parts, and a killed encoder keeps its finished ones. A part is one `.npy` per array and a `.json` that lists
its keys and is put in place last.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pipeline import storage
from train.distributed import Ranks
from train.pictures import BadPicture, Pictures, Shape

PART_ROWS = 1024
ENCODE_BATCH = 64

T = TypeVar("T")

Arrays = dict[str, NDArray[Any]]
Encoder = Callable[[NDArray[np.uint8]], NDArray[Any]]
Report = Callable[[int, int], None]
"""Called with (done, total)."""


def content_key(text: str) -> bytes:
    """16 bytes that stand for a caption."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


class ArrayStore:
    """Arrays of one shape per key, memory-mapped. `folder` is a local path."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._places: dict[bytes, tuple[int, int]] = {}
        self._parts: list[Arrays] = []
        self._known: set[str] = set()
        self.refresh()

    def refresh(self) -> None:
        """Take in the parts that others have finished since."""
        for name in storage.names(self.folder):
            if not name.endswith(".json") or name in self._known or name.startswith("."):
                continue
            head = json.loads(storage.read_bytes(storage.join(self.folder, name)))
            stem = storage.join(self.folder, name.removesuffix(".json"))
            self._parts.append({array: np.load(f"{stem}.{array}.npy", mmap_mode="r") for array in head["arrays"]})
            for row, key in enumerate(head["keys"]):
                self._places.setdefault(bytes.fromhex(key), (len(self._parts) - 1, row))
            self._known.add(name)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: bytes) -> bool:
        return key in self._places

    def append(self, keys: Sequence[bytes], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write one part, to be seen after `refresh`. Every array's first axis runs over the keys."""
        names = [key.hex() for key in keys]
        stem = "part-" + hashlib.blake2b("".join(names).encode(), digest_size=8).hexdigest()
        for array, values in arrays.items():
            buffer = io.BytesIO()
            np.save(buffer, values)
            storage.write_bytes(storage.join(self.folder, f"{stem}.{array}.npy"), buffer.getvalue())
        head = {"version": 1, "arrays": sorted(arrays), "keys": names}
        storage.write_bytes(storage.join(self.folder, f"{stem}.json"), json.dumps(head).encode())

    def take(self, keys: Sequence[bytes]) -> Arrays:
        """Stacked arrays, first axis over the keys. Raises KeyError for a key that is not there."""
        places = [self._places[key] for key in keys]
        return {array: np.stack([self._parts[part][array][row] for part, row in places])
                for array in self._parts[places[0][0]]}


def view_number(digest: bytes, view: int) -> int:
    """The number behind crop, zoom and mirror of one version of a picture: of its bytes, not of its place."""
    return int.from_bytes(digest[:6], "big") << 8 | view


def encode_pictures(store: ArrayStore, pictures: Pictures, rows: Sequence[int], shape: Shape, encode: Encoder,
                    *, view: int = 0, ranks: Ranks, threads: int, report: Report) -> dict[int, str]:
    """Put the latents of all `rows` into the store; each rank does its share. Returns row → why it is bad.

    `encode` maps uint8 (b, 3, h, w) to (b, c, h', w'). It always gets `ENCODE_BATCH` pictures, the last ones
    padded, so that a picture's latent does not depend on which others are missing. `view` numbers
    the versions of a picture that `pictures` varies; each has a store of its own.
    """
    missing = {key: row for row in rows if (key := pictures.key(row)) not in store}
    bad: dict[int, str] = {}
    chunks = _shares(ranks.from_main(list(missing.values())), ranks)
    total = sum(len(chunk) for chunk in chunks)
    done = 0
    with ThreadPoolExecutor(max(1, threads)) as pool:
        for chunk in chunks:
            read = list(pool.map(lambda row: _pixels_or_reason(pictures, row, shape, view), chunk))
            bad |= {row: got for row, got in zip(chunk, read, strict=True) if isinstance(got, str)}
            good = [(row, got) for row, got in zip(chunk, read, strict=True) if not isinstance(got, str)]
            if good:
                latents = _in_batches(np.stack([got for _, got in good]), encode)
                store.append([pictures.key(row) for row, _ in good], {"latents": latents.astype(np.float16)})
            done += len(chunk)
            report(done, total)
    ranks.barrier()
    store.refresh()
    return {row: reason for share in ranks.gathered(bad) for row, reason in share.items()}


def encode_captions(store: ArrayStore, captions: Sequence[str],
                    encode: Callable[[list[str]], tuple[NDArray[Any], NDArray[Any]]],
                    *, ranks: Ranks, report: Report) -> None:
    """Put the text states (l, d) and mask (l,) of all captions into the store; each rank does its share."""
    missing = [text for text in dict.fromkeys(captions) if content_key(text) not in store]
    chunks = _shares(ranks.from_main(missing), ranks)
    total = sum(len(chunk) for chunk in chunks)
    done = 0
    for chunk in chunks:
        padded = chunk + [""] * (-len(chunk) % ENCODE_BATCH)
        states, masks = zip(*(encode(padded[begin:begin + ENCODE_BATCH])
                              for begin in range(0, len(padded), ENCODE_BATCH)), strict=True)
        store.append([content_key(text) for text in chunk], {
            "text": np.concatenate(states)[:len(chunk)].astype(np.float16),
            "mask": np.concatenate(masks)[:len(chunk)].astype(bool)})
        done += len(chunk)
        report(done, total)
    ranks.barrier()
    store.refresh()


def _shares(items: list[T], ranks: Ranks) -> list[list[T]]:
    chunks = [items[begin:begin + PART_ROWS] for begin in range(0, len(items), PART_ROWS)]
    return chunks[ranks.rank::ranks.world]


def _pixels_or_reason(pictures: Pictures, row: int, shape: Shape, view: int) -> NDArray[np.uint8] | str:
    try:
        return pictures.pixels(row, shape, view_number(pictures.shards.digests[row], view))
    except BadPicture as error:
        return str(error)


def _in_batches(pixels: NDArray[np.uint8], encode: Encoder) -> NDArray[Any]:
    rest = -len(pixels) % ENCODE_BATCH
    padded = np.concatenate([pixels, np.repeat(pixels[-1:], rest, axis=0)])
    parts = [encode(padded[begin:begin + ENCODE_BATCH]) for begin in range(0, len(padded), ENCODE_BATCH)]
    return np.concatenate(parts)[:len(pixels)]
