"""Odd files: small pictures in every format and mode, and ways to damage them."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

import numpy as np
from PIL import Image

FORMATS: dict[str, tuple[str, ...]] = {
    "JPEG": ("L", "RGB", "CMYK"), "PNG": ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"), "GIF": ("L", "P", "RGB"),
    "WEBP": ("RGB", "RGBA"), "BMP": ("1", "L", "P", "RGB", "RGBA"), "AVIF": ("RGB", "RGBA"), "PPM": ("1", "L", "RGB"),
    "TIFF": ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "LAB", "I;16", "F"), "JPEG2000": ("L", "RGB", "RGBA"),
    "ICO": ("RGB", "RGBA"),
}
OPTIONS: dict[str, tuple[dict[str, object], ...]] = {
    "JPEG": ({}, {"progressive": True}, {"quality": 5, "subsampling": 2}, {"icc_profile": b"no profile"}),
    "PNG": ({}, {"interlace": 1}, {"compress_level": 0}), "WEBP": ({}, {"lossless": True}),
    "TIFF": ({}, {"compression": "tiff_lzw"}, {"compression": "tiff_deflate"}),
}


def picture(mode: str, rng: np.random.Generator) -> Image.Image:
    """Something to see in a mode: a gradient with noise, 24 to 120 px a side."""
    width, height = (int(side) for side in rng.integers(24, 121, 2))
    ramp = np.linspace(0, 200, width)[None, :, None] + rng.integers(0, 56, (height, width, 3))
    image = Image.fromarray(ramp.astype(np.uint8))
    if mode == "I;16":
        return Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257)
    if mode == "F":
        return Image.fromarray(np.asarray(image.convert("L"), np.float32) / 255)
    if mode == "LAB":
        return Image.merge("LAB", image.split())
    return image.convert(mode)


def whole() -> Iterator[tuple[str, bytes]]:
    """(name, bytes) of undamaged files: every format, mode and option, orientations, animations."""
    rng = np.random.default_rng(0)
    for form, modes in FORMATS.items():
        for mode in modes:
            for number, options in enumerate(OPTIONS.get(form, ({},))):
                if form == "TIFF" and options and mode in ("F", "LAB", "I;16"):
                    continue
                buffer = io.BytesIO()
                picture(mode, rng).save(buffer, form, **options)
                yield f"{form}-{mode}-{number}", buffer.getvalue()
    for value in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = value
        buffer = io.BytesIO()
        picture("RGB", rng).save(buffer, "JPEG", exif=exif)
        yield f"JPEG-oriented-{value}", buffer.getvalue()
    for form in ("GIF", "WEBP", "TIFF", "PNG", "MPO"):
        buffer = io.BytesIO()
        frames = [picture("RGB", np.random.default_rng(7)) for _ in range(3)]
        frames[0].save(buffer, form, save_all=True, append_images=frames[1:])
        yield f"{form}-frames", buffer.getvalue()
    yield "SVG", b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><circle cx="4" cy="4" r="3"/></svg>'


def _flipped(data: bytearray, rng: np.random.Generator) -> bytearray:
    for place in rng.integers(0, len(data), rng.integers(1, 9)).tolist():
        data[place] ^= 1 << int(rng.integers(8))
    return data


def _overwritten(data: bytearray, rng: np.random.Generator) -> bytearray:
    start, length = int(rng.integers(len(data))), int(rng.integers(1, 65))
    data[start:start + length] = rng.bytes(len(data[start:start + length]))
    return data


def _extreme_number(data: bytearray, rng: np.random.Generator) -> bytearray:
    """A whole number near the beginning, where sizes and counts are, becomes as large or as small as can be."""
    width = int(rng.choice([1, 2, 4]))
    start = int(rng.integers(min(len(data), 256)))
    data[start:start + width] = rng.choice([b"\xff", b"\x00", b"\x7f", b"\x80"]) * width
    return data


def _cut(data: bytearray, rng: np.random.Generator) -> bytearray:
    return data[:int(rng.integers(len(data)))]


def _without_a_piece(data: bytearray, rng: np.random.Generator) -> bytearray:
    start = int(rng.integers(len(data)))
    del data[start:start + int(rng.integers(1, 200))]
    return data


def _with_a_piece_twice(data: bytearray, rng: np.random.Generator) -> bytearray:
    start = int(rng.integers(len(data)))
    piece = data[start:start + int(rng.integers(1, 400))]
    return data[:start] + piece * int(rng.integers(2, 6)) + data[start:]


MUTATIONS: tuple[Callable[[bytearray, np.random.Generator], bytearray], ...] = (
    _flipped, _overwritten, _extreme_number, _extreme_number, _cut, _without_a_piece, _with_a_piece_twice)


def damaged(files: list[bytes], seed: int) -> bytes:
    """One file after one to three mutations, or two files spliced; the same for the same seed."""
    rng = np.random.default_rng(seed)
    data = bytearray(files[int(rng.integers(len(files)))])
    if rng.random() < 0.1:
        other = files[int(rng.integers(len(files)))]
        return bytes(data[:int(rng.integers(len(data)))]) + other[int(rng.integers(len(other))):]
    for _ in range(int(rng.integers(1, 4))):
        if data:
            data = MUTATIONS[int(rng.integers(len(MUTATIONS)))](data, rng)
    return bytes(data)
