"""`shard`: the pictures that passed `filter`, in WebDataset tars; decisions beside them, never in them.

A picture's tar is decided by hash(seed, id): its leading bits name one of 2^k tars, k following from the total
size. Adding or dropping rows rewrites only the tars they lie in; new captions, weights or selections rewrite
none, because the trainer reads those from `samples.parquet`. For foreign readers the tars carry `.txt` and
`.json` as of their writing; when those have aged, `shard` says so and `--rewrite` refreshes them.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field, field_validator

from pipeline import checks, crop, storage
from pipeline.checks.bars import Bars, inside
from pipeline.checks.base import CheckSettings
from pipeline.crop import Box
from pipeline.errors import RecipeError
from pipeline.manifest import parquet_bytes
from pipeline.receipt import JsonObject, Receipt
from pipeline.rowstage import BYTES_LOST, lost_pictures
from pipeline.schema import SAMPLES, SHARD, TableSchema
from pipeline.settings import Settings
from pipeline.shardfile import EXTENSIONS, Member, ShardJob, write_shard
from pipeline.stage import ColumnStage

if TYPE_CHECKING:
    from pipeline.run import Run

FOLDER, ENTRIES, INDEX, SAMPLES_FILE = "shards", ".entries", "index.json", "samples.parquet"
INDEX_VERSION = 1
_RATIO = re.compile(r"0*[1-9]\d*:0*[1-9]\d*")


class ShardSettings(Settings):
    target_mb: float = Field(256, gt=0, description="tars are at most about this large, MB")
    crop_borders: bool = Field(
        False, description="cut off the bars of pictures that filter.bars calls letterboxes, which stay as they are "
        "in all other places; such pictures are encoded anew (PNG, or JPEG quality 95)"
    )
    buckets: tuple[str, ...] = Field(
        ("1:1", "4:3", "3:4", "3:2", "2:3", "16:9", "9:16"),
        description="aspect-ratio buckets, width:height; each picture is given the nearest (in log ratio)",
    )

    @field_validator("buckets")
    @classmethod
    def _ratios(cls, buckets: tuple[str, ...]) -> tuple[str, ...]:
        bad = [bucket for bucket in buckets if not _RATIO.fullmatch(bucket)]
        if bad or not buckets:
            raise ValueError(f"{bad[0]!r} is no width:height of two numbers above 0, such as 4:3" if bad
                             else "there must be at least one bucket, such as 1:1")
        return buckets


class ShardStage(ColumnStage):
    """`rewrite`: write tars anew whose `.txt` and `.json` are older than the decisions."""

    name: ClassVar[str] = "shard"
    inputs: ClassVar[tuple[str, ...]] = ("ingest", "measure", "dedupe", "filter", "select", "weigh")
    reads: ClassVar[tuple[str, ...]] = (
        "id", "url", "page_url", "license_url", "sha256", "container", "offset", "length", "format", "width",
        "height", "group", "caption", "caption_origin", "choices", "split", "class", "sample_weight",
    )
    counted: ClassVar[str | None] = "shard_outcome"

    def __init__(self, *, rewrite: bool = False) -> None:
        self.rewrite = rewrite
        self.aged = 0

    def tables(self, run: Run) -> dict[str, TableSchema]:
        return {"": SHARD}

    def check(self, run: Run) -> None:
        """Raises RecipeError where bars are to be cut off that nothing looks for."""
        if run.recipe.shard.crop_borders and run.recipe.checks["bars"].action == "off":
            raise RecipeError("shard.crop_borders cuts off what filter.bars finds, and that is off",
                              hint='set filter.bars.action = "flag", or shard.crop_borders = false')

    def columns_read(self, run: Run) -> Iterable[str]:
        return (*self.reads, *(Bars.columns if run.recipe.shard.crop_borders else ()))

    def settings(self, run: Run) -> JsonObject:
        chosen = run.recipe.shard.model_dump(mode="json", exclude={"crop_borders"})
        if run.recipe.shard.crop_borders:
            chosen |= {"crop_borders": crop.VERSION, "bars": run.recipe.checks["bars"].model_dump(mode="json")}
        return {**chosen, "seed": run.recipe.seed}

    def folder(self, run: Run) -> str:
        return storage.join(run.data, FOLDER)

    def lost(self, run: Run) -> list[str]:
        if away := lost_pictures(run.manifests.need(self.name)):
            return away
        folder = self.folder(run)
        index = _json(storage.join(folder, INDEX), "samples", "shards")
        if index is None:
            return [INDEX]
        return [entry["file"] for entry in (index["samples"], *index["shards"])
                if not _stands(storage.join(folder, entry["file"]), entry.get("bytes"))]

    def compute(self, run: Run, columns: pa.Table) -> dict[str, pa.Table]:
        passed = run.manifests.stage("filter").arrow(["kept"]).column("kept").to_pylist()
        selected = run.manifests.stage("select").arrow(["kept"]).column("kept").to_pylist()
        rows = columns.to_pylist()
        boxes = _boxes(columns, run.recipe.checks["bars"]) if run.recipe.shard.crop_borders else [None] * len(rows)
        for row, here, box in zip(rows, selected, boxes, strict=True):
            row |= {"selected": here, "box": box}
            if box is not None:
                row |= {"width": box[2] - box[0], "height": box[3] - box[1]}
        jobs = self._jobs(run, [row for row, keep in zip(rows, passed, strict=True) if keep])
        entries = self._write(run, jobs)
        places = {member["id"]: {**member, "file": entry["file"]} for entry in entries for member in entry["members"]}
        for row in rows:
            if row["id"] in places:
                sha256 = places[row["id"]].get("sha256")
                row["sha256"] = row["sha256"] if sha256 is None else bytes.fromhex(sha256)
        self._publish(run, rows, places, entries)
        lost = {row_id for entry in entries for row_id in entry["lost"]}
        if lost:
            run.progress.say(f"  {len(lost)} picture(s) could not be read and are in no tar (shard_outcome is "
                             f"{BYTES_LOST}); run the same command when their disk or server is back.")
        return {"": pa.Table.from_pylist([_place(row, places.get(row["id"]), row["id"] in lost) for row in rows],
                                         schema=SHARD.arrow)}

    def _jobs(self, run: Run, rows: Sequence[JsonObject]) -> list[ShardJob]:
        total = sum(row["length"] for row in rows)
        bits = 0
        while total / 2**bits > run.recipe.shard.target_mb * 1e6:
            bits += 1
        by_shard: dict[int, list[tuple[bytes, Member]]] = {}
        for row in rows:
            place = hashlib.blake2b(f"{run.recipe.seed}:shard:{row['id']}".encode(), digest_size=8).digest()
            number = int.from_bytes(place, "big") >> (64 - bits)
            by_shard.setdefault(number, []).append((place, _member(row)))
        return [ShardJob(number, tuple(member for _, member in sorted(members, key=lambda pair: pair[0])))
                for number, members in sorted(by_shard.items())]

    def _write(self, run: Run, jobs: Sequence[ShardJob]) -> list[JsonObject]:
        """Entries of all tars in order; only those whose pictures changed are written."""
        folder = self.folder(run)
        entries: dict[int, JsonObject] = {}
        self.aged = 0
        for job in jobs:
            entry = _known_entry(folder, job)
            if entry is not None and entry["texts"] != job.texts:
                self.aged += 1
                entry = None if self.rewrite else entry
            if entry is not None:
                entries[job.number] = entry
        missing = _with_before(folder, [job for job in jobs if job.number not in entries])
        worker = partial(_writer, folder)
        for job, entry in zip(missing, run.engine.map(worker, missing, kind="cpu"), strict=True):
            entries[job.number] = entry
        if self.aged and not self.rewrite:
            run.progress.say(f"  {self.aged} tar(s) carry .txt/.json older than the decisions; the trainer reads "
                             "samples.parquet and is not affected. `curate shard --rewrite` refreshes them.")
        return [entries[job.number] for job in jobs]

    def _publish(self, run: Run, rows: Sequence[JsonObject], places: dict[str, JsonObject],
                 entries: Sequence[JsonObject]) -> None:
        """samples.parquet, then the index that names its hash: readers follow the index."""
        folder, buckets = self.folder(run), run.recipe.shard.buckets
        if run.lease is not None:
            run.lease.check()
        samples = [_sample(row, places[row["id"]], buckets) for row in rows if row["id"] in places]
        data = parquet_bytes(pa.Table.from_pylist(samples, schema=SAMPLES.arrow))
        storage.write_bytes(storage.join(folder, SAMPLES_FILE), data)
        index = {
            "version": INDEX_VERSION, "run": run.recipe.name,
            "samples": {"file": SAMPLES_FILE, "sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data),
                        "rows": len(samples)},
            "shards": [{name: entry[name] for name in ("file", "sha256", "bytes", "samples")} for entry in entries],
        }
        storage.write_bytes(storage.join(folder, INDEX), (json.dumps(index, indent=1) + "\n").encode())

    def settle(self, run: Run, receipt: Receipt) -> None:
        folder = self.folder(run)
        index = json.loads(storage.read_bytes(storage.join(folder, INDEX)))
        named = {entry["file"] for entry in index["shards"]}
        for name in storage.names(folder):
            if (name.startswith("shard-") and name not in named) or name in storage.leftovers(folder):
                storage.remove(storage.join(folder, name))
        for name in storage.names(storage.join(folder, ENTRIES)):
            entry = _json(storage.join(folder, ENTRIES, name), "file")
            if entry is None or entry["file"] not in named:
                storage.remove(storage.join(folder, ENTRIES, name))


def _with_before(folder: str, jobs: Sequence[ShardJob]) -> list[ShardJob]:
    """The jobs, each member with its place in the tars that stand now: a source that is away loses nothing."""
    if not jobs:
        return []
    before: dict[str, tuple[str, JsonObject]] = {}
    for name in storage.names(storage.join(folder, ENTRIES)):
        entry = _json(storage.join(folder, ENTRIES, name), "file", "members") or {"members": []}
        for member in entry["members"]:
            before[member["id"]] = (storage.join(folder, entry["file"]), member)
    return [replace(job, members=tuple(replace(member, before=before.get(member.id)) for member in job.members))
            for job in jobs]


def _writer(folder: str) -> Any:
    return partial(write_shard, folder)


def _json(url: str, *names: str) -> JsonObject | None:
    """What a JSON file of ours holds; None when it is lost or lacks one of the names, and so is to be made again."""
    if not storage.exists(url):
        return None
    try:
        found = json.loads(storage.read_bytes(url))
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.keys() >= set(names) else None


def _stands(url: str, size: int | None) -> bool:
    return storage.exists(url) and storage.size(url) == size


def _known_entry(folder: str, job: ShardJob) -> JsonObject | None:
    entry = _json(storage.join(folder, ENTRIES, job.entry_name), "file", "bytes", "texts", "lost")
    if entry is None or entry["lost"]:  # what could not be read then may be there now
        return None
    return entry if _stands(storage.join(folder, entry["file"]), entry["bytes"]) else None


def _member(row: JsonObject) -> Member:
    facts = {name: row[name] for name in ("id", "url", "page_url", "license_url", "width", "height", "caption",
                                          "caption_origin", "split")}
    facts |= {"class": row["class"], "weight": row["sample_weight"], "sha256": row["sha256"].hex(),
              "captions": [choice["text"] for choice in row["choices"] or []]}
    if row["box"] is not None:
        facts |= {"source_sha256": row["sha256"].hex(), "source_box": row["box"]}
    return Member(row["id"], row["sha256"].hex(), row["container"], row["offset"], row["length"],
                  EXTENSIONS.get(row["format"], "bin"), row["caption"] or "", json.dumps(facts, ensure_ascii=False),
                  row["box"])


def _boxes(columns: pa.Table, settings: CheckSettings) -> list[Box | None]:
    """Per row the part of the picture that goes into a tar; None: the whole, as it is."""
    seen = checks.as_arrays(columns, (*Bars.columns, *Bars.reads))
    verdict, = checks.registry()["bars"].judge(seen, settings)
    inner = inside(seen)
    boxes: list[Box | None] = [None] * columns.num_rows
    for row in np.flatnonzero(verdict.failed).tolist():
        left, top, right, bottom = (int(side) for side in inner[row])
        boxes[row] = left, top, right, bottom
    return boxes


def _place(row: JsonObject, place: JsonObject | None, lost: bool) -> JsonObject:
    if place is None:
        return {"id": row["id"], "shard_outcome": BYTES_LOST if lost else None}
    return {"id": row["id"], "shard": place["file"], "shard_offset": place["offset"], "shard_length": place["length"],
            "shard_member": place["name"], "shard_sha256": row["sha256"], "shard_width": row["width"],
            "shard_height": row["height"], "shard_box": row["box"], "shard_outcome": "ok"}


def _sample(row: JsonObject, place: JsonObject, buckets: Sequence[str]) -> JsonObject:
    return {
        "id": row["id"], "shard": place["file"], "offset": place["offset"], "length": place["length"],
        "sha256": row["sha256"], "width": row["width"], "height": row["height"], "caption": row["caption"],
        "captions": [choice["text"] for choice in row["choices"] or []], "class": row["class"],
        "weight": row["sample_weight"], "split": row["split"], "selected": row["selected"], "group": row["group"],
        "bucket": nearest_bucket(row["width"], row["height"], buckets),
    }


def nearest_bucket(width: int, height: int, buckets: Sequence[str]) -> str:
    """The bucket whose width:height ratio is nearest in logarithm; the first of equals."""
    def distance(bucket: str) -> float:
        across, down = (float(side) for side in bucket.split(":"))
        return abs(math.log(width / height) - math.log(across / down))

    return min(buckets, key=distance)
