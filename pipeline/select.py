"""`select`: the caption of each picture, the CLIP threshold, the train/validation split. Columns only.

A caption is acceptable when it is not weak itself (see the check `caption`; off, it finds none weak) and its
CLIP cosine with the picture reaches `min_clip_score`. Originals come first: a new caption replaces an acceptable
original only when it beats it by `original_margin`. A picture without any acceptable caption is dropped.
Of pictures that look alike to the CLIP model one stays, when [select.semantic] asks for it; see `pipeline.semantic`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field

from pipeline.checks.caption import Caption, is_weak, settings_in
from pipeline.clusters import count_for, halves, nearest
from pipeline.errors import RecipeError
from pipeline.receipt import JsonObject, digest
from pipeline.schema import CLUSTERS, SELECT, TableSchema
from pipeline.semantic import cosines, elect, evenly
from pipeline.settings import Settings
from pipeline.stage import ColumnStage

if TYPE_CHECKING:
    from pipeline.run import Run

REASONS = {
    "bytes_lost": "The picture could not be read when `score` came to it, so nothing is known of its captions. It is "
                  "looked for on every run.",
    "low_clip_score": "No caption of this picture, found or written, reaches select.min_clip_score with it. "
                      "Look at the captions in `curate show`; lower the threshold or add a captioner.",
    "no_caption": "The picture has no usable words at all: none was found and none was written. "
                  "Set a captioner in [caption], or select.require_caption = false.",
    "below_top_fraction": "Its best caption's CLIP score is outside select.top_fraction of the rows that were left.",
    "semantic_duplicate": "To the CLIP model it shows the same as a better picture that stays (similar_to): their "
                          "cosine reaches select.semantic.max_similarity. No copy: another photograph may be meant.",
    "cluster_full": "Its cluster of look-alikes held more than select.semantic.per_cluster pictures; those that stay "
                    "were taken evenly from its core to its fringe.",
}


class SemanticSettings(Settings):
    max_similarity: float = Field(
        1.0, gt=0, le=1, description="of pictures whose CLIP embeddings' cosine reaches this, the best stays, by "
        "caption score, then pixels; 0.95 is near copies, 0.9 the same scene; 1 keeps all"
    )
    clusters: int = Field(
        0, ge=0, description="only pictures of one k-means cluster are compared; 0: one cluster up to 10,000 pictures "
        "(every pair is looked at), then the square root of their number"
    )
    probes: int = Field(
        1, ge=1, description="compare with this many nearest clusters: finds pairs that a border parts, at as many "
        "times the cost"
    )
    per_cluster: int = Field(
        0, ge=0, description="keep at most this many pictures of each cluster, an even choice; 0 keeps all"
    )

    @property
    def on(self) -> bool:
        return self.max_similarity < 1 or self.per_cluster > 0


class SelectSettings(Settings):
    min_clip_score: float = Field(
        0.2, ge=-1, le=1,
        description="captions below this CLIP cosine are not used, no unit; 0.28 is LAION's rule for ViT-B-32",
    )
    top_fraction: float = Field(
        1.0, gt=0, le=1,
        description="keep this share of the rows by best caption score; ties at the border all stay; 1 keeps all",
    )
    original_margin: float = Field(
        0.05, ge=0, description="a written caption must beat an acceptable original by this CLIP cosine to replace it"
    )
    prefer: Literal["original", "best"] = Field(
        "original", description="original: originals within the margin win; best: highest CLIP score wins"
    )
    require_caption: bool = Field(True, description="drop pictures without an acceptable caption")
    validation_share: float = Field(
        0.05, ge=0, lt=1, description="share of pictures held out for validation loss, 0..1; a duplicate group goes "
        "whole, when any of its pictures is drawn"
    )
    semantic: SemanticSettings = Field(SemanticSettings(), description="pictures that look alike to the CLIP model")


class SelectStage(ColumnStage):
    name: ClassVar[str] = "select"
    inputs: ClassVar[tuple[str, ...]] = ("ingest", "measure", "dedupe", "filter", "score", "caption")
    reads: ClassVar[tuple[str, ...]] = (
        "id", "kept", "dropped_by", "reason", "value", "threshold", "group", "pooled_captions",
        "pooled_origins", "caption_scores", "candidates",
    )
    counted: ClassVar[str | None] = "reason"

    def tables(self, run: Run) -> dict[str, TableSchema]:
        return {"": SELECT, **({"clusters": CLUSTERS} if run.recipe.select.semantic.on else {})}

    def check(self, run: Run) -> None:
        """Raises RecipeError when look-alikes are asked for without a model that could tell."""
        if run.recipe.select.semantic.on and run.recipe.score.model == "none":
            raise RecipeError('select.semantic compares CLIP embeddings, and score.model = "none" makes none',
                              hint="set score.model, or leave select.semantic out")

    def columns_read(self, run: Run) -> Iterable[str]:
        return (*self.reads, "width", "height", "embedding") if run.recipe.select.semantic.on else self.reads

    def namespaces(self, run: Run) -> dict[str, str]:
        settings = run.recipe.select.semantic
        if not settings.on:
            return {}
        vectors = [part.sha256 for part in run.manifests.need("score").tables["embedding"]]
        shape = settings.model_dump(mode="json", include={"clusters", "probes"})
        return {"clusters": digest([1, vectors, shape, settings.per_cluster == 0, run.recipe.seed])}

    def settings(self, run: Run) -> JsonObject:
        return {**run.recipe.select.model_dump(mode="json"), "seed": run.recipe.seed,
                "model": run.recipe.score.model, "caption": settings_in(run.recipe.checks).model_dump(mode="json")}

    def compute(self, run: Run, columns: pa.Table) -> dict[str, pa.Table]:
        settings, scored = run.recipe.select, run.recipe.score.model != "none"
        rows = columns.select(self.reads).to_pylist()
        check = settings_in(run.recipe.checks)
        out = [_choose(row, settings, scored, check) for row in rows]
        if settings.top_fraction < 1 and scored:
            _keep_top(out, settings.top_fraction)
        aside = {}
        if settings.semantic.on:
            aside["clusters"] = self._clusters(run, columns)
            _thin(out, columns, aside["clusters"], settings.semantic)
        groups: dict[str, list[str]] = {}
        for row in rows:
            groups.setdefault(row["group"], []).append(row["id"])
        splits = {group: split_of(ids, run.recipe.seed, settings.validation_share) for group, ids in groups.items()}
        for row, made in zip(rows, out, strict=True):
            made["id"] = row["id"]
            made["split"] = splits[row["group"]] if made["kept"] else None
        return {"": pa.Table.from_pylist(out, schema=SELECT.arrow), **aside}

    def _clusters(self, run: Run, columns: pa.Table) -> pa.Table:
        """Every embedded row's nearest clusters, of the last run when the embeddings are the same."""
        known = self.cached(run, "clusters")
        if known is not None:
            return known
        settings = run.recipe.select.semantic
        vectors_nd, there = halves(columns.column("embedding"))
        rows = np.flatnonzero(there)
        count = count_for(len(rows), settings.clusters, whole=settings.per_cluster == 0)
        numbers, cosine = nearest(vectors_nd, rows, count, run.recipe.seed, settings.probes)
        offsets = np.arange(len(rows) + 1, dtype=np.int32) * numbers.shape[1]
        return pa.table([columns.column("id").take(pa.array(rows)), pa.ListArray.from_arrays(offsets, numbers.ravel()),
                         cosine[:, 0]], schema=CLUSTERS.arrow)


def split_of(ids: Iterable[str], seed: int, share: float) -> str:
    """The split of a duplicate group of these rows: `validation` for `share` of the single pictures.

    A group is held out when any of its rows would be by itself. So no near-copy crosses the border, and a row once
    held out stays so whatever is added: a group that grows or joins another only ever moves to validation.
    """
    lowest = min(int.from_bytes(hashlib.blake2b(f"{seed}:split:{row_id}".encode(), digest_size=8).digest(), "little")
                 for row_id in ids)
    return "validation" if lowest < share * 2**64 else "train"


def _choose(row: dict[str, Any], settings: SelectSettings, scored: bool, check: Caption.Settings) -> dict[str, Any]:
    """The output row (without id and split) of one input row."""
    carried = {name: row[name] for name in ("kept", "dropped_by", "reason", "value", "threshold")}
    made: dict[str, Any] = {**carried, "caption": None, "caption_origin": None, "caption_score": None,
                            "choices": None, "original_rejected": None}
    if not row["kept"]:
        return made
    if scored and row["caption_scores"] is None:
        return made | {"kept": False, "dropped_by": "select", "reason": "bytes_lost", "value": None, "threshold": None}
    originals, rejected = _originals(row, settings, scored, check)
    written = [
        {"text": c["text"], "origin": c["captioner"], "score": c["score"]} for c in row["candidates"] or []
        if c["text"] and (not scored or _reaches(c["score"], settings.min_clip_score))
    ]
    made["original_rejected"] = rejected
    choices = _ranked(originals, written, settings)
    if choices:
        best = choices[0]
        return made | {"caption": best["text"], "caption_origin": best["origin"], "caption_score": best["score"],
                       "choices": choices}
    if not settings.require_caption:
        return made
    texts = zip(row["pooled_captions"] or [], row["caption_scores"] or [], strict=False)
    scores = [s for text, s in texts if s is not None and text.strip() and not is_weak(text, check)]
    scores += [c["score"] for c in row["candidates"] or [] if c["score"] is not None]
    return made | {
        "kept": False, "dropped_by": "select", "reason": "low_clip_score" if scores else "no_caption",
        "value": max(scores) if scores else None, "threshold": settings.min_clip_score if scores else None,
    }


def _originals(row: dict[str, Any], settings: SelectSettings, scored: bool, check: Caption.Settings,
               ) -> tuple[list[dict[str, Any]], str | None]:
    """Acceptable originals, and why the row's originals were refused when none is acceptable."""
    texts, origins = row["pooled_captions"] or [], row["pooled_origins"] or []
    scores = row["caption_scores"] or [None] * len(texts)
    good, mismatch, weak, empty = [], False, False, True
    for text, origin, score in zip(texts, origins, scores, strict=True):
        if not text or not text.strip():
            continue
        empty = False
        if is_weak(text, check):  # each for itself: a copy's good caption may lie beside a file name
            weak = True
        elif scored and not _reaches(score, settings.min_clip_score):
            mismatch = True
        else:
            good.append({"text": text, "origin": origin, "score": score})
    if good:
        return good, None
    return [], "empty" if empty else "mismatch" if mismatch else "weak" if weak else None


def _reaches(score: float | None, threshold: float) -> bool:
    return score is not None and not np.isnan(score) and score >= threshold


def _ranked(originals: Sequence[dict[str, Any]], written: Sequence[dict[str, Any]], settings: SelectSettings,
            ) -> list[dict[str, Any]]:
    """Best first; equal scores keep their order, so the result does not hang on anything else."""
    def score(choice: dict[str, Any]) -> float:
        return choice["score"] if choice["score"] is not None else 0.0

    found = sorted(originals, key=score, reverse=True) if settings.prefer == "best" else list(originals)
    new = sorted(written, key=score, reverse=True)
    if not found or not new:
        return [*found, *new]
    margin = settings.original_margin if settings.prefer == "original" else 0.0
    best = max(score(choice) for choice in found)
    return [*new, *found] if score(new[0]) > best + margin else [*found, *new]


def _keep_top(rows: list[dict[str, Any]], fraction: float) -> None:
    """Drop kept rows below the score of the ⌈fraction·n⌉-th; a row without a score sorts last."""
    kept = [row for row in rows if row["kept"]]
    scores = np.array([-np.inf if row["caption_score"] is None else row["caption_score"] for row in kept])
    if not len(scores):
        return
    border = float(np.sort(scores)[::-1][int(np.ceil(fraction * len(scores))) - 1])
    for row, score in zip(kept, scores, strict=True):
        if score < border:
            row |= {"kept": False, "dropped_by": "select", "reason": "below_top_fraction", "value": float(score),
                    "threshold": border}


def _thin(out: list[dict[str, Any]], columns: pa.Table, clusters: pa.Table, settings: SemanticSettings) -> None:
    """Drop kept rows that look like a better one, then those that overfill their cluster."""
    vectors_nd, there = halves(columns.column("embedding"))
    embedded = np.flatnonzero(there)
    nearest_np = np.stack(clusters.column("nearest").to_numpy()) if len(embedded) else np.zeros((0, 1), np.int32)
    to_centre = clusters.column("to_centre").to_numpy()
    kept = np.array([row["kept"] for row in out], bool)[embedded]
    order = _preference(out, columns, embedded)
    order = order[kept[order]]  # places among the embedded rows
    ids = columns.column("id").to_pylist()
    if settings.max_similarity < 1:
        rows = embedded[order]
        keepers = elect(vectors_nd, rows, nearest_np[order], settings.max_similarity)
        dropped = np.flatnonzero(keepers != rows)
        cosine = cosines(vectors_nd, rows[dropped], keepers[dropped])
        for row, keeper, value in zip(rows[dropped].tolist(), keepers[dropped].tolist(), cosine.tolist(), strict=True):
            out[row] |= {"kept": False, "dropped_by": "select", "reason": "semantic_duplicate", "value": value,
                         "threshold": settings.max_similarity, "similar_to": ids[keeper]}
        order = np.delete(order, dropped)
    if settings.per_cluster:
        by_cluster = order[np.argsort(nearest_np[order, 0], kind="stable")]
        _, starts = np.unique(nearest_np[by_cluster, 0], return_index=True)
        for places in np.split(by_cluster, starts[1:]):
            if len(places) > settings.per_cluster:
                for place in np.delete(places, evenly(to_centre[places], settings.per_cluster)).tolist():
                    out[embedded[place]] |= {
                        "kept": False, "dropped_by": "select", "reason": "cluster_full", "value": float(len(places)),
                        "threshold": float(settings.per_cluster)}


def _preference(out: list[dict[str, Any]], columns: pa.Table, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Places in `rows` from best to worst: by the chosen caption's score, then pixels, then the smaller id."""
    scores = np.array([row["caption_score"] for row in out], np.float64)[rows]
    width, height = (np.nan_to_num(columns.column(name).cast(pa.float64()).to_numpy())[rows]
                     for name in ("width", "height"))
    ids = np.array(columns.column("id").to_pylist())[rows]
    return np.lexsort((ids, -width * height, -np.nan_to_num(scores, nan=-np.inf)))
