"""Planted faults: each makes the bytes of one bad picture, at a strength drawn from a graded range."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from PIL import Image, ImageFilter

from .drawing import draw, render
from .palette import Scene

VIEWING_SIDE = 512  # blur is given in pixels of a picture whose longer side is this
THUMBNAIL_SIDES = (40, 120)
CRUSHED_QUALITY = (3, 15)
RESAVED_QUALITY = 9  # crushed this far or further, and not flat art: the damage is plain to see, so
RESAVED_SHARE = 0.4  # this share of them is saved again at high quality, and no header tells any more
ENLARGEMENT = (3.0, 8.0)
BLUR_SIGMA = (3.0, 9.0)
SLIVER_ASPECT = (3.5, 6.5)
RESCALING = (0.5, 0.95)
LEAST_SIDE = 256  # rescaled copies stay this large, so that they are nothing but copies

SUFFIX = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp"}

HTML_PAGE = (
    b"<!DOCTYPE html>\n<html><head><title>Please sign in</title></head>\n"
    b"<body><h1>Please sign in</h1><p>This picture is for members only.</p></body></html>\n"
)


def graded(rng: np.random.Generator, low: float, high: float) -> float:
    """A strength from low to high, evenly on a log scale: as many weak faults as strong ones."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def encode(picture: Image.Image, form: str, quality: int = 90) -> bytes:
    """Bytes of a picture as JPEG, WEBP (lossy) or PNG (where quality says nothing), with quick settings."""
    buffer = io.BytesIO()
    if form == "PNG":
        picture.save(buffer, "PNG", compress_level=1)
    elif form == "WEBP":
        picture.save(buffer, "WEBP", quality=quality, method=0)
    else:
        picture.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def innocent(scene: Scene, strength: float, form: str, rng: np.random.Generator) -> bytes:
    """The scene as it should be, saved well."""
    return encode(draw(scene), form, int(rng.integers(82, 96)))


def thumbnail(scene: Scene, strength: float, form: str, rng: np.random.Generator) -> bytes:
    """Reduced to a shorter side of `strength` px."""
    picture = draw(scene)
    scale = strength / min(picture.size)
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    return encode(picture.resize(size, Image.Resampling.LANCZOS), form, 88)


def heavy_jpeg(scene: Scene, strength: float, form: str, rng: np.random.Generator) -> bytes:
    """Saved as JPEG of quality `strength`; under another `form` than JPEG saved again, which hides the header."""
    crushed = encode(draw(scene), "JPEG", round(strength))
    if form == "JPEG":
        return crushed
    return encode(Image.open(io.BytesIO(crushed)).convert("RGB"), form, 95)


def blown_up(scene: Scene, strength: float, form: str, rng: np.random.Generator) -> bytes:
    """Drawn `strength` times too small, then enlarged to its size."""
    tiny = render(scene, max(24, round(scene.width / strength)), max(24, round(scene.height / strength)))
    ways = (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC, Image.Resampling.LANCZOS)
    way = ways[int(rng.integers(3))]
    return encode(Image.fromarray(tiny).resize((scene.width, scene.height), way), form, 90)


def blurred(scene: Scene, strength: float, form: str, rng: np.random.Generator) -> bytes:
    """Gaussian blur of sigma `strength` px at a longer side of VIEWING_SIDE."""
    sigma = strength * max(scene.width, scene.height) / VIEWING_SIDE
    return encode(draw(scene).filter(ImageFilter.GaussianBlur(sigma)), form, 90)


def blank(scene: Scene, strength: float, form: str, rng: np.random.Generator) -> bytes:
    """One colour over the whole picture, with noise or a ramp of `strength` levels' standard deviation at most."""
    colour = rng.integers(8, 248, 3).astype(np.float32)
    height, width = scene.height, scene.width
    if rng.random() < 0.5:
        relief = rng.standard_normal((height, width), np.float32)
    else:
        ramp = np.linspace(-1.7, 1.7, width, dtype=np.float32)
        relief = np.broadcast_to(ramp, (height, width))
    pixels = colour + (relief * np.float32(strength))[..., None]
    return encode(Image.fromarray(np.clip(np.rint(pixels), 0, 255).astype(np.uint8)), form, 90)


def sliver(scene: Scene, strength: float, form: str, rng: np.random.Generator) -> bytes:
    """`strength` times longer than wide, or wider than long; its shorter side is the scene's."""
    return innocent(sliver_scene(scene, strength), strength, form, rng)


def sliver_scene(scene: Scene, strength: float) -> Scene:
    """The scene on a canvas of aspect `strength`."""
    short = LEAST_SIDE + scene.seed % 40
    long = round(short * strength)
    width, height = (long, short) if scene.seed % 2 else (short, long)
    return replace(scene, width=width, height=height)


def truncated(scene: Scene, strength: float, form: str, rng: np.random.Generator) -> bytes:
    """Only the first `strength` share of the file's bytes."""
    whole = innocent(scene, 1.0, form, rng)
    return whole[: max(1, int(len(whole) * strength))]


def html_as_image(scene: Scene, strength: float, form: str, rng: np.random.Generator) -> bytes:
    """A page instead of a picture."""
    return HTML_PAGE + b"<!-- %d -->\n" % scene.seed


def copied(original: bytes, treatment: str, strength: float, form: str) -> bytes:
    """A copy of a picture on the site, made from its bytes as a visitor would: exact, saved again, or resized."""
    if treatment == "exact_copy":
        return original
    picture = Image.open(io.BytesIO(original)).convert("RGB")
    if treatment == "reencoded_copy":
        return encode(picture, form, round(strength))
    scale = strength if treatment == "rescaled_copy" else strength / min(picture.size)
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    return encode(picture.resize(size, Image.Resampling.LANCZOS), form, 88)


Treatment = Callable[[Scene, float, str, np.random.Generator], bytes]

TREATMENTS: dict[str, Treatment] = {
    "thumbnail": thumbnail,
    "heavy_jpeg": heavy_jpeg,
    "blown_up": blown_up,
    "blurred": blurred,
    "blank": blank,
    "sliver": sliver,
    "truncated": truncated,
    "html_as_image": html_as_image,
}
"""Faults of the bytes. All other faults lie in the address, the page or the caption; their pictures are innocent."""

STRENGTHS: dict[str, Callable[[np.random.Generator], float]] = {
    "exact_copy": lambda rng: 1.0,
    "reencoded_copy": lambda rng: float(round(graded(rng, 35, 92))),
    "rescaled_copy": lambda rng: graded(rng, *RESCALING),
    "thumbnail": lambda rng: float(round(graded(rng, *THUMBNAIL_SIDES))),
    "heavy_jpeg": lambda rng: float(round(graded(rng, *CRUSHED_QUALITY))),
    "blown_up": lambda rng: graded(rng, *ENLARGEMENT),
    "blurred": lambda rng: graded(rng, *BLUR_SIGMA),
    "blank": lambda rng: float(rng.choice([0.0, 0.0, 0.5, 1.0, 1.5, 2.0])),
    "sliver": lambda rng: graded(rng, *SLIVER_ASPECT),
    "truncated": lambda rng: int(rng.integers(1, 10)) / 10,
    "not_found": lambda rng: 410.0 if rng.random() < 0.2 else 404.0,
}
"""How each fault's strength is drawn; the unit is in `truth.FAULTS`. Those not listed have strength 1."""
