"""A decoded picture and the views of it that measures are taken from."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import xxhash
from numpy.typing import NDArray
from PIL import Image

from pipeline import resample
from pipeline.kernels import kernels

VIEWING_SIDE = 512
"""Longer side, in pixels, of `Picture.viewing`: the size at which sharpness is judged as a viewer would."""
_COARSE = 64
"""Cells a side, or more, of the averages that small views are made from."""


@dataclass(frozen=True)
class Header:
    """What the file says of itself, before any pixel is decoded.

    `width` and `height` are as stored, before EXIF orientation. `quantisation` holds a JPEG's tables,
    each 64 numbers in row order (not zigzag); empty for other formats. `lossless` is None where unknown.
    """

    format: str
    mode: str
    width: int
    height: int
    frames: int = 1
    lossless: bool | None = None
    quantisation: dict[int, tuple[int, ...]] = field(default_factory=dict)


class Picture:
    """A decoded picture. Views are computed when first asked for and kept; treat them as read-only."""

    def __init__(self, canonical: Image.Image | NDArray[np.uint8], header: Header, alpha_share: float = 0.0) -> None:
        """`canonical`: sRGB, a Pillow image of mode RGB or uint8 (height, width, 3)."""
        self._canonical = canonical
        self.header = header
        self.alpha_share = alpha_share

    @property
    def width(self) -> int:
        """Pixels, after EXIF orientation."""
        return self._canonical.width if isinstance(self._canonical, Image.Image) else self._canonical.shape[1]

    @property
    def height(self) -> int:
        """Pixels, after EXIF orientation."""
        return self._canonical.height if isinstance(self._canonical, Image.Image) else self._canonical.shape[0]

    def pil(self) -> Image.Image:
        """The picture as a Pillow image of mode RGB."""
        return self._pil

    @cached_property
    def _pil(self) -> Image.Image:
        return self._canonical if isinstance(self._canonical, Image.Image) else Image.fromarray(self._canonical)

    @cached_property
    def rgb(self) -> NDArray[np.uint8]:
        """sRGB, uint8 (height, width, 3)."""
        return np.asarray(self._canonical)

    @cached_property
    def levels(self) -> NDArray[np.uint8]:
        """Luma, uint8 (height, width): Rec. 601, rounded as Pillow does."""
        return self._surveyed[0]

    @cached_property
    def viewing(self) -> NDArray[np.uint8]:
        """Luma reduced so that the longer side is VIEWING_SIDE; smaller pictures are never enlarged."""
        scale = VIEWING_SIDE / max(self.width, self.height)
        if scale >= 1:
            return self.levels
        width, height = max(1, round(self.width * scale)), max(1, round(self.height * scale))
        return resample.means(self.levels, width, height)

    @cached_property
    def small(self) -> NDArray[np.uint8]:
        """YCbCr averages over a 32 × 32 grid laid over the picture, uint8 (32, 32, 3)."""
        return np.asarray(self.shrunk(32, 32, Image.Resampling.BOX).convert("YCbCr"))

    @cached_property
    def _surveyed(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Luma at full size, and averages over cells; the cells are single pixels where the picture is small."""
        levels, averages = kernels().surveyed(self.rgb, *self._cell)
        return levels, averages

    @property
    def _cell(self) -> tuple[int, int]:
        return max(1, self.width // _COARSE), max(1, self.height // _COARSE)

    def shrunk(self, width: int, height: int, kernel: Image.Resampling) -> Image.Image:
        """At most _COARSE px a side, by way of averages over whole cells: as quick for all sizes together as for one.

        What Pillow's `resize` makes of it with a `reducing_gap` of _COARSE over width, to the last bit.
        """
        across, down = self._cell
        averages = Image.fromarray(self._surveyed[1])
        return averages.resize((width, height), kernel, box=(0, 0, self.width / across, self.height / down))

    def digest(self) -> bytes:
        """16 bytes, equal exactly for equal width, height and RGB pixels.

        SHA-256 over size, averages and the 128-bit xxHash of all pixels. xxHash alone is ten times quicker but not made
        to withstand forgers; whoever forged it would have to do so with two pictures of the same averages.
        """
        size, whole = struct.pack("<II", self.width, self.height), xxhash.xxh3_128_digest(self.rgb.data)
        return hashlib.sha256(size + self._surveyed[1].tobytes() + whole).digest()[:16]
