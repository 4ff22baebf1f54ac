"""`curate demo-judge`: are the trained model's pictures what their prompts say? By exact image analysis, no model.

`prompts.jsonl` in the folder has one object per picture: `{"file": …, "prompt": …}`, and optionally `"group"`: a name
for what the picture is, e.g. `sample` (the default) or `reconstruction`, which is the ceiling. Chance, the floor, is
worked out exactly: how often the same pictures would fit if their prompts were dealt out anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError
from rich.table import Table

from pipeline import storage
from pipeline.errors import ManifestError

from .captions import caption_attributes
from .palette import WITHHELD
from .recognise import Recognition, recognise

PROMPTS = "prompts.jsonl"
LEAST_OVERLAP = 0.7
"""A stain that fits its best outline less than this shows no shape at all."""

Pair = tuple[str | None, str | None]


@dataclass(frozen=True)
class Judgement:
    """Shares (0..1) of `pictures` with the right colour, shape, and both; `chance` is for both."""

    group: str
    prompts: str
    pictures: int
    colour: float
    shape: float
    both: float
    chance: float


def judge(folder: str) -> list[Judgement]:
    """Judge every picture that `prompts.jsonl` in the folder names: per group all, seen and withheld pairs.

    Raises ManifestError when the folder, a picture or a prompt cannot be read.
    """
    groups: dict[str, list[tuple[Pair, Pair]]] = {}
    for line in _lines(folder):
        asked = _asked(line)
        seen = _seen(os.path.join(folder, line["file"]))
        groups.setdefault(str(line.get("group", "sample")), []).append((asked, seen))
    result = []
    for group, pairs in groups.items():
        withheld = [pair for pair in pairs if pair[0] in WITHHELD]
        rest = [pair for pair in pairs if pair[0] not in WITHHELD]
        for name, part in (("all", pairs), ("seen in training", rest), ("withheld", withheld)):
            if part:
                result.append(_judgement(group, name, part))
    return result


def _lines(folder: str) -> list[dict[str, Any]]:
    path = os.path.join(folder, PROMPTS)
    if not os.path.exists(path):
        raise ManifestError(f"no {PROMPTS} in {folder}", hint="run `train evaluate` first; it writes the pictures")
    try:
        text = storage.read_bytes(path).decode("utf-8")
        lines = [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise ManifestError(f"{path} is damaged ({error})", hint="run `train evaluate` again") from error
    if not all(isinstance(line, dict) and {"file", "prompt"} <= line.keys() for line in lines):
        raise ManifestError(f'{path}: every line needs "file" and "prompt"', hint="run `train evaluate` again")
    return lines


def _asked(line: dict[str, Any]) -> Pair:
    mentions = caption_attributes(line["prompt"])["mentions"]
    if not mentions:
        raise ManifestError(f"the prompt {line['prompt']!r} names no shape", hint="demo prompts are like: a red circle")
    return mentions[0]["colour"], mentions[0]["shape"]


def _seen(path: str) -> Pair:
    try:
        with Image.open(path) as picture:
            found: Recognition | None = recognise(np.asarray(picture.convert("RGB")))
    except (OSError, UnidentifiedImageError) as error:
        raise ManifestError(f"{path} cannot be read ({error})", hint="run `train evaluate` again") from error
    if found is None:
        return None, None
    return found.colour, found.shape if found.overlap >= LEAST_OVERLAP else None


def _fits(asked: Pair, seen: Pair) -> tuple[bool, bool]:
    return asked[0] in (None, seen[0]), asked[1] == seen[1]


def _judgement(group: str, name: str, pairs: Sequence[tuple[Pair, Pair]]) -> Judgement:
    fits = [_fits(asked, seen) for asked, seen in pairs]
    by_chance = [all(_fits(asked, seen)) for asked, _ in pairs for _, seen in pairs]
    return Judgement(
        group=group,
        prompts=name,
        pictures=len(pairs),
        colour=float(np.mean([colour for colour, _ in fits])),
        shape=float(np.mean([shape for _, shape in fits])),
        both=float(np.mean([colour and shape for colour, shape in fits])),
        chance=float(np.mean(by_chance)),
    )


def as_json(result: Sequence[Judgement]) -> list[dict[str, Any]]:
    """The judgements as plain values."""
    return [asdict(row) for row in result]


def render(result: Sequence[Judgement]) -> Table:
    """The judgements as a table for the terminal."""
    table = Table(title="pictures judged by exact image analysis", title_justify="left", box=None, pad_edge=False)
    for name in ("group", "prompts", "pictures", "colour", "shape", "both", "chance"):
        table.add_column(name, justify="left" if name in ("group", "prompts") else "right")
    for row in result:
        shares = (row.colour, row.shape, row.both, row.chance)
        table.add_row(row.group, row.prompts, str(row.pictures), *(f"{share:.3f}" for share in shares))
    return table
