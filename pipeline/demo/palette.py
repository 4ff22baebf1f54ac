"""What a demo scene is made of: the named colours, shapes, sizes, places and backgrounds, and the scene itself."""

from __future__ import annotations

from dataclasses import dataclass

RGB = tuple[int, int, int]

COLOURS: dict[str, RGB] = {
    "red": (218, 38, 42),
    "orange": (245, 132, 24),
    "yellow": (248, 214, 40),
    "green": (46, 160, 66),
    "teal": (16, 178, 180),
    "blue": (38, 92, 226),
    "purple": (142, 60, 192),
    "pink": (246, 118, 182),
}
"""sRGB of each shape colour; their CIELAB hues lie at least 25 degrees apart, so hue alone tells them."""

BACKGROUNDS: dict[str, RGB] = {
    "white": (242, 242, 240),
    "grey": (140, 142, 146),
    "black": (24, 24, 27),
    "beige": (226, 211, 184),
    "navy": (22, 28, 66),
    "brown": (84, 62, 46),
    "mint": (198, 226, 210),
    "lavender": (212, 206, 234),
}
"""sRGB of each background colour; none is a shape colour, so a colour word in a caption is never ambiguous."""

NIGHT_BACKGROUNDS = ("black", "navy", "brown")
NIGHT_DIMMING, NIGHT_BACKGROUND_DIMMING = 0.68, 0.8  # factors on the shapes' and the background's sRGB values
LEAST_CONTRAST = 24.0  # levels of Rec. 601 luma between a shape and its background: it shows in black and white too
BACKGROUND_KINDS = ("plain", "gradient", "textured", "striped", "soft")

SHAPES: tuple[str, ...] = ("circle", "square", "triangle", "star", "heart", "ring", "diamond", "cross")

CLASS_WEIGHTS: dict[str, float] = {
    "circle": 0.40,
    "square": 0.20,
    "triangle": 0.13,
    "star": 0.09,
    "heart": 0.07,
    "ring": 0.05,
    "diamond": 0.04,
    "cross": 0.02,
}
"""Share of each shape kind on the demo website: unbalanced on purpose, 40 % to 2 %."""

MAX_TILT: dict[str, float] = {
    "circle": 0.0,
    "square": 12.0,
    "triangle": 14.0,
    "star": 18.0,
    "heart": 12.0,
    "ring": 0.0,
    "diamond": 9.0,
    "cross": 12.0,
}
"""Largest rotation either way, in degrees; small enough that a square never becomes a diamond."""

SIZES: dict[str, float] = {"small": 0.15, "medium": 0.22, "large": 0.31}
"""Circumscribed radius as a share of the picture's shorter side, before a jitter of 5 %."""

POSITIONS: dict[str, tuple[int, int]] = {
    "centre": (0, 0),
    "left": (-1, 0),
    "right": (1, 0),
    "top": (0, -1),
    "bottom": (0, 1),
    "top left": (-1, -1),
    "top right": (1, -1),
    "bottom left": (-1, 1),
    "bottom right": (1, 1),
}
"""Direction of each named place from the middle (x to the right, y downwards)."""

WITHHELD: frozenset[tuple[str, str]] = frozenset(
    {
        ("red", "square"),
        ("red", "ring"),
        ("orange", "triangle"),
        ("yellow", "star"),
        ("green", "circle"),
        ("teal", "heart"),
        ("blue", "triangle"),
        ("blue", "cross"),
        ("purple", "circle"),
        ("pink", "diamond"),
    }
)
"""(colour, shape) pairs kept off the website, to test whether the trained model combines what it saw apart."""


@dataclass(frozen=True)
class Shape:
    """One coloured shape.

    `x`, `y` (centre) and `radius` (circumscribed circle) are shares of the side of the picture's central
    square, y downwards; `rotation` is in degrees, clockwise as seen.
    """

    kind: str
    colour: str
    size: str
    position: str
    x: float
    y: float
    radius: float
    rotation: float


@dataclass(frozen=True)
class Scene:
    """One picture: one or two shapes on a background. `seed` decides textures and light, nothing that is named."""

    shapes: tuple[Shape, ...]
    background_kind: str
    background: str
    night: bool
    flat: bool
    width: int
    height: int
    seed: int


def stands_out(colour: str, background: str, night: bool) -> bool:
    """Whether a colour differs from a background in luma, not only in hue, by LEAST_CONTRAST."""
    shape, ground = _luma(COLOURS[colour]), _luma(BACKGROUNDS[background])
    if night:
        shape, ground = shape * NIGHT_DIMMING, ground * NIGHT_BACKGROUND_DIMMING
    return abs(shape - ground) >= LEAST_CONTRAST


def _luma(rgb: RGB) -> float:
    return 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]
