"""Every manifest's columns: name, type, unit, meaning. `curate schema` and `manifests/README.md` are drawn from here.

Column names are unique across stages, so the joined view needs no prefixes. The one exception are the
decision columns (`DECISION`): `filter` and `select` both write them, cumulatively, and the later stage wins.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

SCHEMA_VERSION = 1
"""Rises when a column changes its name, type or meaning; readers open every older version."""

EMBEDDING_BYTES_PER_VALUE = 2
THUMB_BYTES = 16 * 16 + 2 * 8 * 8


@dataclass(frozen=True)
class Column:
    """One column: `type` is an Arrow type, `unit` may be empty, `meaning` one plain sentence."""

    name: str
    type: pa.DataType
    meaning: str
    unit: str = ""


@dataclass(frozen=True)
class TableSchema:
    """An ordered set of columns. The first is always `id`."""

    columns: tuple[Column, ...]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def arrow(self) -> pa.Schema:
        return pa.schema([pa.field(c.name, c.type) for c in self.columns])

    def with_columns(self, extra: Iterable[Column]) -> TableSchema:
        return TableSchema((*self.columns, *extra))


def embedding_type(width: int) -> pa.DataType:
    """fp16 vector of `width` values in little-endian order, as fixed-size binary."""
    return pa.binary(EMBEDDING_BYTES_PER_VALUE * width)


STRINGS = pa.list_(pa.string())
FAILED_CHECK = pa.struct(
    [("check", pa.string()), ("reason", pa.string()), ("action", pa.string()), ("value", pa.float64()),
     ("threshold", pa.float64())]
)
CANDIDATE = pa.struct([("captioner", pa.string()), ("text", pa.string()), ("score", pa.float32())])
UNUSED = pa.struct([("captioner", pa.string()), ("text", pa.string()), ("reason", pa.string())])
CHOICE = pa.struct([("text", pa.string()), ("origin", pa.string()), ("score", pa.float32())])

STILL_IN = ("ok", "header_only")
"""Values of `decode_outcome` with which `measure` leaves a row in: its pixels were measured, or a check drops it by the
header alone."""

ID = Column("id", pa.string(), "32 hex characters: BLAKE2b of source name, kind, address and occurrence")
VALUE_KEY = Column(
    "value_key", pa.binary(16), "hash of what the row's values were computed from; equal keys share values"
)

DECISION = (
    Column("kept", pa.bool_(), "the row is still in after this stage"),
    Column("dropped_by", pa.string(), "the stage that dropped the row: ingest, measure, dedupe, filter, select"),
    Column("reason", pa.string(), "why it was dropped; `curate explain REASON` says more"),
    Column("value", pa.float64(), "the row's value that decided", "the check's"),
    Column("threshold", pa.float64(), "what the value was held against", "the check's"),
)

INGEST = TableSchema((
    ID,
    Column("source", pa.string(), "the source's name in the recipe"),
    Column("kind", pa.string(), "the source's kind: site, folder, …"),
    Column("url", pa.string(), "canonical address: http(s) URL, or path URL for local files"),
    Column("occurrence", pa.int32(), "0 for the first row with this address, then 1, 2, …"),
    Column("page_url", pa.string(), "the page on which the picture was found"),
    Column("captions", STRINGS, "captions found at this occurrence, in order of preference, unchanged"),
    Column("caption_origins", STRINGS, "where each caption came from: alt, figcaption, caption (an element of that "
           "class beside the picture), title, aria-label, og:image:alt, json-ld:…, txt, json, name"),
    Column("label", pa.string(), "class given by the source, if any"),
    Column("license_url", pa.string(), "licence link found with the picture"),
    Column("license", pa.string(), "licence in words, where the source gives words and no link"),
    Column("fetch_outcome", pa.string(), "ok, or the reason why there are no bytes"),
    Column("fetch_detail", pa.string(), "what exactly happened, for people"),
    Column("http_status", pa.int32(), "last HTTP status"),
    Column("final_url", pa.string(), "address after redirects"),
    Column("content_type", pa.string(), "type by magic bytes, e.g. image/jpeg; never by header or name"),
    Column("sha256", pa.binary(32), "SHA-256 of the bytes"),
    Column("container", pa.string(), "file with the bytes: a picture's own, or a raw tar (relative to data/<run>/)"),
    Column("offset", pa.int64(), "where the bytes start in the container", "bytes"),
    Column("length", pa.int64(), "how many bytes", "bytes"),
    VALUE_KEY,
))

MEASURE = TableSchema((
    ID,
    Column("decode_outcome", pa.string(), "ok; header_only: not decoded, since a check drops it by its header "
           "(measure.early_exit); or why the bytes are no usable picture; null without bytes"),
    Column("decode_detail", pa.string(), "what the decoder said"),
    Column("format", pa.string(), "JPEG, PNG, WEBP, …"),
    Column("mode", pa.string(), "colour mode before conversion: RGB, L, CMYK, …"),
    Column("width", pa.int32(), "after EXIF orientation", "px"),
    Column("height", pa.int32(), "after EXIF orientation", "px"),
    Column("frames", pa.int32(), "frames in the file; the first is used"),
    Column("alpha_share", pa.float32(), "share of not fully opaque pixels; composited on white", "0..1"),
    Column("pixel_digest", pa.binary(16), "16 bytes, equal exactly for equal shape and canonical RGB pixels"),
    Column("phash", pa.uint64(), "64-bit perceptual hash, imagehash.phash's definition"),
    Column("phash_mirrored", pa.uint64(), "that of the picture mirrored left to right: see dedupe.mirrored"),
    Column("thumb", pa.binary(THUMB_BYTES), "16×16 luma then 8×8 Cb and 8×8 Cr, uint8: verifies duplicates"),
    VALUE_KEY,
))
"""The columns of every check follow these; see `pipeline.checks`."""

DEDUPE = TableSchema((
    ID,
    Column("duplicate_of", pa.string(), "id of the row kept in its place, or run/id of a picture in a held-out set; "
           "null for kept rows"),
    Column("relation", pa.string(), "address, bytes, pixels, perceptual, mirrored, or held_out: see dedupe.against"),
    Column("distance", pa.int32(), "Hamming distance of the perceptual hashes to that row", "bits of 64"),
    Column("group", pa.string(), "smallest id of the connected component; the row's own id when alone"),
    Column("pooled_captions", STRINGS, "own captions, then those of the rows dropped in its favour"),
    Column("pooled_origins", STRINGS, "where each pooled caption came from"),
))

HELD_OUT = TableSchema((
    ID,
    Column("copy_of", pa.string(), "run/id of the picture in a set of dedupe.against"),
    Column("distance", pa.int32(), "Hamming distance", "bits of 64"),
))

EDGES = TableSchema((
    Column("a", pa.string(), "smaller id"),
    Column("b", pa.string(), "larger id"),
    Column("relation", pa.string(), "address, bytes, pixels, perceptual or mirrored"),
    Column("distance", pa.int32(), "Hamming distance", "bits of 64"),
))

FILTER = TableSchema((
    ID, *DECISION,
    Column("failed", pa.list_(FAILED_CHECK), "every failed check, also those whose action is flag"),
))

SCORE = TableSchema((
    ID,
    Column("caption_scores", pa.list_(pa.float32()), "CLIP cosine of each pooled caption; null when not scored"),
    Column("zero_shot", pa.map_(pa.string(), pa.float32()), "probability of each zero-shot name in the recipe"),
    VALUE_KEY,
))

CAPTION = TableSchema((
    ID,
    Column("why_captioned", pa.string(), "all, empty, weak, low_score or sample; null when no words were needed"),
    Column("candidates", pa.list_(CANDIDATE), "captions written for the picture, scored against its embedding"),
    Column("unused", pa.list_(UNUSED), "answers that are no captions, and why: empty, loop, refusal, echo, non_answer; "
           "text is null where none came: busy, timeout, unreachable, server_error, malformed, wrong_count, not_text, "
           "cut_off, too_large, http_…"),
    VALUE_KEY,
))

SELECT = TableSchema((
    ID, *DECISION,
    Column("caption", pa.string(), "the chosen caption"),
    Column("caption_origin", pa.string(), "alt, figcaption, … or the captioner's name"),
    Column("caption_score", pa.float32(), "its CLIP cosine; null without a model"),
    Column("choices", pa.list_(CHOICE), "all acceptable captions, best first; the trainer may mix them"),
    Column("original_rejected", pa.string(), "why the original caption was not good enough: empty, weak, mismatch"),
    Column("split", pa.string(), "train or validation; null for dropped rows"),
    Column("similar_to", pa.string(), "id of the row kept in place of a semantic duplicate"),
))

CLUSTERS = TableSchema((
    ID,
    Column("nearest", pa.list_(pa.int32()), "numbers of the nearest k-means clusters, the row's own first"),
    Column("to_centre", pa.float32(), "cosine of the embedding with its own cluster's centre"),
))

WEIGH = TableSchema((
    ID,
    Column("class", pa.string(), "class name; null when unlabelled"),
    Column("class_weight", pa.float32(), "weight of the class, mean 1 over training rows"),
    Column("sample_weight", pa.float32(), "expected repeats of this row per epoch; 0 for rows not in training"),
))

TOPICS = TableSchema((
    ID,
    Column("class", pa.string(), "name of the embedding's cluster: the nearest of weigh.words"),
))

SHARD = TableSchema((
    ID,
    Column("shard", pa.string(), "file name of the tar; null for rows not in any"),
    Column("shard_offset", pa.int64(), "where the picture's bytes start in the tar", "bytes"),
    Column("shard_length", pa.int64(), "length of the picture's bytes", "bytes"),
    Column("shard_member", pa.string(), "member name, `<id>.<ext>`"),
    Column("shard_sha256", pa.binary(32), "SHA-256 of these bytes: that of the picture, but where it was cut"),
    Column("shard_width", pa.int32(), "after EXIF orientation, and after it was cut", "px"),
    Column("shard_height", pa.int32(), "after EXIF orientation, and after it was cut", "px"),
    Column("shard_box", pa.list_(pa.int32()), "left, top, right and bottom of what was cut out of the picture "
           "(shard.crop_borders), in its pixels; null where it went in whole", "px"),
    Column("shard_outcome", pa.string(), "ok, or bytes_lost: its bytes could not be read; null for dropped rows"),
))

SAMPLES = TableSchema((
    ID,
    Column("shard", pa.string(), "file name of the tar"),
    Column("offset", pa.int64(), "where the picture's bytes start in the tar", "bytes"),
    Column("length", pa.int64(), "length of the picture's bytes", "bytes"),
    Column("sha256", pa.binary(32), "SHA-256 of the picture's bytes"),
    Column("width", pa.int32(), "after EXIF orientation", "px"),
    Column("height", pa.int32(), "after EXIF orientation", "px"),
    Column("caption", pa.string(), "the chosen caption"),
    Column("captions", STRINGS, "all acceptable captions, best first"),
    Column("class", pa.string(), "class name; null when unlabelled"),
    Column("weight", pa.float32(), "expected repeats per epoch"),
    Column("split", pa.string(), "train or validation"),
    Column("bucket", pa.string(), "aspect-ratio bucket, e.g. 1:1"),
    Column("selected", pa.bool_(), "in the set; false rows lie in the tar but are not trained on"),
    Column("group", pa.string(), "duplicate component"),
))
"""`samples.parquet` beside the tars: all the trainer reads."""

STAGES: dict[str, TableSchema] = {
    "ingest": INGEST, "measure": MEASURE, "dedupe": DEDUPE, "filter": FILTER, "score": SCORE,
    "caption": CAPTION, "select": SELECT, "weigh": WEIGH, "shard": SHARD,
}
"""Stage → fixed columns, in running order. Checks and sources add columns of their own."""
