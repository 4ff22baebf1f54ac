"""Part of a picture, as bytes of a picture of its own.

Pixels are those of the canonical picture (upright, sRGB, first frame), so that nothing of the file's EXIF, profile or
other frames is left. What was stored without loss is again (PNG); the rest becomes JPEG at a quality that costs nothing
to see, without subsampled colours.
"""

from __future__ import annotations

import io
from dataclasses import dataclass

from pipeline import image

Box = tuple[int, int, int, int]
"""Left, top, right and bottom in pixels of the upright picture, the latter two exclusive."""

VERSION = 1
"""Rises when the same bytes and box give other bytes with the same libraries."""
_QUALITY = 95
_LOSSLESS = ("TIFF",)
"""Formats that may be either, and are taken for it."""


@dataclass(frozen=True)
class Cutting:
    """The bytes of a picture and the extension that goes with their format."""

    data: bytes
    extension: str


def cut(data: bytes, box: Box) -> Cutting:
    """What lies in the box. Raises Unreadable, and ValueError where the box does not lie within the picture."""
    picture = image.decode(data, max_pixels=image.UNCAPPED)
    left, top, right, bottom = box
    if not (0 <= left < right <= picture.width and 0 <= top < bottom <= picture.height):
        raise ValueError(f"the box {box} does not lie within {picture.width} × {picture.height} px")
    buffer, part = io.BytesIO(), picture.pil().crop(box)
    if picture.header.lossless or picture.header.format in _LOSSLESS:
        part.save(buffer, "PNG")
        return Cutting(buffer.getvalue(), "png")
    part.save(buffer, "JPEG", quality=_QUALITY, subsampling=0)
    return Cutting(buffer.getvalue(), "jpg")
