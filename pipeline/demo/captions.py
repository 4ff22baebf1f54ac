"""Scenes in words, and words back into attributes, so that a caption's truth can be decided exactly."""

from __future__ import annotations

import re
from typing import TypedDict

import numpy as np

from .palette import BACKGROUND_KINDS, BACKGROUNDS, COLOURS, POSITIONS, SHAPES, SIZES, Scene, Shape

_SIZE_WORDS: dict[str, tuple[str, ...]] = {
    "small": ("small", "little"),
    "medium": ("medium",),
    "large": ("large", "big"),
}
_OPENINGS = (
    "a photo of",
    "a picture of",
    "an image of",
    "a drawing of",
    "photo of",
    "picture of",
    "there is",
)
_JOINS = ("and", "next to", "beside", "with")
_SIZE_OF = {word: size for size, words in _SIZE_WORDS.items() for word in words}
_SHAPE_OF = {name: name for name in SHAPES} | {f"{name}s": name for name in SHAPES} | {"crosses": "cross"}


class Mention(TypedDict):
    """One shape as a caption states it; what it leaves open is None."""

    shape: str
    colour: str | None
    size: str | None
    position: str | None


class CaptionAttributes(TypedDict):
    """Everything a caption states. The tuples hold each stated word once, in order."""

    mentions: tuple[Mention, ...]
    colours: tuple[str, ...]
    shapes: tuple[str, ...]
    sizes: tuple[str, ...]
    positions: tuple[str, ...]
    background: str | None
    background_kind: str | None
    night: bool


def full_caption(scene: Scene) -> str:
    """The canonical caption: every shape with size, colour and place, the background, and the light."""
    shapes = " and ".join(_shape_phrase(s, s.size, _place(s.position, 0)) for s in scene.shapes)
    background = f"on a {scene.background_kind} {scene.background} background"
    return f"{shapes} {background}{' at night' if scene.night else ''}"


def caption(scene: Scene, rng: np.random.Generator) -> str:
    """One true caption in one of many phrasings; always states every shape's colour and kind."""
    with_size, with_place = rng.random() < 0.5, rng.random() < 0.4
    phrases = []
    for shape in scene.shapes:
        size = _either(rng, _SIZE_WORDS[shape.size]) if with_size else None
        place = _place(shape.position, int(rng.integers(3))) if with_place else None
        phrases.append(_shape_phrase(shape, size, place))
    if len(phrases) == 2 and rng.random() < 0.25:
        text = f"two shapes: {phrases[0]} and {phrases[1]}"
    else:
        text = f" {_either(rng, _JOINS)} ".join(phrases)
        if rng.random() < 0.4:
            text = f"{_either(rng, _OPENINGS)} {text}"
        elif not with_place and len(phrases) == 1 and rng.random() < 0.3:
            text = text.split(" ", 1)[1]  # no article, as in a bare alt text
    if rng.random() < 0.5:
        text = f"{text} {_background_phrase(scene, rng)}"
    if scene.night and rng.random() < 0.6:
        text = f"{text} at night"
    style = rng.random()
    if style < 0.3:
        text = text[0].upper() + text[1:]
        return f"{text}." if style < 0.15 else text
    return text


def caption_attributes(text: str) -> CaptionAttributes:
    """Read colours, shapes, sizes, places and background back out of a caption; unknown words are passed over."""
    words = re.findall(r"[a-z]+", text.lower())
    mentions: list[Mention] = []
    colour: str | None = None
    size: str | None = None
    background: str | None = None
    kind: str | None = None
    for at, word in enumerate(words):
        if word in COLOURS:
            colour = word
        elif word in _SIZE_OF:
            size = _SIZE_OF[word]
        elif word in _SHAPE_OF:
            mentions.append({"shape": _SHAPE_OF[word], "colour": colour, "size": size, "position": None})
            colour = size = None
        elif word in BACKGROUNDS:
            background = word
        elif word in BACKGROUND_KINDS:
            kind = word
        elif mentions and (place := _stated_place(words, at)):
            mentions[-1]["position"] = mentions[-1]["position"] or place
    return {
        "mentions": tuple(mentions),
        "colours": _stated(words, {name: name for name in COLOURS}),
        "shapes": _stated(words, _SHAPE_OF),
        "sizes": _stated(words, _SIZE_OF),
        "positions": tuple(dict.fromkeys(m["position"] for m in mentions if m["position"])),
        "background": background,
        "background_kind": kind,
        "night": "night" in words,
    }


def is_true(text: str, scene: Scene) -> bool:
    """Whether a caption states nothing false of the scene. A caption that states nothing at all is true."""
    stated = caption_attributes(text)
    if stated["background"] not in (None, scene.background):
        return False
    if stated["background_kind"] not in (None, scene.background_kind) or (stated["night"] and not scene.night):
        return False
    if not stated["mentions"]:
        colours, sizes = {s.colour for s in scene.shapes}, {s.size for s in scene.shapes}
        return set(stated["colours"]) <= colours and set(stated["sizes"]) <= sizes
    left = list(scene.shapes)
    for mention in stated["mentions"]:
        found = next((shape for shape in left if _fits(mention, shape)), None)
        if found is None:
            return False
        left.remove(found)
    return True


def _either(rng: np.random.Generator, words: tuple[str, ...]) -> str:
    return words[int(rng.integers(len(words)))]


def _fits(mention: Mention, shape: Shape) -> bool:
    return (
        mention["shape"] == shape.kind
        and mention["colour"] in (None, shape.colour)
        and mention["size"] in (None, shape.size)
        and mention["position"] in (None, shape.position)
    )


def _stated(words: list[str], meanings: dict[str, str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(meanings[word] for word in words if word in meanings))


def _stated_place(words: list[str], at: int) -> str | None:
    word, following = words[at], words[at + 1] if at + 1 < len(words) else ""
    if word in ("centre", "center", "middle"):
        return "centre"
    if word in ("top", "bottom") and following in ("left", "right"):
        return f"{word} {following}"
    return word if word in POSITIONS else None


def _place(position: str, phrasing: int) -> str:
    if position == "centre":
        return ("in the centre", "in the middle", "at the centre")[phrasing]
    if " " in position:
        return (f"at the {position}", f"in the {position} corner", f"in the {position}")[phrasing]
    return (f"at the {position}", f"on the {position} side", f"at the {position}")[phrasing]


def _shape_phrase(shape: Shape, size: str | None, place: str | None) -> str:
    noun = " ".join(word for word in (size, shape.colour, shape.kind) if word)
    article = "an" if noun[0] in "aeiou" else "a"
    return f"{article} {noun} {place}" if place else f"{article} {noun}"


def _background_phrase(scene: Scene, rng: np.random.Generator) -> str:
    preposition = ("on", "against", "over")[int(rng.integers(3))]
    if rng.random() < 0.5:
        return f"{preposition} a {scene.background_kind} {scene.background} background"
    if rng.random() < 0.5:
        return f"{preposition} {scene.background}"
    return f"{preposition} a {scene.background} background"


_GLUE = (
    "a an the and of in on at to is there two shapes next beside with against over side corner middle background night"
)
VOCABULARY: tuple[str, ...] = tuple(
    sorted(
        set(_GLUE.split())
        | {"photo", "picture", "image", "drawing"}
        | set(COLOURS)
        | set(SHAPES)
        | set(BACKGROUNDS)
        | set(BACKGROUND_KINDS)
        | set(_SIZE_OF)
        | {word for name in POSITIONS for word in name.split()}
    )
)
"""Every word (lower case, no punctuation) that `caption` and `full_caption` can write."""
assert set(SIZES) == set(_SIZE_WORDS)
