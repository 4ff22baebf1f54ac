"""A small shard folder made from scratch: tars, samples.parquet and index.json, as `shard` writes them."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from pipeline.schema import SAMPLES

COLOURS = {"red": (220, 40, 40), "green": (40, 180, 60), "blue": (50, 70, 220), "yellow": (230, 210, 50)}


def picture(colour: str, rng: np.random.Generator, size: tuple[int, int] = (48, 40)) -> bytes:
    """A PNG of `size` (width, height): a coloured square on a dark, slightly noisy ground."""
    width, height = size
    pixels = rng.integers(10, 40, (height, width, 3)).astype(np.uint8)
    side = min(size) // 2
    left, top = int(rng.integers(0, width - side)), int(rng.integers(0, height - side))
    pixels[top:top + side, left:left + side] = COLOURS[colour]
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG")
    return buffer.getvalue()


def write_shards(folder: Path, *, rows: int = 64, shards: int = 3, validation: int = 8, weights: str = "ones",
                 bucket_sizes: dict[str, tuple[int, int]] | None = None, broken: tuple[int, ...] = ()) -> Path:
    """`rows` pictures over `shards` tars; the last `validation` rows are held out.

    `weights`: "ones", or "varied" for 0.5, 1, 1.5 and 2 by colour. Rows in `broken` hold bytes that are no picture.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(7)
    sizes = bucket_sizes or {"1:1": (48, 40)}
    names = list(COLOURS)
    records: list[dict[str, Any]] = []
    entries = []
    for shard in range(shards):
        file = f"shard-{shard:05d}-{shard:06x}.tar"
        members = range(shard * rows // shards, (shard + 1) * rows // shards)
        with tarfile.open(folder / file, "w", format=tarfile.USTAR_FORMAT) as tar:
            for row in members:
                colour, bucket = names[row % 4], list(sizes)[row % len(sizes)]
                data = b"no picture" if row in broken else picture(colour, rng, sizes[bucket])
                name = hashlib.blake2b(str(row).encode(), digest_size=16).hexdigest()
                captions = [f"a {colour} square", f"{colour} box on dark ground"]
                offset = tar.offset + tarfile.BLOCKSIZE
                for suffix, content in (("png", data), ("txt", captions[0].encode()), ("json", b"{}")):
                    info = tarfile.TarInfo(f"{name}.{suffix}")
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
                records.append({
                    "id": name, "shard": file, "offset": offset, "length": len(data),
                    "sha256": hashlib.sha256(data).digest(), "width": sizes[bucket][0],
                    "height": sizes[bucket][1], "caption": captions[0], "captions": captions, "class": colour,
                    "weight": 1.0 if weights == "ones" else 0.5 + 0.5 * (row % 4),
                    "split": "validation" if row >= rows - validation else "train", "bucket": bucket,
                    "selected": True, "group": name})
        content = (folder / file).read_bytes()
        entries.append({"file": file, "sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content),
                        "samples": len(members)})
    write_index(folder, records, entries)
    return folder


def write_index(folder: Path, records: list[dict[str, Any]], entries: list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(records, schema=SAMPLES.arrow), folder / "samples.parquet")
    digest = hashlib.sha256((folder / "samples.parquet").read_bytes()).hexdigest()
    index = {"version": 1, "run": "test", "shards": entries,
             "samples": {"file": "samples.parquet", "sha256": digest, "rows": len(records)}}
    (folder / "index.json").write_text(json.dumps(index))
