"""What the demo's CLIP learns from: pictures with captions that are true, captions that nearly are, and which is which.

Pictures are drawn once into a cache at the model's own size, by way of a random drawing size, JPEG, blur and rescaling.
Captions are written anew each time a picture comes round.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from .scenes import (
    BACKGROUND_KINDS,
    BACKGROUNDS,
    COLOURS,
    POSITIONS,
    SHAPES,
    SIZES,
    Scene,
    Shape,
    caption,
    caption_attributes,
    draw_square,
    full_caption,
    sample_scene,
)

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

DRAWING_SIDES = (96, 128, 192, 288)
DRAWING_SHARES = (0.3, 0.3, 0.25, 0.15)
NONE = -1
_COLOUR = {name: i for i, name in enumerate(COLOURS)}
_SHAPE = {name: i for i, name in enumerate(SHAPES)}
_SIZE = {name: i for i, name in enumerate(SIZES)}
_POSITION = {name: i for i, name in enumerate(POSITIONS)}
_BACKGROUND = {name: i for i, name in enumerate(BACKGROUNDS)}
_KIND = {name: i for i, name in enumerate(BACKGROUND_KINDS)}


@dataclass(frozen=True)
class Facts:
    """What texts state or scenes show, as numbers; -1 where a text leaves it open or there is no second shape.

    `shapes` is (n, 2, 4): shape, colour, size and place of up to two shapes. `rest` is (n, 3): background, its kind,
    and night (for texts 1 or -1, for scenes 1 or 0).
    """

    shapes: Ints
    rest: Ints


@dataclass(frozen=True)
class Pictures:
    """Scenes, their pictures (n, side, side, 3) uint8, and per patch the shape and the colour it lies on.

    `patch_labels` is (n, patches, 2) int64: index of shape and of colour, 0 for background.
    """

    scenes: tuple[Scene, ...]
    pixels: NDArray[np.uint8]
    patch_labels: Ints


def sample_scenes(count: int, rng: np.random.Generator, two_shapes: float = 0.15) -> list[Scene]:
    """Scenes of every class alike, all colour–shape pairs among them: a judge must know the withheld ones too."""
    scenes = []
    for _ in range(count):
        scene = sample_scene(rng)
        while len(scene.shapes) < 2 and rng.random() < two_shapes:
            scene = sample_scene(rng)
        scenes.append(scene)
    return scenes


def draw_pictures(scenes: Sequence[Scene], side: int, patch: int, rng: np.random.Generator) -> Pictures:
    """Draw every scene once, each with its own mild damage, at `side` pixels."""
    pixels = np.empty((len(scenes), side, side, 3), np.uint8)
    labels = np.empty((len(scenes), (side // patch) ** 2, 2), np.int64)
    for i, scene in enumerate(scenes):
        pixels[i] = _worn(scene, side, rng)
        labels[i] = _patch_labels(scene, side // patch)
    return Pictures(tuple(scenes), pixels, labels)


def _worn(scene: Scene, side: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    drawn = int(rng.choice(DRAWING_SIDES, p=DRAWING_SHARES))
    picture = Image.fromarray(draw_square(scene, drawn))
    if rng.random() < 0.15:
        picture = picture.filter(ImageFilter.GaussianBlur(float(rng.uniform(0.2, 0.012 * drawn))))
    if rng.random() < 0.15:
        small = int(drawn * rng.uniform(0.5, 0.95))
        picture = picture.resize((small, small), Image.Resampling.BILINEAR)
    if rng.random() < 0.35:
        buffer = io.BytesIO()
        picture.save(buffer, "JPEG", quality=int(rng.integers(25, 96)))
        picture = Image.open(buffer)
    return np.asarray(picture.resize((side, side), Image.Resampling.BICUBIC))


def _patch_labels(scene: Scene, grid: int) -> Ints:
    """Patches whose middle lies well inside a shape's circle carry its shape and colour, counted from 1."""
    middles = (np.arange(grid) + 0.5) / grid
    labels = np.zeros((grid, grid, 2), np.int64)
    for shape in scene.shapes:
        inside = np.hypot(middles[None, :] - shape.x, middles[:, None] - shape.y) < 0.9 * shape.radius
        labels[inside] = (_SHAPE[shape.kind] + 1, _COLOUR[shape.colour] + 1)
    return labels.reshape(grid * grid, 2)


def written_caption(scene: Scene) -> str:
    """What the model learns to write: the full caption without the kind of background.

    Grain and soft lights are often finer than the model's pixels; it would only guess, and a guess is a false caption.
    """
    return full_caption(scene).replace(f"on a {scene.background_kind} ", "on a ")


def near_miss(scene: Scene, rng: np.random.Generator) -> str:
    """A caption with one colour or shape wrong, or with the colours of two shapes exchanged."""
    shapes = list(scene.shapes)
    if len(shapes) == 2 and rng.random() < 0.4:
        first, second = shapes
        shapes = [replace(first, colour=second.colour), replace(second, colour=first.colour)]
    else:
        at = int(rng.integers(len(shapes)))
        shapes[at] = _altered(shapes[at], rng)
    text = replace(scene, shapes=tuple(shapes))
    return full_caption(text) if rng.random() < 0.15 else caption(text, rng)


def _altered(shape: Shape, rng: np.random.Generator) -> Shape:
    if rng.random() < 0.5:
        return replace(shape, colour=str(rng.choice([c for c in COLOURS if c != shape.colour])))
    return replace(shape, kind=str(rng.choice([s for s in SHAPES if s != shape.kind])))


def junk_text(rng: np.random.Generator) -> str:
    """Words that describe nothing, as file names and menus do: no picture should be near them."""
    words = (
        "img",
        "dsc",
        "home",
        "banner",
        "click",
        "untitled",
        "page",
        "photo",
        "image",
        "final",
        "copy",
        "picture",
    )
    chosen = rng.choice(words, size=int(rng.integers(1, 4)))
    number = f" {rng.integers(10_000)}" if rng.random() < 0.6 else ""
    return " ".join(chosen) + number


def scene_facts(scenes: Sequence[Scene]) -> Facts:
    """What each scene shows."""
    shapes = np.full((len(scenes), 2, 4), NONE, np.int64)
    rest = np.empty((len(scenes), 3), np.int64)
    for i, scene in enumerate(scenes):
        for k, s in enumerate(scene.shapes):
            shapes[i, k] = (_SHAPE[s.kind], _COLOUR[s.colour], _SIZE[s.size], _POSITION[s.position])
        rest[i] = (_BACKGROUND[scene.background], _KIND[scene.background_kind], int(scene.night))
    return Facts(shapes, rest)


def text_facts(texts: Sequence[str]) -> Facts:
    """What each text states."""
    shapes = np.full((len(texts), 2, 4), NONE, np.int64)
    rest = np.full((len(texts), 3), NONE, np.int64)
    for i, text in enumerate(texts):
        stated = caption_attributes(text)
        for k, m in enumerate(stated["mentions"][:2]):
            shapes[i, k] = (
                _SHAPE[m["shape"]],
                _index(_COLOUR, m["colour"]),
                _index(_SIZE, m["size"]),
                _index(_POSITION, m["position"]),
            )
        rest[i] = (
            _index(_BACKGROUND, stated["background"]),
            _index(_KIND, stated["background_kind"]),
            1 if stated["night"] else NONE,
        )
    return Facts(shapes, rest)


def _index(indices: dict[str, int], name: str | None) -> int:
    return NONE if name is None else indices[name]


def truth(scenes: Facts, texts: Facts) -> tuple[Bools, Bools]:
    """(scenes, texts) twice: nothing stated is false; no stated colour or shape is false.

    A text that names no shape counts as false of every scene in both: it says nothing worth being near to.
    """
    names_something = texts.shapes[:, 0, 0] != NONE
    gist = _mentions_hold(scenes.shapes[..., :2], texts.shapes[..., :2]) & names_something
    stated, shown = texts.rest[None], scenes.rest[:, None]
    rest = np.all((stated == NONE) | (stated == shown), axis=-1)
    return _mentions_hold(scenes.shapes, texts.shapes) & rest & gist, gist


def _mentions_hold(shown: Ints, stated: Ints) -> Bools:
    """Whether the stated shapes can be matched with different shapes of the scene: (scenes, texts)."""
    # fits[s, t, m, k]: mention m of text t holds of shape k of scene s.
    fits = np.all((stated[None, :, :, None] == NONE) | (stated[None, :, :, None] == shown[:, None, None]), axis=-1)
    fits &= shown[:, None, None, :, 0] != NONE
    second_open = (stated[:, 1, 0] == NONE)[None]
    either = fits[:, :, 0, 0] | fits[:, :, 0, 1]
    both = (fits[:, :, 0, 0] & fits[:, :, 1, 1]) | (fits[:, :, 0, 1] & fits[:, :, 1, 0])
    result: Bools = np.where(second_open, either, both)
    return result
