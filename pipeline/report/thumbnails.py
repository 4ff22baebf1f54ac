"""Thumbnails and 1:1 crops for the page: asked for first, drawn together in workers, kept by SHA-256.

A second report takes what it can from `thumbnails.parquet` beside the page; only new pictures are read.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image

from pipeline import storage
from pipeline.engine import Engine, WorkerDiedError
from pipeline.errors import GristmillError
from pipeline.manifest import located, parquet_bytes
from pipeline.receipt import digest

if TYPE_CHECKING:
    from pipeline.image import Picture

Variant = Literal["whole", "crop"]
CACHE = "thumbnails.parquet"
VERSION = 1
CHUNK = 12
FEW = 16
"""Up to so many pictures are drawn here: starting worker processes would take longer."""

CROP_QUALITY = 92
"""High, so that the faults in a crop are the picture's own."""

_CACHE_SCHEMA = pa.schema([("key", pa.string()), ("data", pa.binary()), ("problem", pa.string())])


@dataclass(frozen=True)
class Place:
    """Where a picture's bytes lie."""

    container: str
    offset: int
    length: int


@dataclass(frozen=True)
class Sizes:
    """Longer side of a whole thumbnail, side of a crop (px), WebP quality of whole ones."""

    whole: int
    crop: int
    quality: int


@dataclass(frozen=True)
class Thumbnail:
    """WebP bytes, or the reason why there are none."""

    data: bytes | None
    problem: str | None = None

    @property
    def uri(self) -> str | None:
        return None if self.data is None else "data:image/webp;base64," + base64.b64encode(self.data).decode()


@dataclass(frozen=True)
class Wish:
    """One picture to draw: `sha256` names its content."""

    sha256: str
    variant: Variant
    place: Place


class Thumbnails:
    """Collects wishes while the page is laid out; `draw` fulfils them all at once. `data`: the run's data folder."""

    def __init__(self, sizes: Sizes, data: str) -> None:
        self.sizes, self._data = sizes, data
        self._wishes: dict[tuple[str, Variant], Wish] = {}
        self._drawn: dict[tuple[str, Variant], Thumbnail] = {}

    def want(self, row: Mapping[str, Any], variant: Variant = "whole") -> tuple[str, Variant] | None:
        """The key of the picture of a row (sha256, container, offset, length); None without bytes."""
        sha256, container = row.get("sha256"), located(row.get("container"), self._data)
        if sha256 is None or container is None or (variant == "crop" and not self.sizes.crop):
            return None
        key = (sha256.hex(), variant)
        self._wishes.setdefault(key, Wish(*key, Place(container, row["offset"] or 0, row["length"] or 0)))
        return key

    def get(self, key: tuple[str, Variant] | None) -> Thumbnail:
        return self._drawn.get(key, Thumbnail(None, "not drawn")) if key else Thumbnail(None, "no bytes")

    def draw(self, engine: Engine, folder: str) -> int:
        """Fulfil all wishes, from the cache in `folder` where it has them; returns how many were drawn."""
        cached = _read_cache(folder)
        names = {key: self._name(wish) for key, wish in self._wishes.items()}
        self._drawn = {key: cached[name] for key, name in names.items() if name in cached}
        missing = [wish for key, wish in self._wishes.items() if key not in self._drawn]
        for wish, thumbnail in _drawn(engine, missing, self.sizes):
            self._drawn[wish.sha256, wish.variant] = thumbnail
        if missing or len(cached) != len(names):
            _write_cache(folder, {names[key]: thumbnail for key, thumbnail in self._drawn.items()
                                  if thumbnail.problem is None or not thumbnail.problem.startswith(LOST)})
        return len(missing)

    def _name(self, wish: Wish) -> str:
        side = self.sizes.whole if wish.variant == "whole" else self.sizes.crop
        return digest([wish.sha256, wish.variant, side, self.sizes.quality, VERSION, _decoders()])


@cache
def _decoders() -> dict[str, str]:
    from pipeline.image import versions

    return versions()


LOST = "bytes lost"
"""Starts the problem of a picture whose bytes could not be read; such a failure is not kept."""


def _drawn(engine: Engine, wishes: list[Wish], sizes: Sizes) -> Iterator[tuple[Wish, Thumbnail]]:
    # wishes for one picture side by side: it is then decoded once
    wishes = sorted(wishes, key=lambda wish: (wish.place.container, wish.place.offset, wish.variant))
    chunks = [wishes[start:start + CHUNK] for start in range(0, len(wishes), CHUNK)]
    waiting = iter(chunks)
    try:
        results = engine.map(partial(_drawer, sizes), chunks, kind="cpu" if len(wishes) > FEW else "inline")
        for thumbnails in results:
            yield from zip(next(waiting), thumbnails, strict=True)
    except WorkerDiedError:
        for chunk in waiting:
            yield from ((wish, Thumbnail(None, f"{LOST}: the process drawing it died")) for wish in chunk)


def _drawer(sizes: Sizes) -> Callable[[list[Wish]], list[Thumbnail]]:
    return partial(_draw_chunk, sizes)


def _draw_chunk(sizes: Sizes, wishes: list[Wish]) -> list[Thumbnail]:
    thumbnails: list[Thumbnail] = []
    picture: Picture | Thumbnail | None = None
    last = ""
    for wish in wishes:
        if wish.sha256 != last:
            picture, last = _decoded(wish), wish.sha256
        assert picture is not None
        made = picture if isinstance(picture, Thumbnail) else _encoded(picture, wish.variant, sizes)
        thumbnails.append(made)
    return thumbnails


def _decoded(wish: Wish) -> Picture | Thumbnail:
    """The picture, or a thumbnail that says why there is none."""
    from pipeline.image import Unreadable, decode

    place, sha256 = wish.place, bytes.fromhex(wish.sha256)
    try:
        # No more than the default cap: the page also shows what `measure` refused for its size.
        return decode(storage.read_range(place.container, place.offset, place.length, sha256=sha256))
    except Unreadable as error:
        return Thumbnail(None, error.reason)
    except (GristmillError, OSError) as error:
        return Thumbnail(None, f"{LOST}: {error}")


def _encoded(picture: Picture, variant: Variant, sizes: Sizes) -> Thumbnail:
    image, quality = picture.pil(), sizes.quality
    if variant == "whole":
        image = shrunk(image, sizes.whole)
    else:
        left, top, right, bottom = busiest_window(picture.levels.astype(np.float32), sizes.crop)
        image, quality = image.crop((left, top, right, bottom)), CROP_QUALITY
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", quality=quality, method=4)
    return Thumbnail(buffer.getvalue())


def shrunk(image: Image.Image, side: int) -> Image.Image:
    """The image with its longer side at most `side` px; a smaller one stays as it is."""
    scale = side / max(image.size)
    if scale >= 1:
        return image
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    return image.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)


def busiest_window(luma_hw: NDArray[np.float32], side: int) -> tuple[int, int, int, int]:
    """(left, top, right, bottom) of the `side` px square with most gradient: there faults of detail show."""
    height, width = luma_hw.shape
    if height <= side and width <= side:
        return 0, 0, width, height
    across = np.abs(np.diff(luma_hw, axis=1, prepend=luma_hw[:, :1]))
    down = np.abs(np.diff(luma_hw, axis=0, prepend=luma_hw[:1]))
    sums = np.zeros((height + 1, width + 1))
    sums[1:, 1:] = (across + down).cumsum(0, dtype=np.float64).cumsum(1)
    high, wide = min(side, height), min(side, width)
    tops, lefts = (np.unique(np.r_[np.arange(0, size - window + 1, 8), size - window])
                   for size, window in ((height, high), (width, wide)))
    inside = (sums[np.ix_(tops + high, lefts + wide)] - sums[np.ix_(tops, lefts + wide)]
              - sums[np.ix_(tops + high, lefts)] + sums[np.ix_(tops, lefts)])
    row, column = np.unravel_index(int(np.argmax(np.round(inside, 3))), inside.shape)
    left, top = int(lefts[column]), int(tops[row])
    return left, top, left + wide, top + high


def _read_cache(folder: str) -> dict[str, Thumbnail]:
    url = storage.join(folder, CACHE)
    if not storage.exists(url):
        return {}
    try:
        table = pq.read_table(pa.BufferReader(storage.read_bytes(url)), schema=_CACHE_SCHEMA)
    except (pa.ArrowException, OSError, GristmillError):
        return {}  # a damaged cache costs time, nothing else
    return {row["key"]: Thumbnail(row["data"], row["problem"]) for row in table.to_pylist()}


def _write_cache(folder: str, thumbnails: Mapping[str, Thumbnail]) -> None:
    rows: Iterable[tuple[str, Thumbnail]] = sorted(thumbnails.items())
    table = pa.Table.from_pylist(
        [{"key": key, "data": made.data, "problem": made.problem} for key, made in rows], schema=_CACHE_SCHEMA
    )
    storage.write_bytes(storage.join(folder, CACHE), parquet_bytes(table))
