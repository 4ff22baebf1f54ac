"""What the demo website holds: every picture, its fault or look-alike, and its words, decided before any is drawn."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .captions import caption, caption_attributes
from .faults import LEAST_SIDE, RESAVED_QUALITY, RESAVED_SHARE, STRENGTHS, SUFFIX
from .palette import CLASS_WEIGHTS, COLOURS, SHAPES, WITHHELD, Scene, stands_out
from .scenes import pick, recoloured, reshaped, sample_scene

TRIES = 300  # at a new scene unlike all others; a site of many thousands runs out of them
SCENES_PER_FAULT = 30  # one picture in thirty has a given fault
FORMS, FORM_SHARES = ("JPEG", "WEBP", "PNG"), (0.64, 0.88)  # shares are running sums
FORBIDDEN, ALLOWED = "private", "private/open"

_LETTERS = "abcdefghkmnprstuvwxyz"
_FILE_NAMES = (
    "IMG_{n:04d}.jpg",
    "DSC{n:05d}",
    "photo-2021-03-{d:02d}.png",
    "P10{n:05d}.JPG",
    "untitled-{d}.webp",
)


@dataclass(frozen=True)
class Item:
    """One picture to put on the site. `of` is the index of another item: what it copies, or the twin it resembles."""

    index: int
    path: str
    form: str
    scene: Scene
    fault: str | None = None
    strength: float = 1.0
    lookalike: str | None = None
    of: int | None = None
    alt: str | None = None
    figcaption: str | None = None

    @property
    def is_copy(self) -> bool:
        return self.fault is not None and self.of is not None


def plan_site(seed: int, scenes: int) -> list[Item]:
    """Decide everything about `scenes` scenes and what else the site holds (about a fifth more addresses).

    Pure: same seed and count, same plan. Items are in the order they were planned; copies follow their originals.
    """
    rng = np.random.default_rng([seed, 1])
    count = max(1, scenes // SCENES_PER_FAULT)
    drawn, twins = _scenes(rng, scenes, count)
    faults = _faults_of_scenes(rng, scenes, count, set(twins) | set(twins.values()))
    items: list[Item] = []
    for index, scene in enumerate(drawn):
        items.append(_item(rng, index, scene, faults.get(index), twins.get(index)))
    _make_lookalikes(rng, items, count)
    _add_copies(rng, items, count)
    for fault in ("blank", "not_found", "html_as_image"):
        for _ in range(count):
            scene = sample_scene(rng, class_weights=CLASS_WEIGHTS, exclude=WITHHELD)
            items.append(_item(rng, len(items), scene, fault, None))
    return _with_words(rng, items)


def signature(scene: Scene) -> tuple[object, ...]:
    """What makes two scenes different at a glance; no two scenes on the site share it, so none is a copy by chance."""
    shapes = frozenset((s.kind, s.colour, s.size, s.position) for s in scene.shapes)
    return shapes, scene.background


def _scenes(rng: np.random.Generator, total: int, twin_count: int) -> tuple[list[Scene], dict[int, int]]:
    """Distinct scenes, the last `twin_count` of them twins of earlier ones: twin index → index of what it resembles."""
    drawn: list[Scene] = []
    seen: set[tuple[object, ...]] = set()
    kinds, shares = list(CLASS_WEIGHTS), list(CLASS_WEIGHTS.values())
    for kind in rng.choice(kinds, total - twin_count, p=shares):
        for _ in range(TRIES):
            scene = sample_scene(rng, class_weights={str(kind): 1.0}, exclude=WITHHELD)
            if signature(scene) not in seen:
                break
        seen.add(signature(scene))
        drawn.append(scene)
    twins: dict[int, int] = {}
    while len(drawn) < total:
        at = int(rng.integers(total - twin_count))
        twin = _twin(rng, drawn[at])
        if signature(twin) not in seen and at not in twins.values():
            seen.add(signature(twin))
            twins[len(drawn)] = at
            drawn.append(twin)
    return drawn, twins


def _twin(rng: np.random.Generator, scene: Scene) -> Scene:
    """The same scene, texture and all, but for the colour (mostly) or the kind of its first shape."""
    first = scene.shapes[0]
    others = {(shape.colour, shape.kind) for shape in scene.shapes} | set(WITHHELD)
    if rng.random() < 0.7:
        allowed = [name for name in COLOURS if (name, first.kind) not in others]
        colours = [name for name in allowed if stands_out(name, scene.background, scene.night)]
        return recoloured(scene, pick(rng, colours))
    kinds = [name for name in SHAPES if (first.colour, name) not in others]
    return reshaped(scene, pick(rng, kinds))


def _faults_of_scenes(rng: np.random.Generator, total: int, count: int, spared: set[int]) -> dict[int, str]:
    """Index → fault, for faults that take a scene of their own; twins and what they resemble are spared."""
    shares = dict.fromkeys(
        ("heavy_jpeg", "blown_up", "blurred", "sliver", "truncated", "robots", "opt_out_page", "opt_out_header",
         "filename_caption", "wrong_caption"),
        count,
    ) | {"thumbnail": count - count // 2}  # fmt: skip
    free = [int(at) for at in rng.permutation(total) if int(at) not in spared]
    faults: dict[int, str] = {}
    for fault, share in shares.items():
        taken, free = free[:share], free[share:]
        faults |= dict.fromkeys(taken, fault)
    return faults


def _item(rng: np.random.Generator, index: int, scene: Scene, fault: str | None, of: int | None) -> Item:
    form = FORMS[int(np.searchsorted(FORM_SHARES, rng.random(), side="right"))]
    strength = STRENGTHS[fault](rng) if fault in STRENGTHS else 1.0
    if fault == "heavy_jpeg":
        resaved = strength <= RESAVED_QUALITY and not scene.flat and rng.random() < RESAVED_SHARE
        form = pick(rng, ("PNG", "WEBP")) if resaved else "JPEG"
    if fault == "html_as_image":
        form = "JPEG"
    folder = FORBIDDEN if fault == "robots" else f"pictures/{int(rng.integers(40)):02d}"
    path = _path(rng, folder, index, form)
    lookalike = None if fault else _natural_lookalike(scene, of)
    return Item(index, path, form, scene, fault, strength, lookalike, of)


def _path(rng: np.random.Generator, folder: str, index: int, form: str) -> str:
    """An address that tells nothing: random letters, then the index so that none comes twice."""
    letters = "".join(_LETTERS[at] for at in rng.integers(len(_LETTERS), size=5))
    return f"/{folder}/{letters}{index:05d}.{SUFFIX[form]}"


def _natural_lookalike(scene: Scene, of: int | None) -> str | None:
    if of is not None:
        return "twin"
    if scene.night:
        return "night"
    if scene.flat:
        return "flat_art"
    if scene.background_kind == "soft":
        return "soft_focus"
    if scene.background_kind == "textured":
        return "fine_texture"
    return "small" if min(scene.width, scene.height) < 290 else None


def _make_lookalikes(rng: np.random.Generator, items: list[Item], count: int) -> None:
    """Turn plain innocents into panoramas, expressly allowed pictures and those with some other directive."""
    plain = [item.index for item in items if item.fault is None and item.lookalike in (None, "small")]
    taken_as_twin = {item.of for item in items if item.of is not None}
    order = [int(at) for at in rng.permutation(plain) if int(at) not in taken_as_twin]
    for kind in ("panorama", "allowed", "other_directive", "slow"):
        share = max(1, count // 10) if kind == "slow" else max(1, count // 2)
        chosen, order = order[:share], order[share:]
        for at in chosen:
            item = replace(items[at], lookalike=kind)
            if kind == "panorama":
                short = int(rng.integers(LEAST_SIDE, 340))
                wide = replace(item.scene, width=round(short * rng.uniform(2.0, 2.4)), height=short)
                item = replace(item, scene=wide)
            elif kind == "allowed":
                item = replace(item, path=_path(rng, ALLOWED, at, item.form))
            items[at] = item


def _add_copies(rng: np.random.Generator, items: list[Item], count: int) -> None:
    """Copies of innocent pictures, at most one of each; rescaled ones only of those large enough to stay large."""
    innocents = [item for item in items if item.fault is None and item.lookalike not in ("allowed", "slow")]
    order = [innocents[int(at)] for at in rng.permutation(len(innocents))]
    for fault, share in {
        "rescaled_copy": count,
        "exact_copy": count,
        "reencoded_copy": count,
        "thumbnail": count // 2,
    }.items():
        for _ in range(share):
            strength = STRENGTHS[fault](rng)
            least = LEAST_SIDE / strength if fault == "rescaled_copy" else 0
            if fault == "rescaled_copy" and not any(min(i.scene.width, i.scene.height) >= least for i in order):
                strength, least = 0.95, LEAST_SIDE / 0.95
            at = next(n for n, i in enumerate(order) if min(i.scene.width, i.scene.height) >= least)
            original = order.pop(at)
            item = _item(rng, len(items), original.scene, fault, original.index)
            form = original.form if fault == "exact_copy" else "JPEG" if item.form == "PNG" else item.form
            path = _path(rng, f"pictures/{int(rng.integers(40)):02d}", item.index, form)
            items.append(replace(item, form=form, path=path, strength=strength, lookalike=None))


def _with_words(rng: np.random.Generator, items: list[Item]) -> list[Item]:
    """Give every item its alt text and figcaption."""
    worded = []
    for item in items:
        if item.fault == "filename_caption":
            name = pick(rng, _FILE_NAMES).format(n=int(rng.integers(1, 9999)), d=int(rng.integers(1, 28)))
            worded.append(replace(item, alt=name))
            continue
        scene = item.scene
        if item.fault == "wrong_caption":
            scene = _another(rng, item, items)
            item = replace(item, strength=falsehood(caption(scene, rng), item.scene))
        layout = rng.random()
        alt = caption(scene, rng) if layout < 0.8 else None
        figcaption = caption(scene, rng) if layout > 0.45 else None
        worded.append(replace(item, alt=alt, figcaption=figcaption))
    return worded


def _another(rng: np.random.Generator, item: Item, items: list[Item]) -> Scene:
    """Another picture's scene, whose every caption says something false of this one's colours and shapes."""
    while True:
        other = items[int(rng.integers(len(items)))].scene
        if falsehood(caption(other, rng), item.scene) > 0:
            return other


def falsehood(text: str, scene: Scene) -> float:
    """Share of the colours and shapes a caption states that are false of the scene (0 true .. 1 all false)."""
    stated = caption_attributes(text)["mentions"]
    best = 0
    left = list(scene.shapes)
    for mention in stated:
        rated = [((s.kind == mention["shape"]) + (s.colour == mention["colour"]), s) for s in left]
        if rated:
            right, shape = max(rated, key=lambda pair: pair[0])
            best += right
            left.remove(shape)
    return 1 - best / (2 * len(stated)) if stated else 0.0
