"""`select`: the caption of each picture, the CLIP and zero-shot thresholds, the train/validation split. Columns only.

How a caption is chosen says `pipeline.choice`; a picture without any acceptable one is dropped. Then what zero-shot
probabilities rule out, then all but the best `top_fraction`, and last, when [select.semantic] asks for it, all but one
of pictures that look alike to the CLIP model; see `pipeline.semantic`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field

from pipeline.checks.caption import settings_in
from pipeline.choice import CHOSEN, REFUSED, choose
from pipeline.choice import READS as CHOICE_READS
from pipeline.clusters import count_for, halves, nearest
from pipeline.decisions import Decisions
from pipeline.errors import RecipeError
from pipeline.receipt import JsonObject, digest
from pipeline.schema import CLUSTERS, SELECT, TableSchema
from pipeline.semantic import cosines, elect, evenly
from pipeline.settings import Settings
from pipeline.stage import ColumnStage
from pipeline.zeroshot import Bounds, check_names, outside

if TYPE_CHECKING:
    from pipeline.run import Run

REASONS = {
    "bytes_lost": "The picture could not be read when `score` came to it, so nothing is known of its captions. It is "
                  "looked for on every run.",
    "low_clip_score": "No caption of this picture, found or written, reaches select.min_clip_score with it. "
                      "Look at the captions in `curate show`; lower the threshold or add a captioner.",
    "no_caption": "The picture has no usable words at all: none was found and none was written. "
                  "Set a captioner in [caption], or select.require_caption = false.",
    "zero_shot": "The zero-shot probability of the name behind the colon is outside the bounds in select.zero_shot. "
                 "Look at the pictures in the report before moving them.",
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
    zero_shot: dict[str, Bounds] = Field(
        {}, description="name of score.zero_shot → bounds of its probability, as in { nsfw = { max = 0.3 } }; pictures "
        "outside are dropped, and get no words written for them"
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
        "id", "kept", "dropped_by", "reason", "value", "threshold", "group", *CHOICE_READS, "zero_shot",
    )
    counted: ClassVar[str | None] = "reason"

    def tables(self, run: Run) -> dict[str, TableSchema]:
        return {"": SELECT, **({"clusters": CLUSTERS} if run.recipe.select.semantic.on else {})}

    def check(self, run: Run) -> None:
        """Raises RecipeError when look-alikes are asked for without a model that could tell, or for bounds on names
        that have no prompts."""
        check_names(run.recipe.select.zero_shot, run.recipe.score.zero_shot)
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
        decided = Decisions(columns)
        rows = np.flatnonzero(decided.kept)
        inside = columns.select(CHOICE_READS).take(pa.array(rows))
        made = choose(inside, settings, scored, settings_in(run.recipe.checks))
        decided.refuse(rows, made.select(REFUSED))
        chosen = made.take(_places(rows, columns.num_rows)).select(CHOSEN)
        scores = chosen.column("caption_score").cast(pa.float64()).to_numpy()
        for name, failed, value, threshold in outside(columns.column("zero_shot"), settings.zero_shot):
            decided.drop(np.flatnonzero(failed & decided.kept), f"zero_shot:{name}", value, threshold)
        if settings.top_fraction < 1 and scored:
            _keep_top(decided, scores, settings.top_fraction)
        aside = {}
        if settings.semantic.on:
            aside["clusters"] = self._clusters(run, columns)
            _thin(decided, columns, scores, aside["clusters"], settings.semantic)
        filled = dict(zip(CHOSEN, chosen.columns, strict=True)) | decided.columns()
        filled |= {"id": columns.column("id"),
                   "split": _splits(columns, decided.kept, run.recipe.seed, settings.validation_share)}
        return {"": pa.table([filled[name] for name in SELECT.names], schema=SELECT.arrow), **aside}

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
    return _side(min(_draw(row_id, seed) for row_id in ids), share)


def _draw(row_id: str, seed: int) -> int:
    return int.from_bytes(hashlib.blake2b(f"{seed}:split:{row_id}".encode(), digest_size=8).digest(), "little")


def _side(lowest: int, share: float) -> str:
    return "validation" if lowest < share * 2**64 else "train"


def _splits(columns: pa.Table, kept: NDArray[np.bool_], seed: int, share: float) -> list[str | None]:
    """`split_of` of each row's group; None for dropped rows, which count in their group all the same."""
    groups = columns.column("group").combine_chunks().dictionary_encode()
    of_row = groups.indices.to_numpy()
    lowest = np.full(len(groups.dictionary), np.iinfo(np.uint64).max, np.uint64)
    drawn = np.fromiter((_draw(row_id, seed) for row_id in columns.column("id").to_pylist()), np.uint64, len(of_row))
    np.minimum.at(lowest, of_row, drawn)
    sides = [_side(each, share) for each in lowest.tolist()]
    return [sides[group] if stays else None for group, stays in zip(of_row.tolist(), kept.tolist(), strict=True)]


def _places(rows: NDArray[np.int64], count: int) -> pa.Array:
    """For each of `count` rows its place in `rows`; null for rows that are not there."""
    places = np.zeros(count, np.int64)
    places[rows] = np.arange(len(rows))
    absent = np.ones(count, bool)
    absent[rows] = False
    return pa.array(places, mask=absent)


def _keep_top(decided: Decisions, scores: NDArray[np.float64], fraction: float) -> None:
    """Drop kept rows below the score of the ⌈fraction·n⌉-th; a row without a score sorts last."""
    kept = np.flatnonzero(decided.kept)
    known = np.nan_to_num(scores, nan=-np.inf)
    if len(kept):
        border = float(np.sort(known[kept])[::-1][int(np.ceil(fraction * len(kept))) - 1])
        decided.drop(kept[known[kept] < border], "below_top_fraction", known, border)


def _thin(decided: Decisions, columns: pa.Table, scores: NDArray[np.float64], clusters: pa.Table,
          settings: SemanticSettings) -> None:
    """Drop kept rows that look like a better one, then those that overfill their cluster."""
    vectors_nd, there = halves(columns.column("embedding"))
    embedded = np.flatnonzero(there)
    probes = clusters.column("nearest").combine_chunks()
    nearest_np = probes.flatten().to_numpy().reshape(len(embedded), -1) if len(embedded) else np.zeros((0, 1), np.int32)
    to_centre = clusters.column("to_centre").to_numpy()
    order = _preference(columns, scores, embedded)
    order = order[decided.kept[embedded][order]]  # places among the embedded rows
    if settings.max_similarity < 1:
        rows = embedded[order]
        keepers = elect(vectors_nd, rows, nearest_np[order], settings.max_similarity)
        dropped = np.flatnonzero(keepers != rows)
        cosine = np.full(columns.num_rows, np.nan)
        cosine[rows[dropped]] = cosines(vectors_nd, rows[dropped], keepers[dropped])
        decided.drop(rows[dropped], "semantic_duplicate", cosine, settings.max_similarity, keepers[dropped])
        order = np.delete(order, dropped)
    if settings.per_cluster:
        by_cluster = order[np.argsort(nearest_np[order, 0], kind="stable")]
        _, starts = np.unique(nearest_np[by_cluster, 0], return_index=True)
        for places in np.split(by_cluster, starts[1:]):
            if len(places) > settings.per_cluster:
                full = np.delete(places, evenly(to_centre[places], settings.per_cluster))
                decided.drop(embedded[full], "cluster_full", np.full(columns.num_rows, float(len(places))),
                             float(settings.per_cluster))


def _preference(columns: pa.Table, scores: NDArray[np.float64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Places in `rows` from best to worst: by the chosen caption's score, then pixels, then the smaller id."""
    width, height = (np.nan_to_num(columns.column(name).cast(pa.float64()).to_numpy())[rows]
                     for name in ("width", "height"))
    ids = np.array(columns.column("id").to_pylist(), np.bytes_)[rows]
    return np.lexsort((ids, -width * height, -np.nan_to_num(scores[rows], nan=-np.inf)))
