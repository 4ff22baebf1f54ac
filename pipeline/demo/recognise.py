"""Exact image analysis: which coloured shape a picture shows, by colour arithmetic and outline templates, no model.

The background is a plane fitted through the picture's border in CIELAB. The subject is the largest connected region
that departs from it, in chroma above all: every shape colour is vivid and no background is, while shadow and texture
change lightness. Its colour is the nearest hue; its shape is the best soft overlap with drawn templates over
rotations, both brought to one centre of mass and one radius of gyration.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from .drawing import shape_mask
from .palette import BACKGROUNDS, COLOURS, MAX_TILT, SHAPES, SIZES

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

WORKING_SIDE = 96  # larger pictures are reduced to this shorter side; smaller ones are read as they are
LIGHTNESS_WEIGHT = 0.35
LEAST_DEPARTURE = 12.0  # weighted CIELAB distance from the background; less is texture or noise
LEAST_AREA = 0.006  # share of the picture; the smallest shape drawn covers 0.026
GRID = 40
SPAN = 2.4  # half side of the comparison grid, in radii of gyration
TEMPLATE_BLURS = (0.0, 0.1, 0.2)  # sigma in radii: sharp, as a 64-pixel picture has it, and smudged


@dataclass(frozen=True)
class Recognition:
    """What was seen: names from the palette, geometry as shares of the shorter side, and the overlap (0..1)."""

    colour: str
    shape: str
    size: str
    background: str
    x: float
    y: float
    radius: float
    overlap: float


def recognise(picture_hwc: NDArray[np.uint8]) -> Recognition | None:
    """Recognise the largest shape of a uint8 (height, width, 3) picture; None when nothing stands out."""
    lab = to_lab(_reduced(picture_hwc))
    height, width = lab.shape[:2]
    departure, backdrop = _departure(lab)
    peak = float(np.quantile(departure, 0.99))
    if peak < LEAST_DEPARTURE:
        return None
    subject = largest_component(departure > max(LEAST_DEPARTURE, 0.25 * peak))
    if subject.sum() < LEAST_AREA * subject.size:
        return None
    typical = float(np.median(departure[subject]))
    core = subject & (departure > 0.7 * typical)
    colour = nearest_hue(*np.median(lab[core][:, 1:], axis=0))
    soft = _soft_edge(departure / typical) * _grown(subject)
    shape, overlap, radius, (x, y) = _best_template(soft)
    side = min(height, width)
    size = min(SIZES, key=lambda name: abs(SIZES[name] - radius / side))
    return Recognition(
        colour=colour,
        shape=shape,
        size=size,
        background=_nearest_background(backdrop),
        x=(x - (width - side) / 2) / side,
        y=(y - (height - side) / 2) / side,
        radius=radius / side,
        overlap=overlap,
    )


def to_lab(rgb_hwc: NDArray[np.uint8]) -> Floats:
    """sRGB bytes (..., 3) to CIELAB (D65, 2 degree observer), by IEC 61966-2-1 and CIE 15."""
    value = rgb_hwc.astype(np.float64) / 255
    linear = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([(0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505)])
    xyz = linear @ to_xyz.T / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    x, y, z = f[..., 0], f[..., 1], f[..., 2]
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1)


def nearest_hue(a: float, b: float) -> str:
    """The shape colour whose CIELAB hue angle is nearest to that of (a, b)."""
    hue = np.arctan2(b, a)
    return min(_hues(), key=lambda name: abs((hue - _hues()[name] + np.pi) % (2 * np.pi) - np.pi))


@lru_cache(maxsize=1)
def _hues() -> dict[str, float]:
    lab = to_lab(np.array(list(COLOURS.values()), np.uint8))
    return {name: float(np.arctan2(b, a)) for name, (_, a, b) in zip(COLOURS, lab, strict=True)}


def _nearest_background(lab: Floats) -> str:
    known = to_lab(np.array(list(BACKGROUNDS.values()), np.uint8))
    return list(BACKGROUNDS)[int(np.argmin(((known - lab) ** 2).sum(axis=1)))]


def _soft_edge(share_of_inside: Floats) -> Floats:
    """Coverage from departure over the inside's departure: half covered at a half, as anti-aliasing has it."""
    return np.asarray(np.clip((share_of_inside - 0.25) * 2, 0, 1))


def _reduced(picture_hwc: NDArray[np.uint8]) -> NDArray[np.uint8]:
    height, width = picture_hwc.shape[:2]
    scale = WORKING_SIDE / min(height, width)
    if scale >= 1:
        return picture_hwc
    size = (round(width * scale), round(height * scale))
    return np.asarray(Image.fromarray(picture_hwc).resize(size, Image.Resampling.BOX))


def _departure(lab: Floats) -> tuple[Floats, Floats]:
    """Weighted distance of each pixel from a plane through the border (height, width), and the border's median."""
    height, width = lab.shape[:2]
    down, across = np.mgrid[0:height, 0:width]
    edge = 2
    border = (np.minimum(down, height - 1 - down) < edge) | (np.minimum(across, width - 1 - across) < edge)
    terms = np.stack([np.ones_like(down), across / width - 0.5, down / height - 0.5], axis=-1).astype(np.float64)
    weights = np.array([LIGHTNESS_WEIGHT, 1.0, 1.0])
    median = np.median(lab[border], axis=0)
    distance = np.sqrt((((lab - median) * weights) ** 2).sum(axis=-1))
    # A shape may touch the border: the fit leaves out what is far from the border's median.
    trusted = border & (distance <= max(10.0, float(np.quantile(distance[border], 0.7))))
    plane, *_ = np.linalg.lstsq(terms[trusted], lab[trusted], rcond=None)
    distance = np.sqrt((((lab - terms @ plane) * weights) ** 2).sum(axis=-1))
    return distance, median


def largest_component(mask: Mask) -> Mask:
    """The 4-connected component of `mask` with most pixels (all False when the mask is empty)."""
    labels = np.where(mask, np.arange(1, mask.size + 1).reshape(mask.shape), 0)
    while True:  # each round spreads the largest label along whole runs of rows, then of columns
        spread = _spread(_spread(labels).T).T
        if np.array_equal(spread, labels):
            break
        labels = spread
    counts = np.bincount(labels.ravel())
    counts[0] = 0
    largest: Mask = mask & (labels == int(np.argmax(counts)))
    return largest


def _spread(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give every horizontal run of non-zero labels its largest label."""
    padded = np.pad(labels, ((0, 0), (0, 1))).ravel()
    run = np.cumsum(padded == 0)
    best = np.zeros(int(run[-1]) + 1, np.int64)
    np.maximum.at(best, run, padded)
    spread = np.where(padded > 0, best[run], 0)
    return spread.reshape(labels.shape[0], -1)[:, :-1]


def _grown(mask: Mask) -> Mask:
    """`mask` and its 8-neighbours, so that the soft rim outside the threshold still counts."""
    padded = np.pad(mask, 1)
    rows = padded[:-2] | padded[1:-1] | padded[2:]
    grown: Mask = rows[:, :-2] | rows[:, 1:-1] | rows[:, 2:]
    return grown


def _best_template(soft: Floats) -> tuple[str, float, float, tuple[float, float]]:
    """(shape, overlap, radius in pixels, centre in pixels) of the template that overlaps best."""
    whole, gyration, (mean_x, mean_y) = _normalised(soft)
    grid = whole.astype(np.float32)
    names, templates, unit_gyrations, offsets = _templates()
    overlaps = np.minimum(templates, grid).sum(axis=(1, 2)) / np.maximum(templates, grid).sum(axis=(1, 2))
    best = int(np.argmax(overlaps))
    radius = gyration / unit_gyrations[best]
    offset_x, offset_y = offsets[best]
    return (
        names[best],
        float(overlaps[best]),
        radius,
        (mean_x - offset_x * radius, mean_y - offset_y * radius),
    )


def _normalised(soft: Floats) -> tuple[Floats, float, tuple[float, float]]:
    """A soft mask resampled to GRID × GRID about its centre of mass; its radius of gyration and centre in pixels."""
    height, width = soft.shape
    mass = soft.sum()
    across, down = np.arange(width) + 0.5, np.arange(height) + 0.5
    mean_x = float((soft.sum(axis=0) * across).sum() / mass)
    mean_y = float((soft.sum(axis=1) * down).sum() / mass)
    spread = (soft.sum(axis=0) * (across - mean_x) ** 2).sum() + (soft.sum(axis=1) * (down - mean_y) ** 2).sum()
    gyration = float(np.sqrt(spread / mass))
    step = 2 * SPAN * gyration / GRID
    corner = (mean_x - SPAN * gyration, mean_y - SPAN * gyration)
    resampled = Image.fromarray(soft.astype(np.float32)).transform(
        (GRID, GRID),
        Image.Transform.AFFINE,
        (step, 0, corner[0], 0, step, corner[1]),
        Image.Resampling.BILINEAR,
    )
    return np.asarray(resampled, np.float64), gyration, (mean_x, mean_y)


@lru_cache(maxsize=1)
def _templates() -> tuple[list[str], NDArray[np.float32], list[float], list[tuple[float, float]]]:
    """Per template: name, grid, and for radius 1 the radius of gyration and the centre of mass's offset."""
    names, grids, gyrations, offsets = [], [], [], []
    side, radius = 160, 56
    for kind in SHAPES:
        tilt = MAX_TILT[kind]
        for rotation in np.linspace(-tilt, tilt, 1 if tilt == 0 else 7):
            mask = shape_mask(kind, side, side / 2, side / 2, radius, float(rotation))
            for blur in TEMPLATE_BLURS:
                cover = np.asarray(mask.filter(ImageFilter.GaussianBlur(blur * radius)), np.float64) / 255
                soft = _soft_edge(cover / np.median(cover[cover > 0.25]))
                grid, gyration, (x, y) = _normalised(soft)
                names.append(kind)
                grids.append(grid)
                gyrations.append(gyration / radius)
                offsets.append(((x - side / 2) / radius, (y - side / 2) / radius))
    return names, np.stack(grids).astype(np.float32), gyrations, offsets
