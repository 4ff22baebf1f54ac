"""Bytes of a shard → the pixels of a training sample: decode, resize to cover the target, crop, maybe mirror."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pipeline import image
from pipeline.errors import StorageError
from train import randomness
from train.plan import bucket_ratio
from train.shards import Shards

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


def cropped(rgb: Pixels, shape: Shape, place: float) -> Pixels:
    """The `shape` window at `place` in 0..1 along the longer side; 0.5 is the centre."""
    top = round((rgb.shape[0] - shape[0]) * place)
    left = round((rgb.shape[1] - shape[1]) * place)
    return rgb[top:top + shape[0], left:left + shape[1]]


class Pictures:
    """Pixels by row. Resized pictures are kept in memory up to `cache_bytes`, which changes only the speed."""

    def __init__(self, shards: Shards, *, seed: int = 0, random_crop: bool = False, flip: bool = False,
                 cache_bytes: int = 0) -> None:
        self.shards = shards
        self._seed, self._random_crop, self._flip = seed, random_crop, flip
        self._kept: dict[tuple[int, Shape], Pixels] = {}
        self._room = cache_bytes
        self._lock = threading.Lock()

    def pixels(self, row: int, shape: Shape, number: int = 0) -> Pixels:
        """uint8 (3, h, w) of a row; `number` is the global sample number behind crop and mirror.

        Raises BadPicture.
        """
        rgb = self._covering(row, shape)
        place = float(randomness.uniforms(self._seed, "crop", [number])[0]) if self._random_crop else 0.5
        window = cropped(rgb, shape, place)
        if self._flip and randomness.uniforms(self._seed, "flip", [number])[0] < 0.5:
            window = window[:, ::-1]
        return np.ascontiguousarray(window.transpose(2, 0, 1))

    def _covering(self, row: int, shape: Shape) -> Pixels:
        kept = self._kept.get((row, shape))
        if kept is not None:
            return kept
        try:
            rgb = covering(image.decode(self.shards.read(row)).rgb, shape)
        except (image.Unreadable, StorageError) as error:
            raise BadPicture(str(error)) from error
        with self._lock:
            if (row, shape) not in self._kept and rgb.nbytes <= self._room:
                self._room -= rgb.nbytes
                self._kept[row, shape] = rgb
        return rgb
