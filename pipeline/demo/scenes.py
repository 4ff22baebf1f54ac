"""Random scenes for the demo, and the one place to import everything about scenes from."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from .captions import (
    VOCABULARY,
    CaptionAttributes,
    Mention,
    caption,
    caption_attributes,
    full_caption,
    is_true,
)
from .drawing import draw, draw_square, shape_mask
from .palette import (
    BACKGROUND_KINDS,
    BACKGROUNDS,
    CLASS_WEIGHTS,
    COLOURS,
    MAX_TILT,
    NIGHT_BACKGROUNDS,
    POSITIONS,
    SHAPES,
    SIZES,
    WITHHELD,
    Scene,
    Shape,
    stands_out,
)

__all__ = [
    "BACKGROUNDS",
    "BACKGROUND_KINDS",
    "CLASS_WEIGHTS",
    "COLOURS",
    "POSITIONS",
    "SHAPES",
    "SIZES",
    "VOCABULARY",
    "WITHHELD",
    "CaptionAttributes",
    "Mention",
    "Scene",
    "Shape",
    "caption",
    "caption_attributes",
    "draw",
    "draw_square",
    "full_caption",
    "is_true",
    "pick",
    "recoloured",
    "reshaped",
    "sample_scene",
    "shape_mask",
    "stands_out",
]

Option = TypeVar("Option")
SIDES = (256, 900)
TWO_SHAPES = 0.15
NIGHT = 0.12
FLAT = 0.15


def sample_scene(
    rng: np.random.Generator,
    *,
    class_weights: Mapping[str, float] | None = None,
    exclude: Collection[tuple[str, str]] = (),
) -> Scene:
    """Draw one scene at random.

    The class of a scene is `shapes[0].kind`, drawn with `class_weights` (default: all kinds alike). No shape of the
    scene is one of the (colour, shape) pairs in `exclude`. Raises ValueError when `exclude` leaves a kind no colour.
    """
    weights = class_weights or dict.fromkeys(SHAPES, 1.0)
    kinds = list(weights)
    shares = np.array([weights[kind] for kind in kinds], np.float64)
    shares /= shares.sum()
    night = bool(rng.random() < NIGHT)
    first = str(rng.choice(kinds, p=shares))
    if rng.random() < TWO_SHAPES:
        second = pick(rng, [kind for kind in SHAPES if kind != first])
        shapes: tuple[Shape, ...] = _pair(rng, first, second, exclude)
    else:
        size, position = pick(rng, list(SIZES)), pick(rng, list(POSITIONS))
        shapes = (_place_shape(rng, first, _colour(rng, first, exclude), size, position),)
    grounds = NIGHT_BACKGROUNDS if night else list(BACKGROUNDS)
    background = pick(rng, [name for name in grounds if all(stands_out(s.colour, name, night) for s in shapes)])
    width, height = _canvas(rng)
    flat = bool(rng.random() < FLAT)
    kind = "plain" if flat else pick(rng, BACKGROUND_KINDS)
    return Scene(shapes, kind, background, night, flat, width, height, int(rng.integers(2**31)))


def pick(rng: np.random.Generator, options: Sequence[Option]) -> Option:
    """One of the options, all alike; much quicker than `Generator.choice`, which makes an array first."""
    return options[int(rng.integers(len(options)))]


def _canvas(rng: np.random.Generator) -> tuple[int, int]:
    """Width and height: sides from 256 to 900, longer over shorter side at most 1.5, small ones more often."""
    low, high = SIDES
    shorter = round(low + (640 - low) * float(rng.random()) ** 3)
    longer = min(high, round(shorter * pick(rng, (1.0, 1.0, 1.25, 4 / 3, 1.5))))
    return (longer, shorter) if rng.random() < 0.5 else (shorter, longer)


def _colour(rng: np.random.Generator, kind: str, exclude: Collection[tuple[str, str]], taken: str | None = None) -> str:
    free = [colour for colour in COLOURS if (colour, kind) not in exclude and colour != taken]
    if not free:
        raise ValueError(f"every colour of {kind} is excluded")
    return pick(rng, free)


def _pair(
    rng: np.random.Generator, first: str, second: str, exclude: Collection[tuple[str, str]]
) -> tuple[Shape, Shape]:
    """Two shapes of different kind and colour at opposite places, the first the larger, never touching."""
    places = [name for name in POSITIONS if name != "centre"]
    here = pick(rng, places)
    x, y = POSITIONS[here]
    there = next(name for name, way in POSITIONS.items() if way == (-x, -y))
    colour = _colour(rng, first, exclude)
    big, small = ("medium", "small") if rng.random() < 0.6 else ("small", "small")
    return (
        _place_shape(rng, first, colour, big, here),
        _place_shape(rng, second, _colour(rng, second, exclude, taken=colour), small, there),
    )


def _place_shape(rng: np.random.Generator, kind: str, colour: str, size: str, position: str) -> Shape:
    radius = SIZES[size] * rng.uniform(0.95, 1.05)
    reach = min(0.27, 0.485 - radius)
    right, down = POSITIONS[position]
    jitter = rng.uniform(-0.02, 0.02, 2)
    edge = radius + 0.005
    x = float(np.clip(0.5 + right * reach + jitter[0], edge, 1 - edge))
    y = float(np.clip(0.5 + down * reach + jitter[1], edge, 1 - edge))
    tilt = float(rng.uniform(-1, 1)) * MAX_TILT[kind]
    return Shape(kind, colour, size, position, x, y, float(radius), tilt)


def recoloured(scene: Scene, colour: str) -> Scene:
    """The same scene with its first shape in another colour."""
    return replace(scene, shapes=(replace(scene.shapes[0], colour=colour), *scene.shapes[1:]))


def reshaped(scene: Scene, kind: str) -> Scene:
    """The same scene with its first shape of another kind, upright."""
    return replace(scene, shapes=(replace(scene.shapes[0], kind=kind, rotation=0.0), *scene.shapes[1:]))
