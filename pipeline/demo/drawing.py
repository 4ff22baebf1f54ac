"""Scene → pixels: supersampled outlines, a soft light from the upper left, gentle backgrounds."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageChops, ImageDraw, ImageFilter

from .palette import BACKGROUNDS, COLOURS, NIGHT_BACKGROUND_DIMMING, NIGHT_DIMMING, Scene, Shape

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]

SUPERSAMPLING = 4
PADDING = 1.4  # half side of the painted box over the shape's radius: room for its shadow
RELIEF_SIDE = 64  # light and shadow are smooth, so they are worked out at this side and enlarged
RING_HOLE = 0.54


def draw(scene: Scene) -> Image.Image:
    """The scene at its own width and height, as an RGB picture. Same scene, same pixels."""
    return Image.fromarray(render(scene, scene.width, scene.height))


def draw_square(scene: Scene, side: int) -> Bytes:
    """The scene's central square drawn at `side` pixels: uint8 (side, side, 3)."""
    return render(scene, side, side)


def render(scene: Scene, width: int, height: int) -> Bytes:
    """Draw on a canvas of any size; the shapes lie in its central square. Returns uint8 (height, width, 3)."""
    rng = np.random.default_rng(scene.seed)
    canvas_chw = _background(scene, width, height, rng)
    for shape in scene.shapes:
        _paint(canvas_chw, shape, scene)
    picture_hwc = np.empty((height, width, 3), np.uint8)
    for channel, plane in enumerate(canvas_chw):  # one plane at a time stays in cache
        np.clip(plane, 0, 255, out=plane)
        picture_hwc[..., channel] = plane
    return picture_hwc


@lru_cache(maxsize=64)
def outline(kind: str) -> NDArray[np.float64]:
    """Corners (n, 2) of a shape's outer outline, upright, inside the unit circle, y downwards."""
    if kind in ("circle", "ring"):
        return _polar(np.ones(72), start=0.0)
    if kind == "square":
        return _polar(np.ones(4), start=math.pi / 4)
    if kind == "triangle":
        return _polar(np.ones(3), start=-math.pi / 2)
    if kind == "star":
        return _polar(np.tile([1.0, 0.45], 5), start=-math.pi / 2)
    if kind == "diamond":
        return np.array([(0.0, -1.0), (0.64, 0.0), (0.0, 1.0), (-0.64, 0.0)])
    if kind == "cross":
        arm, reach = 0.3, math.sqrt(1 - 0.3**2)
        quarter = np.array([(arm, -arm), (arm, -reach), (-arm, -reach)])
        turn = np.array([(0.0, -1.0), (1.0, 0.0)])
        return np.concatenate([quarter @ np.linalg.matrix_power(turn, k) for k in range(4)])
    if kind == "heart":
        t = np.linspace(0, 2 * math.pi, 72, endpoint=False)
        x = 16 * np.sin(t) ** 3
        y = -(13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t))
        points = np.stack([x, y + 2.5], axis=1)
        return np.asarray(points / np.hypot(points[:, 0], points[:, 1]).max())
    raise ValueError(f"no such shape: {kind}")


def _polar(radii: NDArray[np.float64], start: float) -> NDArray[np.float64]:
    angles = start + np.arange(len(radii)) * (2 * math.pi / len(radii))
    return np.stack([radii * np.cos(angles), radii * np.sin(angles)], axis=1)


def shape_mask(kind: str, side: int, x: float, y: float, radius: float, rotation: float) -> Image.Image:
    """Coverage of a shape, mode L, on a square of `side` pixels; centre and radius in pixels, rotation in degrees."""
    angle = math.radians(rotation)
    turn = np.array([(math.cos(angle), math.sin(angle)), (-math.sin(angle), math.cos(angle))])
    corners = outline(kind) @ turn * (radius * SUPERSAMPLING) + np.array([x, y]) * SUPERSAMPLING
    mask = Image.new("L", (side * SUPERSAMPLING, side * SUPERSAMPLING))
    pen = ImageDraw.Draw(mask)
    # Pillow names a pixel by its centre: half a pixel less puts the outline where the geometry says.
    pen.polygon((corners - 0.5).ravel().tolist(), fill=255)
    if kind == "ring":
        centre = np.array([x, y]) * SUPERSAMPLING
        pen.polygon(((corners - centre) * RING_HOLE + centre - 0.5).ravel().tolist(), fill=0)
    return mask.reduce(SUPERSAMPLING)


def _paint(canvas_chw: Floats, shape: Shape, scene: Scene) -> None:
    """Lay one shape, its shadow and its light onto the canvas, in place."""
    height, width = canvas_chw.shape[1:]
    square = min(width, height)
    centre_x = (width - square) / 2 + shape.x * square
    centre_y = (height - square) / 2 + shape.y * square
    radius = shape.radius * square
    half = math.ceil(radius * PADDING) + 1
    left, top = round(centre_x) - half, round(centre_y) - half
    mask = shape_mask(shape.kind, 2 * half, centre_x - left, centre_y - top, radius, shape.rotation)

    rows = slice(max(top, 0), min(top + 2 * half, height))
    columns = slice(max(left, 0), min(left + 2 * half, width))
    inner = (slice(rows.start - top, rows.stop - top), slice(columns.start - left, columns.stop - left))
    region_chw = canvas_chw[:, rows, columns]
    dimming = NIGHT_DIMMING if scene.night else 1.0
    colour_c11 = (np.array(COLOURS[shape.colour], np.float32) * np.float32(dimming))[:, None, None]
    cover = np.asarray(mask)[inner].astype(np.float32) / np.float32(255)
    if scene.flat:
        region_chw += (colour_c11 - region_chw) * cover
        return
    shadow, relief = (plane[inner] for plane in _light(mask))
    region_chw *= np.float32(1) - shadow * np.float32(0.38)
    lit_chw = colour_c11 * (np.float32(0.97) + np.minimum(relief, 0) * np.float32(0.42))
    lit_chw += (np.float32(255) - lit_chw) * (np.maximum(relief, 0) * np.float32(0.12 if scene.night else 0.3))
    region_chw += (lit_chw - region_chw) * cover


def _light(mask: Image.Image) -> tuple[Floats, Floats]:
    """Drop shadow (0..1) and relief (-1 shaded .. 1 lit) of a mask, both at its size, lit from the upper left."""
    low = mask.resize((RELIEF_SIDE, RELIEF_SIDE), Image.Resampling.BOX, reducing_gap=None)
    shadow = ImageChops.offset(low, 2, 4).filter(ImageFilter.GaussianBlur(2.5))
    round_edge = np.asarray(low.filter(ImageFilter.GaussianBlur(4.5)), np.float32)
    slope = np.zeros_like(round_edge)
    slope[2:-2, 2:-2] = (round_edge[4:, 4:] - round_edge[:-4, :-4]) * np.float32(1 / 60)
    relief = Image.fromarray((np.clip(slope, -1, 1) * 127 + 128).astype(np.uint8))
    size = mask.size
    shadow_hw = np.asarray(shadow.resize(size, Image.Resampling.BILINEAR)).astype(np.float32)
    relief_hw = np.asarray(relief.resize(size, Image.Resampling.BICUBIC)).astype(np.float32)
    return shadow_hw / np.float32(255), (relief_hw - np.float32(128)) / np.float32(127)


def _background(scene: Scene, width: int, height: int, rng: np.random.Generator) -> Floats:
    """The background alone: float32 (3, height, width), 0..255."""
    base = np.array(BACKGROUNDS[scene.background], np.float32) * np.float32(
        NIGHT_BACKGROUND_DIMMING if scene.night else 1.0
    )
    square = min(width, height)
    across = ((np.arange(width, dtype=np.float32) + np.float32(0.5 - (width - square) / 2)) / square)[None, :]
    down = ((np.arange(height, dtype=np.float32) + np.float32(0.5 - (height - square) / 2)) / square)[:, None]
    # Contrast of the background's own pattern; dark ones can bear more of it before it looks loud.
    swing = np.float32(14 if base.mean() < 100 else 20)
    light = np.zeros((height, width), np.float32)
    if not scene.flat:
        fall_off = np.minimum((across - np.float32(0.4)) ** 2, 1) + np.minimum((down - np.float32(0.4)) ** 2, 1)
        light -= fall_off * (swing * np.float32(0.35))
        light += _grain(width, height, rng) * np.float32(1.5)
    if scene.background_kind == "gradient":
        angle = rng.uniform(0, 2 * math.pi)
        ramp = (across - np.float32(0.5)) * np.float32(math.cos(angle))
        ramp = ramp + (down - np.float32(0.5)) * np.float32(math.sin(angle))
        light += np.clip(ramp, -1, 1) * swing * np.float32(2.2)
    elif scene.background_kind == "striped":
        angle = rng.uniform(0, math.pi)
        count = rng.uniform(5, 10)
        phase = across * np.float32(math.cos(angle)) + down * np.float32(math.sin(angle))
        light += np.clip(np.sin(phase * np.float32(2 * math.pi * count)) * 2, -1, 1) * swing * np.float32(0.45)
    elif scene.background_kind == "textured":
        light += _texture(width, height, rng) * swing
    elif scene.background_kind == "soft":
        light += _soft_lights(width, height, rng) * swing * np.float32(1.8)
    tint = base / max(float(base.mean()), 1.0)
    canvas_chw = np.empty((3, height, width), np.float32)
    for plane, level, share in zip(canvas_chw, base, np.float32(0.5) + np.float32(0.5) * tint, strict=True):
        np.multiply(light, share, out=plane)
        plane += level
    return canvas_chw


@lru_cache(maxsize=1)
def _noise_tile() -> Floats:
    """One 1024 × 1024 tile of unit white noise that every picture cuts from at its own offset."""
    return np.random.default_rng(20_240_601).standard_normal((1024, 1024), np.float32)


def _grain(width: int, height: int, rng: np.random.Generator) -> Floats:
    """Unit white noise (height, width)."""
    tile = _noise_tile()
    top, left = (int(v) for v in rng.integers(0, 1024, 2))
    if max(width, height) <= 1024 - max(top, left):
        return tile[top : top + height, left : left + width]
    return np.take(np.take(tile, np.arange(top, top + height) % 1024, 0), np.arange(left, left + width) % 1024, 1)


def _texture(width: int, height: int, rng: np.random.Generator) -> Floats:
    """A fine surface, about -1..1: paper grain, linen or plaster."""
    kind = int(rng.integers(3))
    grain = _grain(width, height, rng)
    if kind == 0:
        return grain * np.float32(0.3)
    if kind == 1:
        linen: Floats = grain[:1] * np.float32(0.28) + grain[:, :1] * np.float32(0.28) + grain * np.float32(0.12)
        return linen
    square = min(width, height)
    cells = (max(2, round(24 * width / square)), max(2, round(24 * height / square)))
    coarse = _enlarged(rng.standard_normal((cells[1], cells[0])), width, height)
    plaster: Floats = coarse * np.float32(0.45) + grain * np.float32(0.15)
    return plaster


def _soft_lights(width: int, height: int, rng: np.random.Generator) -> Floats:
    """Out-of-focus discs of light, about -1..1."""
    square = min(width, height)
    size = (round(96 * width / square), round(96 * height / square))
    lights = Image.new("L", size, 96)
    pen = ImageDraw.Draw(lights)
    for _ in range(14):
        x, y = rng.uniform(0, size[0]), rng.uniform(0, size[1])
        radius = rng.uniform(6, 15)
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=int(rng.integers(60, 225)))
    blurred = np.asarray(lights.filter(ImageFilter.GaussianBlur(3.5)), np.float32)
    return _enlarged(blurred / 96 - 1.1, width, height)


def _enlarged(field_hw: NDArray[np.floating], width: int, height: int) -> Floats:
    """A small field enlarged smoothly to (height, width)."""
    small = Image.fromarray(field_hw.astype(np.float32))
    return np.asarray(small.resize((width, height), Image.Resampling.BICUBIC)).astype(np.float32)
