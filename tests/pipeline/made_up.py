"""A small run made up by hand: real manifests and real pictures, so that every expected number is known."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

from pipeline import checks, storage
from pipeline.demo.scenes import caption, draw, sample_scene
from pipeline.image import Unreadable, decode
from pipeline.manifest import Manifests, to_schema, write_part
from pipeline.receipt import RECEIPT, Receipt
from pipeline.schema import MEASURE, STAGES

LAYOUT = "made-up"
FINISHED = 1_800_000_000  # 2027-01-15 08:00 UTC
PART_ROWS = 16
MARKUP = '<script>alert("x")</script> & a "quoted" \x1b[31mred\x1b[0m word'

PLANTED = {
    "kept": 40, "not_found": 5, "robots": 3, "truncated": 4, "duplicate_bytes": 3, "duplicate_perceptual": 4,
    "low_resolution": 6, "extreme_aspect": 3, "blank": 5, "low_clip_score": 4,
}
"""Rows by fate. Of the kept ones every fifth has a file name for a caption and was captioned anew."""

DROPPED_BY = {
    "not_found": "ingest", "robots": "ingest", "truncated": "measure", "duplicate_bytes": "dedupe",
    "duplicate_perceptual": "dedupe", "low_resolution": "filter", "extreme_aspect": "filter", "blank": "filter",
    "low_clip_score": "select",
}
THRESHOLDS = {"low_resolution": ("resolution", 200.0), "extreme_aspect": ("aspect", 3.0), "blank": ("blank", 12.0)}
MIN_CLIP_SCORE = 0.2


@dataclass
class MadeUpRun:
    """The run's folders, its rows as made up, and what was planted."""

    workdir: str
    rows: list[dict[str, Any]]
    name: str = "made-up"
    planted: dict[str, int] = field(default_factory=dict)

    @property
    def manifests(self) -> Manifests:
        return Manifests(storage.join(self.workdir, "manifests", self.name))

    def of(self, fate: str) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["fate"] == fate]

    def write(self, *stages: str) -> Manifests:
        """Write the manifests of these stages (default: all)."""
        for stage in stages or tuple(STAGES):
            self._write(stage)
        return self.manifests

    def _write(self, stage: str) -> None:
        schema = STAGES[stage] if stage != "measure" else MEASURE.with_columns(checks.columns())
        folder = self.manifests.folder(stage)
        names = set(schema.names)
        parts = []
        for start in range(0, len(self.rows), PART_ROWS):
            chunk = [{k: v for k, v in _seen_by(stage, row).items() if k in names}
                     for row in self.rows[start:start + PART_ROWS]]
            table = to_schema(pa.Table.from_pylist(chunk, schema=_types(schema, chunk)), schema.arrow)
            parts.append(write_part(folder, f"part-{start // PART_ROWS:05d}", table))
        place = list(STAGES).index(stage)
        receipt = Receipt(stage, {"made": "up"}, LAYOUT, {"": parts},
                          timings={"finished": FINISHED + 60 * place, "seconds": 1.5 * (place + 1)})
        storage.write_bytes(storage.join(folder, RECEIPT), receipt.to_json())


def _types(schema: Any, chunk: list[dict[str, Any]]) -> pa.Schema:
    present = {name for row in chunk for name in row}
    return pa.schema([pa.field(c.name, c.type) for c in schema.columns if c.name in present])


def _seen_by(stage: str, row: dict[str, Any]) -> dict[str, Any]:
    """The row as a stage left it: before `select`, nothing is dropped by `select` yet."""
    if stage == "filter" and row["dropped_by"] == "select":
        return row | {"kept": True, "dropped_by": None, "reason": None, "value": None, "threshold": None}
    return row


def make_up(folder: Path, times: int = 1) -> MadeUpRun:
    """Rows and their bytes, `times` as many as `PLANTED` says; no manifests yet. The same every time."""
    rng = np.random.default_rng(7)
    run = MadeUpRun(str(folder), [], planted={fate: times * count for fate, count in PLANTED.items()})
    raw = bytearray()
    container = str(folder / "data" / run.name / "raw" / "raw-0.tar")
    for fate, count in run.planted.items():
        for number in range(count):
            row, data = _row(run, fate, number, rng)
            if data is not None:
                row |= {"sha256": hashlib.sha256(data).digest(), "container": container, "offset": len(raw),
                        "length": len(data)}
                raw += data
                row |= _measured(data)
            run.rows.append(row)
    _weigh(run.rows)
    Path(container).parent.mkdir(parents=True)
    Path(container).write_bytes(raw)
    order = rng.permutation(len(run.rows))
    run.rows = [run.rows[index] for index in order]
    return run


def _row(run: MadeUpRun, fate: str, number: int, rng: np.random.Generator) -> tuple[dict[str, Any], bytes | None]:
    identity = hashlib.blake2b(f"{fate}-{number}".encode(), digest_size=16).hexdigest()
    scene = sample_scene(rng, class_weights={"circle": 6, "square": 3, "star": 1})
    words = caption(scene, rng)
    row: dict[str, Any] = {
        "id": identity, "fate": fate, "source": "site", "kind": "site", "occurrence": 0, "group": identity,
        "url": f"https://pictures.example/{fate}/{number}.jpg", "page_url": f"https://pictures.example/{fate}.html",
        "captions": [words], "caption_origins": ["alt"], "fetch_outcome": "ok", "decode_outcome": "ok",
        "kept": fate == "kept", "dropped_by": DROPPED_BY.get(fate), "reason": DROPPED_BY.get(fate) and fate,
        "failed": [], "content_type": "image/jpeg", "http_status": 200,
        "split": ("validation" if number % 10 == 3 else "train") if fate == "kept" else None,
    }
    if fate in ("not_found", "robots"):
        row |= {"fetch_outcome": fate, "http_status": 404 if fate == "not_found" else None, "decode_outcome": None,
                "fetch_detail": "404 Not Found" if fate == "not_found" else "Disallow: /private/"}
        return row, None
    if fate.startswith("duplicate_"):
        return _copy(run, row, fate, number)
    image = _spoiled(draw(scene), fate, number)
    data = _jpeg(image, 60 + 3 * number % 35)
    if fate == "truncated":
        row |= {"decode_outcome": "truncated", "decode_detail": "image file is truncated"}
        return row, data[: len(data) // 3]
    if fate in THRESHOLDS:
        check, threshold = THRESHOLDS[fate]
        value = {"low_resolution": float(min(image.size)), "extreme_aspect": max(image.size) / min(image.size),
                 "blank": 3.5}[fate]
        row |= {"value": value, "threshold": threshold, "failed": [
            {"check": check, "reason": fate, "action": "drop", "value": value, "threshold": threshold}]}
        return row, data
    return row | _worded(fate, number, words, scene.shapes[0].kind, rng), data


def _copy(run: MadeUpRun, row: dict[str, Any], fate: str, number: int) -> tuple[dict[str, Any], bytes]:
    keeper = run.of("kept")[3 * number + 1]
    data = keeper["bytes"]
    relation = fate.removeprefix("duplicate_")
    if relation == "perceptual":
        image = Image.open(io.BytesIO(data))
        data = _jpeg(image.resize((max(210, image.width * 3 // 4), max(210, image.height * 3 // 4))), 55)
    return row | {"duplicate_of": keeper["id"], "relation": relation, "group": keeper["id"],
                  "distance": 2 if relation == "perceptual" else 0}, data


def _spoiled(image: Image.Image, fate: str, number: int) -> Image.Image:
    if fate == "low_resolution":
        side = 60 + 22 * (number % 6)
        return image.resize((side, side))
    if fate == "extreme_aspect":
        return image.resize((image.width, max(60, image.width // (4 + number))))
    if fate == "blank":
        return Image.new("RGB", image.size, (200 + number % 40, 200, 190))
    return image


def _worded(fate: str, number: int, words: str, kind: str, rng: np.random.Generator) -> dict[str, Any]:
    """Captions, scores and the choice of rows that reach `select`."""
    score = float(rng.normal(0.31, 0.025))
    if fate == "low_clip_score":
        low = float(rng.uniform(0.02, 0.19))
        return {"pooled_captions": [words], "pooled_origins": ["alt"], "caption_scores": [low], "value": low,
                "threshold": MIN_CLIP_SCORE}
    found = f"IMG_{2231 + number}.jpg" if number % 5 == 2 else MARKUP if number == 1 else words
    weak = number % 5 == 2
    made: dict[str, Any] = {
        "captions": [found], "pooled_captions": [found], "pooled_origins": ["alt"],
        "caption_scores": [0.08 + 0.002 * number if weak else score], "candidates": [], "label": kind,
        "caption": words if weak else found, "caption_origin": "coca" if weak else "alt", "caption_score": score,
        "original_rejected": "weak" if weak else None, "why_captioned": "weak" if weak else None, "class": kind,
        "shard": "shard-00000-abc.tar", "shard_member": f"{number}.jpg",
    }
    if weak:
        made |= {"candidates": [{"captioner": "coca", "text": words, "score": score}], "failed": [
            {"check": "caption", "reason": "weak_caption", "action": "flag", "value": 0.0, "threshold": 1.0}]}
    return made | {"choices": [{"text": made["caption"], "origin": made["caption_origin"], "score": score}]}


def _measured(data: bytes) -> dict[str, Any]:
    try:
        picture = decode(data)
    except Unreadable:
        return {"bytes": data}
    found: dict[str, Any] = {"bytes": data, "format": picture.header.format, "mode": picture.header.mode,
                             "width": picture.width, "height": picture.height, "frames": 1, "alpha_share": 0.0,
                             "phash": 0x8F0F_1234_5678_9ABC, "pixel_digest": picture.digest()}
    for check in checks.measuring().values():
        found |= check.measure(picture)
    return found


def _weigh(rows: list[dict[str, Any]]) -> None:
    sizes: dict[str, int] = {}
    for row in rows:
        if row.get("class") and row["split"] == "train":
            sizes[row["class"]] = sizes.get(row["class"], 0) + 1
    scale = sum(sizes.values()) / sum(size**0.5 for size in sizes.values())
    for row in rows:
        if row.get("class"):
            row["class_weight"] = scale / sizes[row["class"]] ** 0.5
            row["sample_weight"] = row["class_weight"] if row["split"] == "train" else 0.0


def _jpeg(image: Image.Image, quality: int) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()
