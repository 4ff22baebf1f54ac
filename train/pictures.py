"""Bytes of a shard → the pixels of a training sample: decode, resize to cover the target, crop, maybe mirror."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pipeline import image
from pipeline.sides import SIDES
from train import randomness
from train.plan import bucket_ratio
from train.shards import DamagedError, Shards

Shape = tuple[int, int]
"""(height, width) in pixels or latent cells."""

Pixels = NDArray[np.uint8]


class BadPicture(Exception):  # noqa: N818 - an outcome, not an error
    """A picture that cannot be read or decoded; the message says why. It never stops a run."""


def bucket_shape(bucket: str, resolution: int, multiple: int) -> Shape:
    """(height, width) of a bucket: about resolution² pixels, both sides multiples of `multiple`."""
    ratio = bucket_ratio(bucket)
    height, width = resolution / ratio**0.5, resolution * ratio**0.5
    return max(1, round(height / multiple)) * multiple, max(1, round(width / multiple)) * multiple


def covering(rgb: Pixels, shape: Shape) -> Pixels:
    """(H, W, 3) resized with Lanczos, aspect kept, to the smallest size that covers `shape`."""
    height, width = rgb.shape[:2]
    scale = max(shape[0] / height, shape[1] / width)
    size = max(shape[1], round(width * scale)), max(shape[0], round(height * scale))
    if size == (width, height):
        return rgb
    return np.asarray(Image.fromarray(rgb).resize(size, Image.Resampling.LANCZOS))


def cropped(rgb: Pixels, shape: Shape, place: tuple[float, float] = (0.5, 0.5)) -> Pixels:
    """The `shape` window at `place`, (down, across) in 0..1 of the room that there is; the default is the centre."""
    top = round((rgb.shape[0] - shape[0]) * place[0])
    left = round((rgb.shape[1] - shape[1]) * place[1])
    return rgb[top:top + shape[0], left:left + shape[1]]


@dataclass(frozen=True)
class Variation:
    """How versions of a picture differ: `crop` anywhere instead of in the centre, windows of `zoom` to 1 times the
    largest one's side, and mirrored in one of two cases (`flip`)."""

    crop: bool = False
    zoom: float = 1.0
    flip: bool = False

    @property
    def any(self) -> bool:
        return self != Variation()

    @property
    def name(self) -> str:
        """For a folder's name."""
        return f"{'random' if self.crop else 'center'}-{self.zoom:g}-{'flip' if self.flip else 'plain'}"


class Pictures:
    """Pixels by row. Resized pictures are kept in memory up to `cache_bytes`, which changes only the speed."""

    def __init__(self, shards: Shards, *, seed: int = 0, vary: Variation | None = None, cache_bytes: int = 0) -> None:
        self.shards = shards
        self.vary = vary or Variation()
        self._seed = seed
        self._kept: dict[tuple[int, Shape], Pixels] = {}
        self._room = cache_bytes
        self._lock = threading.Lock()

    def pixels(self, row: int, shape: Shape, number: int = 0) -> Pixels:
        """uint8 (3, h, w) of a row; `number` is the global sample number behind crop, zoom and mirror.

        A picture whose captions speak of left or right is never mirrored. Raises BadPicture, and StorageError when
        a shard or its server is away: that says nothing of the picture.
        """
        zoom = self.vary.zoom
        largest = math.ceil(shape[0] / zoom), math.ceil(shape[1] / zoom)
        rgb = self._covering(row, largest)
        if zoom < 1:
            scale = zoom + (1 - zoom) * self._draw("zoom", number)
            window = max(shape[0], round(largest[0] * scale)), max(shape[1], round(largest[1] * scale))
        else:
            window = shape
        place = (self._draw("crop down", number), self._draw("crop", number)) if self.vary.crop else (0.5, 0.5)
        pixels = covering(cropped(rgb, window, place), shape)
        if self.vary.flip and self._draw("flip", number) < 0.5 and not self._has_sides(row):
            pixels = pixels[:, ::-1]
        return np.ascontiguousarray(cropped(pixels, shape).transpose(2, 0, 1))

    def key(self, row: int) -> bytes:
        """What a row's pixels hang on besides shape and number: its bytes, and whether it may be mirrored."""
        digest = self.shards.digests[row]
        return digest + b"sided" if self.vary.flip and self._has_sides(row) else digest

    def _draw(self, purpose: str, number: int) -> float:
        return float(randomness.uniforms(self._seed, purpose, [number])[0])

    def _has_sides(self, row: int) -> bool:
        words = self.shards.row(row)
        return any(SIDES.search(text) for text in (words.caption, *words.captions))

    def _covering(self, row: int, shape: Shape) -> Pixels:
        kept = self._kept.get((row, shape))
        if kept is not None:
            return kept
        try:
            rgb = covering(image.decode(self.shards.read(row), max_pixels=image.UNCAPPED).rgb, shape)
        except (image.Unreadable, DamagedError) as error:
            raise BadPicture(str(error)) from error
        with self._lock:
            if (row, shape) not in self._kept and rgb.nbytes <= self._room:
                self._room -= rgb.nbytes
                self._kept[row, shape] = rgb
        return rgb
