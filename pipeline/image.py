"""Bytes → the one canonical picture that all stages agree on.

Canonical: first frame, EXIF orientation applied, colours in sRGB (embedded ICC profile honoured), 8 bits,
transparency composited on white. Whatever cannot be decoded whole is `Unreadable` with a reason from
`UNREADABLE`: half a picture is no picture.
"""

from __future__ import annotations

import io
import struct
import threading
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageFile, ImageOps, UnidentifiedImageError, features
from PIL import __version__ as pillow_version

from pipeline import colour, vector
from pipeline.picture import VIEWING_SIDE as VIEWING_SIDE
from pipeline.picture import Header as Header
from pipeline.picture import Picture as Picture

UNCAPPED = 2**63 - 1
"""For `max_pixels` where `measure` has held the size of the same bytes against the recipe's cap before."""

ALGORITHM_VERSION = 3
"""Rises when the same bytes give other pixels, or the same pixels another digest."""

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "DIB", "TIFF", "AVIF", "JPEG2000", "PPM", "ICO")
"""Formats opened; others (among them those that start a foreign program, such as EPS) never are."""

UNREADABLE: dict[str, str] = {
    "empty": "There are no bytes. Fetch the picture again.",
    "not_an_image": "The bytes are no picture in a known format, e.g. an HTML page under a picture's name.",
    "truncated": "The end of the file is missing. Fetch it again; half a picture is not used.",
    "corrupt": "The file begins like a picture but its data contradict each other.",
    "too_many_pixels": "The header announces more pixels than measure.max_pixels; nothing was allocated for it.",
    "needs_extra": "The format needs a package that is not installed; the detail names it.",
    "unsupported": "A known format in a variant that the decoder does not handle.",
}
"""Every reason why bytes are no usable picture, with advice. `curate explain` prints these."""


class Unreadable(Exception):  # noqa: N818 - it is an outcome, raised or not
    """The bytes are no usable picture. `reason` is a key of `UNREADABLE`, `detail` says what exactly happened."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, " ".join(detail.split())[:300]

    def __reduce__(self) -> tuple[object, ...]:
        return (Unreadable, (self.reason, self.detail))


def versions() -> dict[str, str]:
    """Decoders whose version can change pixels; part of `measure`'s fingerprint."""
    codecs = ("libjpeg_turbo", "zlib", "webp", "avif", "littlecms2", "libtiff", "jpg_2000")
    found = {name: str(features.version(name)) for name in codecs} | {"simplejpeg": version("simplejpeg")}
    return {"image": str(ALGORITHM_VERSION), "pillow": pillow_version, **found, **vector.versions()}


def read_header(data: bytes) -> Header:
    """Format, mode, stored size, frames, quantisation tables; decodes nothing. Raises Unreadable."""
    if vector.is_svg(data):
        width, height = vector.RASTER_SIDE, vector.RASTER_SIDE
        return Header("SVG", "RGBA", width, height, lossless=True)
    with _pillow_limits():
        return _header(_open(data), data)


def upright_header(data: bytes) -> Header | None:
    """The header with width and height after EXIF orientation, as `decode` will find them; decodes nothing.

    None where only decoding tells: formats whose decoder changes the size, and PNG files whose orientation may follow
    the pixels. Raises Unreadable.
    """
    if vector.is_svg(data):
        return None
    with _pillow_limits():
        image = _open(data)
        header = _header(image, data)
        late = image.format == "PNG" and any(mark in data for mark in (b"eXIf", b"profile type exif", b"adobe.xmp"))
        if image.format not in ("JPEG", "MPO", "PNG", "GIF", "BMP", "WEBP") or late:
            return None
        sideways = image.format != "PNG" and _orientation(image) >= 5
    return replace(header, width=header.height, height=header.width) if sideways else header


def _orientation(image: Image.Image) -> int:
    """EXIF orientation, 1..8; damaged EXIF says nothing."""
    try:
        orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
    except _DAMAGED_EXIF:
        return 1
    return orientation if isinstance(orientation, int) and orientation <= 8 else 1


_DAMAGED_EXIF = (ValueError, TypeError, KeyError, SyntaxError, struct.error, OSError, EOFError)


def decode(data: bytes, *, max_pixels: int = 200_000_000) -> Picture:
    """Decode a whole picture into its canonical form.

    Raises Unreadable, with `too_many_pixels` before memory for the pixels is allocated.
    """
    if vector.is_svg(data):
        return _decode_svg(data, max_pixels)
    with _pillow_limits():
        image = _open(data)
        header = _header(image, data)
        pixels = header.width * header.height
        if pixels > max_pixels:
            raise Unreadable("too_many_pixels", f"{header.width} × {header.height} px, at most {max_pixels} pixels")
        if pixels == 0:
            raise Unreadable("corrupt", "no width or no height")
        plain = _plain_jpeg(image, data)
        if plain is not None:
            return Picture(plain, header)
        with _explained():
            image.load()
            oriented = _oriented(image)
            canonical, alpha_share = colour.to_srgb(oriented)
    return Picture(canonical, header, alpha_share)


def _plain_jpeg(image: Image.Image, data: bytes) -> NDArray[np.uint8] | None:
    """A JPEG that is upright and in sRGB already: (height, width, 3) without Pillow's detour over four bytes a pixel.

    None for all others, and where libjpeg has as much as a warning: what is wrong is for Pillow to say. Both call
    libjpeg-turbo with its accurate DCT and smooth upsampling, and come to the same pixels.
    """
    if image.format != "JPEG" or image.mode not in ("RGB", "L") or image.info.get("icc_profile") \
            or _orientation(image) != 1:
        return None
    try:
        if simplejpeg.decode_jpeg_header(data)[:2] != (image.height, image.width):
            return None
        return np.asarray(simplejpeg.decode_jpeg(data, strict=True))
    except (ValueError, TypeError, RuntimeError, OverflowError):
        return None


def _decode_svg(data: bytes, max_pixels: int) -> Picture:
    try:
        image = Image.open(io.BytesIO(vector.rasterise(data, max_pixels=max_pixels)), formats=["PNG"])
        image.load()
    except ImportError:
        raise Unreadable("needs_extra", 'SVG: pip install "gristmill[svg]"') from None
    except ValueError as error:
        raise Unreadable("corrupt", str(error)) from None
    canonical, alpha_share = colour.to_srgb(image)
    return Picture(canonical, Header("SVG", image.mode, image.width, image.height, lossless=True), alpha_share)


_EXTRAS = {b"ftypheic": "HEIC", b"ftypheix": "HEIC", b"ftypmif1": "HEIC", b"ftyphevc": "HEIC"}


def _open(data: bytes) -> ImageFile.ImageFile:
    if not data:
        raise Unreadable("empty", "0 bytes")
    if data[4:12] in _EXTRAS:
        raise Unreadable("needs_extra", "HEIC: no decoder is installed")
    if data[:2] == b"\xff\x0a" or data[4:12] == b"JXL \r\n\x87\n":
        raise Unreadable("needs_extra", "JPEG XL: no decoder is installed")
    with _explained(opening=True):
        return Image.open(io.BytesIO(data), formats=FORMATS)


def _header(image: ImageFile.ImageFile, data: bytes) -> Header:
    with _explained():
        form = image.format or "unknown"
        tables = getattr(image, "quantization", None) or {}
        lossless = {"PNG": True, "BMP": True, "DIB": True, "GIF": True, "PPM": True, "JPEG": False, "MPO": False}
        known = lossless.get(form)
        if form == "WEBP":
            known = b"VP8L" in data[:64]
        return Header(
            format="JPEG" if form == "MPO" else form, mode=image.mode, width=image.width, height=image.height,
            frames=int(getattr(image, "n_frames", 1) or 1), lossless=known,
            quantisation={int(slot): tuple(int(v) for v in table) for slot, table in tables.items()},
        )


def _oriented(image: ImageFile.ImageFile) -> Image.Image:
    """Turn upright as EXIF says. Damaged EXIF says nothing; it is no reason to lose the picture."""
    profile, transparency = image.info.get("icc_profile"), image.info.get("transparency")
    try:
        oriented: Image.Image = ImageOps.exif_transpose(image) or image
    except _DAMAGED_EXIF:
        return image
    if profile and "icc_profile" not in oriented.info:
        oriented.info["icc_profile"] = profile
    if transparency is not None and "transparency" not in oriented.info:
        oriented.info["transparency"] = transparency
    return oriented


Image.init()  # registers all plugins: `formats=` knows only registered ones
_pillow_lock = threading.RLock()


@contextmanager
def _pillow_limits() -> Iterator[None]:
    """Our pixel cap in place of Pillow's, and no half pictures, whatever this process has set elsewhere."""
    with _pillow_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cap, truncated = Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES
        Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES = None, False
        try:
            yield
        finally:
            Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES = cap, truncated


@contextmanager
def _explained(*, opening: bool = False) -> Iterator[None]:
    """Turn whatever Pillow raises on odd bytes into Unreadable with one of the documented reasons."""
    try:
        yield
    except Unreadable:
        raise
    except UnidentifiedImageError:
        raise Unreadable("not_an_image", "no known picture format") from None
    except Image.DecompressionBombError as error:
        raise Unreadable("too_many_pixels", str(error)) from None
    except NotImplementedError as error:
        raise Unreadable("unsupported", str(error)) from None
    except (OSError, EOFError, SyntaxError, ValueError, TypeError, KeyError, IndexError, AttributeError,
            OverflowError, ZeroDivisionError, RuntimeError, MemoryError, AssertionError, struct.error,
            zlib.error) as error:
        text = str(error) or type(error).__name__
        cut = isinstance(error, EOFError) or any(word in text.lower() for word in ("truncated", "unexpected end"))
        raise Unreadable("truncated" if cut else "not_an_image" if opening else "corrupt", text) from None
