"""Build the demo website in a folder: pictures, pages, what the server does specially, and the truth beside it."""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
from PIL import Image, UnidentifiedImageError

from pipeline.errors import StorageError

from .address import DEFAULT_BASE_URL, VERSION
from .captions import full_caption
from .faults import TREATMENTS, copied, encode, innocent
from .pages import ROBOTS_TXT, lay_out
from .plan import Item, plan_site
from .truth import TruthRow, write_truth

CHUNK = 48
Size = tuple[int, int]


@dataclass(frozen=True)
class Site:
    """Where a built site lies. `www` is what the server serves; `truth` is not under it."""

    folder: str
    base_url: str

    @property
    def www(self) -> str:
        return os.path.join(self.folder, "www")

    @property
    def behaviour(self) -> str:
        return os.path.join(self.folder, "behaviour.json")

    @property
    def truth(self) -> str:
        return os.path.join(self.folder, "truth.parquet")

    @property
    def stamp(self) -> str:
        return os.path.join(self.folder, "stamp.json")


def build(
    folder: str,
    seed: int,
    scenes: int = 3000,
    *,
    base_url: str = DEFAULT_BASE_URL,
    processes: int | None = None,
) -> Site:
    """Write the site of `scenes` scenes (about a fifth more addresses) into `folder`, or find it already there.

    Deterministic by seed, whatever the number of processes (default: one per core). The folder appears whole or not
    at all. Raises StorageError when it cannot be written.
    """
    site = Site(os.path.abspath(folder), base_url.rstrip("/"))
    stamp = {"version": VERSION, "seed": seed, "scenes": scenes, "base_url": site.base_url}
    if _stamp_of(site) == stamp:
        return site
    partial_site = Site(f"{site.folder}.partial", site.base_url)
    try:
        shutil.rmtree(partial_site.folder, ignore_errors=True)
        _write(partial_site, seed, scenes, processes or os.cpu_count() or 1)
        _write_json(partial_site.stamp, stamp)
        shutil.rmtree(site.folder, ignore_errors=True)
        os.replace(partial_site.folder, site.folder)
    except OSError as error:
        raise StorageError(
            f"cannot write the demo website to {site.folder} ({error.strerror or error})",
            hint="free some disk space (it takes about 150 MB) or choose another --workdir",
        ) from error
    return site


def _stamp_of(site: Site) -> object:
    with contextlib.suppress(OSError, ValueError), open(site.stamp, encoding="utf-8") as file:
        return json.load(file)
    return None


def _write_json(path: str, value: object) -> None:
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1, sort_keys=True)


def _write(site: Site, seed: int, scenes: int, processes: int) -> None:
    items = plan_site(seed, scenes)
    pages = lay_out(seed, items)
    for path in {item.path for item in items} | set(pages.texts):
        os.makedirs(os.path.dirname(site.www + path), exist_ok=True)
    sizes = _write_pictures(site.www, seed, items, processes)
    for path, item in pages.variants.items():
        _write_variant(site.www, path, item)
    for path, text in {**pages.texts, "/robots.txt": ROBOTS_TXT}.items():
        with open(site.www + path, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
    behaviour = {"delays": pages.delays, "headers": pages.headers, "statuses": pages.statuses}
    _write_json(site.behaviour, behaviour)
    write_truth(site.truth, [_truth(item, items, sizes.get(item.index), site.base_url) for item in items])


def _write_pictures(www: str, seed: int, items: Sequence[Item], processes: int) -> dict[int, Size]:
    """Write originals first, then the copies made from their bytes; returns index → size in pixels."""
    stored = [item for item in items if item.fault != "not_found"]
    passes = [[i for i in stored if not i.is_copy], [i for i in stored if i.is_copy]]
    paths = [item.path for item in items]
    sizes: dict[int, Size] = {}
    with contextlib.ExitStack() as stack:
        run = map
        if processes > 1 and len(items) > 4 * CHUNK:
            # Spawned, not forked: the caller may hold threads.
            context = multiprocessing.get_context("spawn")
            run = stack.enter_context(ProcessPoolExecutor(processes, mp_context=context)).map  # type: ignore[assignment]
        for chosen in passes:
            originals = {i.index: paths[i.of] for i in chosen if i.is_copy and i.of is not None}
            for written in run(partial(_write_chunk, www, seed, originals), _chunks(chosen)):
                sizes |= written
    return sizes


def _chunks(items: Sequence[Item]) -> Iterator[list[Item]]:
    rest = iter(items)
    while chunk := list(islice(rest, CHUNK)):
        yield chunk


def _write_chunk(www: str, seed: int, originals: dict[int, str], items: list[Item]) -> dict[int, Size]:
    sizes: dict[int, Size] = {}
    for item in items:
        data = picture_bytes(www, seed, item, originals.get(item.index))
        with open(www + item.path, "wb") as file:
            file.write(data)
        with contextlib.suppress(UnidentifiedImageError, OSError):
            sizes[item.index] = Image.open(io.BytesIO(data)).size
    return sizes


def picture_bytes(www: str, seed: int, item: Item, original: str | None = None) -> bytes:
    """The file of one item; `original` is the path under `www` of the picture that a copy is made from."""
    if original is not None and item.fault is not None:
        with open(www + original, "rb") as file:
            return copied(file.read(), item.fault, item.strength, item.form)
    rng = np.random.default_rng([seed, 2, item.index])
    treatment = TREATMENTS.get(item.fault or "", innocent)
    return treatment(item.scene, item.strength, item.form, rng)


def _write_variant(www: str, path: str, item: Item) -> None:
    picture = Image.open(www + item.path)
    with open(www + path, "wb") as file:
        file.write(encode(picture.convert("RGB").reduce(2), item.form, 80))


def _truth(item: Item, items: Sequence[Item], size: Size | None, base_url: str) -> TruthRow:
    url = base_url + item.path
    of = None if item.of is None else base_url + items[item.of].path
    shows_scene = item.fault not in ("blank", "html_as_image", "not_found")
    width, height = size or (None, None)
    return TruthRow(
        url=url,
        family=of if item.is_copy and of else url,
        fault=item.fault,
        strength=item.strength if item.fault else None,
        lookalike=item.lookalike,
        of=of,
        scene=item.scene if shows_scene else None,
        width=width,
        height=height,
        caption=full_caption(item.scene) if shows_scene else None,
    )
