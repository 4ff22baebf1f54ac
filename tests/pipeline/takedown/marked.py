"""A website with one picture like no other, and a search for every trace of it in a run's folders."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from PIL import Image

from pipeline import checks, stages
from pipeline.demo.scenes import draw, sample_scene
from pipeline.progress import Progress
from pipeline.recipe import Recipe, from_dict
from pipeline.run import Run
from tests.pipeline.ingest import hostile
from tests.pipeline.ingest.hostile import Hostile, reply

MAGENTA = np.array([255, 0, 200])
WORDS = "Zerelda Quixworth beside her bicycle"
POOLED = "portrait of Z. Quixworth"
OTHERS = 6


def encoded(picture: Image.Image, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, quality=90)
    return buffer.getvalue()


def marked_picture(side: int = 320) -> Image.Image:
    """Magenta squares on white in a pattern of their own; nothing else here shows magenta."""
    cells = np.random.default_rng(7).random((8, 8)) < 0.5
    pixels = np.where(cells[:, :, None], MAGENTA, 255).astype(np.uint8)
    return Image.fromarray(np.kron(pixels, np.ones((side // 8, side // 8, 1), np.uint8)))


def other_picture(seed: int) -> Image.Image:
    """A demo scene without its red channel's extremes: never magenta."""
    red, green, blue = draw(sample_scene(np.random.default_rng(seed))).split()
    return Image.merge("RGB", (red.point(lambda v: v // 3), green, blue.point(lambda v: v // 2)))


@dataclass
class Site:
    """The pictures by path, with their captions in page order."""

    captions: dict[str, str] = field(default_factory=dict)
    pictures: dict[str, bytes] = field(default_factory=dict)

    @property
    def paths(self) -> dict[str, Any]:
        page = "".join(f'<img src="{path}" alt="{text}">' for path, text in self.captions.items())
        return {"/robots.txt": reply(b"", 404), "/": reply(page.encode(), kind="text/html"),
                **{path: reply(data, kind="image/png") for path, data in self.pictures.items()}}


def site() -> Site:
    """The marked picture, the same bytes elsewhere, and a larger re-encoded copy that is the better one."""
    found = Site()
    for number in range(OTHERS):
        found.captions[f"/{number}.png"] = f"a scene with the number {number} in it"
        found.pictures[f"/{number}.png"] = encoded(other_picture(number))
    marked = encoded(marked_picture())
    for path, text, data in (("/marked.png", WORDS, marked), ("/again.png", POOLED, marked),
                             ("/larger.jpg", "a pattern of squares", encoded(marked_picture(512), "JPEG"))):
        found.captions[path], found.pictures[path] = text, data
    return found


def recipe(workdir: str, server: Hostile, **ingest: Any) -> Recipe:
    return from_dict({
        "name": "marked", "workdir": workdir, "engine": {"workers": 1}, "score": {"model": "none"},
        "caption": {"when": "none"}, "filter": {name: {"action": "flag"} for name in checks.measuring()},
        "ingest": {"sources": [{"kind": "site", "name": "web", "start": [server.base]}],
                   "fetch": {"contact": "t@example.org", "allow_hosts": ["127.0.0.1"], "retries": 0}, **ingest}})


def curate(given: Recipe, *names: str, refresh: bool = False, force: bool = False) -> Run:
    """Run stages (all without names), and draw the report as `curate run` does."""
    from pipeline import finish

    run = Run(given, Progress(quiet=True), refresh)
    stages.execute(run, list(names or stages.STAGES), force=force)
    finish.draw_report(run)
    return run


def rows_of(run: Run) -> dict[str, dict[str, Any]]:
    """Rows of `ingest` by the last part of their address."""
    return {row["url"].rsplit("/", 1)[-1]: row for row in run.manifests.stage("ingest").arrow().to_pylist()}


def traces(folder: Path, needles: dict[str, bytes]) -> set[tuple[str, str]]:
    """(kind of file, needle) for every needle found in any file, in any column of any Parquet file, and `magenta` for
    every picture that shows it, also inside tars, tables and pages."""
    found: set[tuple[str, str]] = set()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            for content in _contents(path):
                found |= {(path.name, name) for name, needle in needles.items() if needle in content}
                if any(_magenta(picture) for picture in _pictures(content)):
                    found.add((path.name, "magenta"))
    return found


def _contents(path: Path) -> Iterator[bytes]:
    yield path.read_bytes()
    if path.suffix == ".parquet":
        yield from (value.encode() if isinstance(value, str) else value
                    for row in pq.read_table(path).to_pylist() for value in _leaves(row))


def _leaves(value: Any) -> Iterator[str | bytes]:
    if isinstance(value, (str, bytes)):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _leaves(inner)


def _pictures(content: bytes) -> Iterator[Image.Image]:
    inside = [base64.b64decode(match) for match in re.findall(rb"data:image/webp;base64,([A-Za-z0-9+/=]+)", content)]
    starts = [match.start() for match in re.finditer(rb"\x89PNG\r\n|RIFF....WEBP|\xff\xd8\xff", content, re.DOTALL)]
    for data in (*inside, *(content[start:] for start in starts)):
        try:
            yield Image.open(io.BytesIO(data)).convert("RGB")
        except OSError:
            continue


def _magenta(picture: Image.Image) -> bool:
    distance = np.abs(np.asarray(picture, np.int16) - MAGENTA).max(axis=2)
    return bool((distance < 40).mean() > 0.1)


__all__ = ["Site", "curate", "encoded", "hostile", "marked_picture", "recipe", "rows_of", "site", "traces"]
