"""Any colour mode → 8-bit sRGB on white."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms

_SRGB = ImageCms.createProfile("sRGB")
_TRANSPARENT = ("RGBA", "LA", "PA", "RGBa", "La")


def to_srgb(image: Image.Image) -> tuple[Image.Image, float]:
    """A loaded image of any mode → (mode RGB, share of pixels that are not fully opaque).

    Transparency is composited on white. 16-bit and floating-point values are scaled to 8 bits. An embedded
    profile that cannot be used is ignored, as browsers do.
    """
    profile = image.info.get("icc_profile")
    image = _eight_bits(image)
    if image.mode in _TRANSPARENT or "transparency" in image.info:
        rgba = image.convert("RGBA")
        alpha = rgba.getchannel("A")
        opaque = alpha.histogram()[255]
        share = 1 - opaque / (rgba.width * rgba.height)
        colours = _through_profile(rgba.convert("RGB"), profile)
        if share == 0:
            return colours, 0.0
        white = Image.new("RGB", rgba.size, (255, 255, 255))
        white.paste(colours, mask=alpha)
        return white, share
    return _through_profile(image, profile), 0.0


def _through_profile(image: Image.Image, profile: bytes | None) -> Image.Image:
    """Convert to sRGB by the embedded profile, or by the mode's usual meaning without one."""
    if image.mode == "P":
        image = image.convert("RGB")
    if image.mode == "1":
        image = image.convert("L")
    if image.mode == "LAB":
        lab = ImageCms.createProfile("LAB")
        return _converted(image, ImageCms.ImageCmsProfile(lab))
    if profile and image.mode in ("RGB", "L", "CMYK"):
        try:
            source = ImageCms.getOpenProfile(io.BytesIO(profile))
            if not (image.mode == "RGB" and _is_srgb(source)):
                return _converted(image, source)
        except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
            pass
    return image if image.mode == "RGB" else image.convert("RGB")


def _converted(image: Image.Image, source: ImageCms.ImageCmsProfile) -> Image.Image:
    made = ImageCms.profileToProfile(
        image, source, _SRGB, outputMode="RGB", renderingIntent=ImageCms.Intent.RELATIVE_COLORIMETRIC,
        flags=ImageCms.Flags.BLACKPOINTCOMPENSATION,
    )
    return made if made is not None else image.convert("RGB")


def _is_srgb(profile: ImageCms.ImageCmsProfile) -> bool:
    description = profile.profile.profile_description or ""
    return "srgb" in description.lower()


def _eight_bits(image: Image.Image) -> Image.Image:
    """Integer and floating-point greys → mode L; other modes as they are."""
    if not (image.mode.startswith("I") or image.mode == "F"):
        return image
    values = np.asarray(image)
    eight = Image.fromarray(scaled(values, sixteen_bit=image.mode.startswith("I;16")))
    eight.info = {key: value for key, value in image.info.items() if key != "transparency"}
    return eight


def scaled(values: NDArray[np.generic], *, sixteen_bit: bool = False) -> NDArray[np.uint8]:
    """Greys of any depth → uint8. The full scale is 65535 for 16-bit, else guessed from the largest value:
    1, 255 or 65535; what fits none of these is stretched from its least to its largest value."""
    if sixteen_bit and values.dtype.kind == "u" and values.dtype.itemsize == 2:
        table: NDArray[np.uint8] = np.rint(np.arange(65536) * (255.0 / 65535.0)).astype(np.uint8)
        return table[values.astype(np.uint16)]
    extremes = [(float(block.min()), float(block.max())) for block in _blocks(values)]
    low, high = min(each for each, _ in extremes), max(each for _, each in extremes)
    if low < 0 or high > 65535:
        full = max(high - low, 1e-12)
    else:
        integral = values.dtype.kind in "iu"
        full = 1.0 if high <= 1 and not integral else 255.0 if high <= 255 else 65535.0
        low = 0.0
    made = np.empty(values.shape, np.uint8)
    for start, block in zip(range(0, len(values), _ROWS), _blocks(values), strict=True):
        made[start:start + _ROWS] = np.clip(np.rint((block - low) * (255.0 / full)), 0, 255)
    return made


_ROWS = 256


def _blocks(values: NDArray[np.generic]) -> Iterator[NDArray[np.float64]]:
    """Some rows at a time in double precision: all at once would take eight times the picture's memory."""
    for start in range(0, len(values), _ROWS):
        yield np.nan_to_num(values[start:start + _ROWS].astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
