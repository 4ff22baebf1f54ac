"""`score`: each surviving picture is embedded once; captions are then scored against the stored embedding.

Two tables. `score/embedding` holds unit vectors in fp16 and is the only thing that reads pixels. The main table holds
CLIP cosines of the original captions and zero-shot probabilities: it is made from the vectors alone, so changed
captions or prompts touch no picture.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field, field_validator

from pipeline import clip_files, storage
from pipeline.errors import StorageError
from pipeline.image import UNCAPPED, Unreadable, decode
from pipeline.receipt import JsonObject
from pipeline.rowstage import RowStage, Step, Worker
from pipeline.schema import ID, SCORE, VALUE_KEY, Column, TableSchema, embedding_type
from pipeline.settings import Settings

if TYPE_CHECKING:
    from pipeline.clip import Clip
    from pipeline.run import Run

Floats = NDArray[np.float32]
BYTES = ("sha256", "container", "offset", "length")
BLOCK = 64  # decoded pictures held at once; they are large


class ScoreSettings(Settings):
    model: str = Field(
        "ViT-B-32",
        description='open_clip architecture, "local-dir:/folder", "hf-hub:name/repository", or "none" for no model',
    )
    pretrained: str | None = Field(
        "laion2b_s34b_b79k", description="open_clip weights tag or a weights file; unused for folders"
    )
    precision: Literal["fp32", "bf16", "fp16"] = Field(
        "fp32", description="number format of the model; fp16 and bf16 want a GPU"
    )
    device: str = Field("auto", description='torch device, e.g. "cuda:0"; auto: a GPU if there is one')
    batch: int = Field(64, ge=1, description="pictures or texts per model batch; short batches are padded to it")
    zero_shot: dict[str, list[str]] = Field(
        {},
        description='name → prompts; the names compete for a probability of 1. Names "head/name" compete only within '
        "their head, e.g. medium/photo with medium/drawing",
    )

    @field_validator("zero_shot")
    @classmethod
    def _has_rivals(cls, zero_shot: dict[str, list[str]]) -> dict[str, list[str]]:
        for head, names in heads(zero_shot).items():
            if len(names) < 2:
                raise ValueError(f"{names[0]!r} has no rival in {head or 'the unnamed head'!r}: give its opposite too")
            if empty := [name for name in names if not zero_shot[name]]:
                raise ValueError(f"{empty[0]!r} has no prompts")
        return zero_shot


def heads(names: Mapping[str, object]) -> dict[str, list[str]]:
    """Zero-shot names by head: what stands before the slash, or nothing."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(name.rpartition("/")[0], []).append(name)
    return found


class ScoreStage(RowStage):
    name: ClassVar[str] = "score"
    version: ClassVar[int] = 1
    inputs: ClassVar[tuple[str, ...]] = ("ingest", "dedupe", "filter")

    def check(self, run: Run) -> None:
        settings = run.recipe.score
        clip_files.check(settings.model, settings.pretrained, recipe_name=run.recipe.name)

    def settings(self, run: Run) -> JsonObject:
        return run.recipe.score.model_dump(mode="json", exclude={"device", "batch"})

    def fingerprints(self, run: Run) -> JsonObject:
        settings = run.recipe.score
        if settings.model == clip_files.NONE:
            return {}
        return {"clip": clip_files.describe(settings.model, settings.pretrained).fingerprint}

    def tables(self, run: Run) -> dict[str, TableSchema]:
        settings = run.recipe.score
        if settings.model == clip_files.NONE:
            return {"": SCORE}
        width = clip_files.describe(settings.model, settings.pretrained).width
        return {"": SCORE, "embedding": embedding_table(width)}

    def steps(self, run: Run) -> list[Step]:
        settings = run.recipe.score
        if settings.model == clip_files.NONE:
            return [Step("", SCORE, {"model": clip_files.NONE}, ("id",), (), _no_worker, wanted=_nothing)]
        model = Model.of(settings, run.recipe.name)
        pixels = Step(
            table="embedding", values=self.tables(run)["embedding"], namespace=model.namespace(),
            reads=BYTES, key=("sha256",), wanted=_kept, wanted_reads=("kept",),
            worker=partial(EmbedPictures, model), kind="model", lost=partial(missing, "embedding"),
        )  # fmt: skip
        prompts = {name: tuple(texts) for name, texts in settings.zero_shot.items()}
        words = Step(
            table="", values=SCORE, namespace={**model.namespace(), "zero_shot": settings.zero_shot},
            reads=("embedding", "pooled_captions"), key=("embedding", "pooled_captions"), wanted=_embedded,
            worker=partial(ScoreWords, model, prompts), kind="model", chunk_rows=1024,
        )  # fmt: skip
        return [pixels, words]


def embedding_table(width: int) -> TableSchema:
    """The side table `score/embedding` for vectors of `width` values."""
    return TableSchema((
        ID,
        Column("embedding", embedding_type(width), "CLIP image embedding, unit length, little-endian fp16"),
        VALUE_KEY,
    ))  # fmt: skip


def vectors(column: pa.ChunkedArray | pa.Array) -> Floats:
    """The `embedding` column as float32 (n, width); rows without one are NaN."""
    width = column.type.byte_width // 2
    rows = [np.full(width, np.nan, np.float16) if v is None else np.frombuffer(v, "<f2") for v in column.to_pylist()]
    return np.stack(rows).astype(np.float32) if rows else np.empty((0, width), np.float32)


def packed(vectors_nd: Floats) -> pa.Array:
    """float32 (n, width) → fp16 in fixed-size binary; rows with NaN become null."""
    halves = vectors_nd.astype("<f2")
    values = [None if np.isnan(row[0]) else row.tobytes() for row in halves]
    return pa.array(values, embedding_type(vectors_nd.shape[1]))


@dataclass(frozen=True)
class Model:
    """Everything a worker process needs to load the model; small enough to send."""

    model: str
    pretrained: str | None
    precision: str
    device: str
    batch: int
    recipe_name: str
    fingerprint: str

    @classmethod
    def of(cls, settings: ScoreSettings, recipe_name: str) -> Model:
        described = clip_files.describe(settings.model, settings.pretrained)
        return cls(
            settings.model, settings.pretrained, settings.precision, settings.device, settings.batch, recipe_name,
            described.fingerprint,
        )  # fmt: skip

    def namespace(self) -> JsonObject:
        """What decides the values: weights, configuration and precision; batch size and device do not."""
        return {"clip": self.fingerprint, "precision": self.precision}

    def load(self) -> Clip:
        from pipeline import clip

        return clip.load(
            self.model, self.pretrained, recipe_name=self.recipe_name, device=self.device,
            precision=self.precision, batch=self.batch,
        )  # fmt: skip


class EmbedPictures:
    """Chunk worker: bytes → canonical picture → the model's preprocessing (in threads) → unit vectors."""

    def __init__(self, model: Model) -> None:
        self.clip = model.load()
        self.readers = ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1))

    def __call__(self, rows: pa.Table) -> pa.Table:
        found = np.full((rows.num_rows, self.clip.width), np.nan, np.float32)
        for start in range(0, rows.num_rows, BLOCK):
            block = rows.slice(start, BLOCK)
            # One after the other: decoding lifts Pillow's pixel cap for the whole process while it runs.
            decoded = list(self.readers.map(picture_at, *(block.column(name).to_pylist() for name in BYTES)))
            readable = [number for number, picture in enumerate(decoded) if picture is not None]
            prepared = list(self.readers.map(self.clip.prepare, [p for p in decoded if p is not None]))
            found[[start + number for number in readable]] = self.clip.embed_images(prepared)
        return pa.table({"embedding": packed(found)})


def picture_at(sha256: bytes, container: str, offset: int, length: int) -> NDArray[np.uint8] | None:
    """The canonical RGB picture; None when it was lost or became unreadable after `measure` had read it."""
    try:
        return decode(storage.read_range(container, offset, length, sha256=sha256), max_pixels=UNCAPPED).rgb
    except (Unreadable, StorageError):
        return None


def missing(column: str, values: pa.Table) -> NDArray[np.bool_]:
    """Rows without a value in the column."""
    return np.asarray(values.column(column).is_null().to_numpy(zero_copy_only=False), bool)


class ScoreWords:
    """Chunk worker: stored vectors and captions → cosines and zero-shot probabilities."""

    def __init__(self, model: Model, prompts: Mapping[str, Sequence[str]]) -> None:
        self.clip = model.load()
        self.heads = {head: (names, self._directions([prompts[name] for name in names]))
                      for head, names in heads(prompts).items()}  # fmt: skip

    def __call__(self, rows: pa.Table) -> pa.Table:
        pictures = vectors(rows.column("embedding"))
        captions = [texts or [] for texts in rows.column("pooled_captions").to_pylist()]
        zero_shot: list[list[tuple[str, float]] | None] = (
            [[] for _ in captions] if self.heads else [None] * len(captions)
        )
        for names, directions in self.heads.values():
            for row, shares in zip(
                zero_shot, _softmax(np.float32(self.clip.logit_scale) * (pictures @ directions.T)), strict=True
            ):
                assert row is not None
                row += zip(names, shares.tolist(), strict=True)
        return pa.table({
            "caption_scores": pa.array(cosines(self.clip, pictures, captions), pa.list_(pa.float32())),
            "zero_shot": pa.array(zero_shot, pa.map_(pa.string(), pa.float32())),
        })  # fmt: skip

    def _directions(self, prompts: Sequence[Sequence[str]]) -> Floats:
        """One unit vector per name: the mean over its prompts' vectors."""
        means: Floats = np.stack([self.clip.embed_texts(texts).mean(0) for texts in prompts])
        directions: Floats = means / np.linalg.norm(means, axis=1, keepdims=True)
        return directions


def cosines(clip: Clip, pictures_nd: Floats, captions: Sequence[Sequence[str]]) -> list[list[float]]:
    """CLIP cosine of each picture's vector with each of its texts; equal texts are embedded once."""
    distinct = list(dict.fromkeys(text for texts in captions for text in texts))
    embedded = clip.embed_texts(distinct)
    where = {text: number for number, text in enumerate(distinct)}
    # One row at a time: a matrix product may round differently with the number of rows.
    return [
        [float(np.dot(picture, embedded[where[text]])) for text in texts]
        for picture, texts in zip(pictures_nd, captions, strict=True)
    ]


def _softmax(logits_nk: Floats) -> Floats:
    raised = np.exp(logits_nk - logits_nk.max(1, keepdims=True))
    shares: Floats = raised / raised.sum(1, keepdims=True)
    return shares


def _kept(rows: pa.Table) -> NDArray[np.bool_]:
    return np.asarray(rows.column("kept").to_numpy(zero_copy_only=False), bool)


def _embedded(rows: pa.Table) -> NDArray[np.bool_]:
    return np.asarray(rows.column("embedding").is_valid().to_numpy(zero_copy_only=False), bool)


def _nothing(rows: pa.Table) -> NDArray[np.bool_]:
    return np.zeros(rows.num_rows, bool)


def _no_worker() -> Worker:
    raise AssertionError("no row is wanted, so no worker is built")
