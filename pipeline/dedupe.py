"""`dedupe`: which rows are copies of one another, and which of them stays.

Two halves. *Edges* are verified pairs, computed from hashes and kept for the next run: equal addresses, equal
bytes, equal pixels, and pictures whose perceptual hashes are within `max_distance` bits and whose thumbnails agree,
where `mirrored` asks for it also after one of the two was mirrored.
The *election* is cheap and runs again whenever a threshold changes: rows are visited from best to worst, a row that
nobody has taken stays and takes its undecided neighbours. So every dropped row is a verified copy of the very row
that is kept in its place (no chains), and a good copy never falls for a bad one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import Field, model_validator

from pipeline import against, checks
from pipeline.pairs import MIRRORED, Neighbours, copies, ranks
from pipeline.receipt import JsonObject, digest
from pipeline.schema import DEDUPE, EDGES, HELD_OUT, TableSchema
from pipeline.settings import Settings
from pipeline.sides import SIDES
from pipeline.stage import ColumnStage

if TYPE_CHECKING:
    from pipeline.run import Run

_NONE = np.empty(0, np.int64)
REASONS = {
    "duplicate_address": "The same address was found before, on another page or in another place. The bytes are "
                         "shared and the captions went to the row that stays.",
    "duplicate_bytes": "Another address holds exactly the same file. The captions went to the row that stays.",
    "duplicate_pixels": "Another file holds exactly the same pixels, stored differently.",
    "duplicate_perceptual": "A re-encoded or rescaled copy: the perceptual hashes are within dedupe.max_distance and "
                            "the thumbnails agree within dedupe.max_difference.",
    "duplicate_mirrored": "A copy mirrored left to right: one's hash and thumbnail agree with those of the other one "
                          "mirrored (dedupe.mirrored). Its captions went to the row that stays, but for those that say "
                          "left or right.",
    "duplicate_held_out": "A copy of a picture in another run that dedupe.against names, such as an evaluation set: a "
                          "model must not be tested on what it was shown.",
}
EDGE_READS = ("id", "kind", "url", "sha256", "decode_outcome", "pixel_digest", "phash", "thumb")
"""And `phash_mirrored` where mirror images count."""


class DedupeSettings(Settings):
    max_distance: int = Field(
        8, ge=0, le=16, description="perceptual copies differ in at most this many bits of the 64-bit pHash"
    )
    max_difference: float = Field(
        10.0, ge=0, description="and no cell of their 16 × 16 luma and 8 × 8 chroma thumbnails differs by more than "
        "this, levels of 255; pale thumbnails, as of line drawings, must agree more closely"
    )
    perceptual: bool = Field(True, description="look for re-encoded and rescaled copies too, not only exact ones")
    mirrored: bool = Field(
        False, description="count mirror images (left to right) as copies, too, within the same limits; pictures "
        "need not be measured again"
    )
    against: tuple[str, ...] = Field(
        (), description="manifests folders of other runs, e.g. manifests/evaluation, whose pictures must not be in "
        "this set; they need `measure`; paths or any fsspec URLs"
    )

    @model_validator(mode="after")
    def _likeness(self) -> DedupeSettings:
        if self.mirrored and not self.perceptual:
            raise ValueError("mirrored finds nothing without perceptual; leave both on, or turn mirrored off")
        return self


class DedupeStage(ColumnStage):
    name: ClassVar[str] = "dedupe"
    version: ClassVar[int] = 3
    inputs: ClassVar[tuple[str, ...]] = ("ingest", "measure")
    counted: ClassVar[str | None] = "relation"

    def tables(self, run: Run) -> dict[str, TableSchema]:
        aside = {"held_out": HELD_OUT} if run.recipe.dedupe.against else {}
        return {"": DEDUPE, "edges": EDGES, **aside}

    def check(self, run: Run) -> None:
        """Raises ManifestError for a held-out set that has not been measured."""
        against.contents(run.recipe.dedupe.against)

    def fingerprints(self, run: Run) -> JsonObject:
        return {"against": against.contents(run.recipe.dedupe.against)} if run.recipe.dedupe.against else {}

    def settings(self, run: Run) -> JsonObject:
        judged = {name: chosen.model_dump(mode="json") for name, chosen in run.recipe.checks.items()}
        return {"dedupe": run.recipe.dedupe.model_dump(mode="json"), "filter": judged}

    def namespaces(self, run: Run) -> dict[str, str]:
        content = [run.manifests.need(name).content for name in self.inputs]
        settings = run.recipe.dedupe.model_dump(mode="json", exclude={"against"})
        edges = digest([self.version, content, settings])
        aside = {"held_out": digest([edges, self.fingerprints(run)])} if run.recipe.dedupe.against else {}
        return {"edges": edges, **aside}

    def columns_read(self, run: Run) -> Iterable[str]:
        known = all(self.cached(run, table) is not None for table in self.namespaces(run))
        reads = ("id",) if known else edge_reads(run.recipe.dedupe)
        return (*reads, "width", "height", "length", "captions", "caption_origins", *checks.columns_read())

    def compute(self, run: Run, columns: pa.Table) -> dict[str, pa.Table]:
        edges = self.cached(run, "edges")
        if edges is None:
            edges = copies(columns.select(edge_reads(run.recipe.dedupe)), run.recipe.dedupe)
        tables = {"edges": edges}
        if run.recipe.dedupe.against:
            held = self.cached(run, "held_out")
            if held is None:
                held = against.held_out(columns.select(edge_reads(run.recipe.dedupe)), run.recipe.dedupe)
            tables["held_out"] = held
        ids = columns.column("id")
        held = tables.get("held_out", HELD_OUT.arrow.empty_table())
        out = np.asarray(pc.index_in(held.column("id"), value_set=ids.combine_chunks()), np.int64)
        neighbours = Neighbours(ids, edges)
        verdicts = checks.verdicts(columns, run.recipe.checks, dropping_only=True)
        order = preference(columns, verdicts.dropped)
        keeper = elect(neighbours, order, out)
        return {"": _rows(columns, neighbours, keeper, out, held), **tables}


def edge_reads(settings: DedupeSettings) -> tuple[str, ...]:
    """The columns that edges are found in."""
    return (*EDGE_READS, "phash_mirrored") if settings.mirrored else EDGE_READS


def preference(columns: pa.Table, dropped: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Row numbers from best to worst: rows the checks keep, then more pixels, then more bytes (less compressed),
    then a caption, then the smaller id. File order plays no part."""
    pixels = _numbers(columns, "width") * _numbers(columns, "height")
    captions = columns.column("captions").combine_chunks()
    said = pc.not_equal(pc.utf8_trim_whitespace(pc.fill_null(captions.flatten(), "")), "")
    worded = np.zeros(columns.num_rows, bool)
    worded[np.asarray(pc.list_parent_indices(captions), np.int64)[np.asarray(said, bool)]] = True
    return np.lexsort((ranks(columns.column("id")), ~worded, -_numbers(columns, "length"), -pixels, dropped))


def _numbers(columns: pa.Table, name: str) -> NDArray[np.float64]:
    return np.nan_to_num(np.asarray(columns.column(name).cast(pa.float64()), np.float64))


def elect(neighbours: Neighbours, order: Sequence[int] | NDArray[np.int64],
          out: Sequence[int] | NDArray[np.int64] = ()) -> NDArray[np.int64]:
    """Per row the row kept in its place: itself for those that stay, and for rows that are `out` already."""
    order = np.asarray(order, np.int64)
    keeper = np.arange(len(order))
    undecided = np.zeros(len(order), bool)
    undecided[neighbours.tied] = True  # only these can lose or take anything
    undecided[np.asarray(out, np.int64)] = False
    for row in order[undecided[order]].tolist():
        if not undecided[row]:
            continue
        undecided[row] = False
        for other in neighbours.of(row):
            if undecided[other]:
                undecided[other], keeper[other] = False, row
    return keeper


def _rows(columns: pa.Table, neighbours: Neighbours, keeper: NDArray[np.int64], out: NDArray[np.int64],
          held: pa.Table) -> pa.Table:
    """`schema.DEDUPE`; `held` says of the rows `out`, in its order, which held-out pictures they are copies of."""
    ids, count = columns.column("id").combine_chunks(), columns.num_rows
    dropped = np.flatnonzero(keeper != np.arange(count))
    related = [neighbours.between(row, int(keeper[row])) for row in dropped.tolist()]
    kept_id, relation, distance = np.full((3, count), None, object)
    kept_id[dropped] = ids.take(pa.array(keeper[dropped])).to_pylist()
    relation[dropped], distance[dropped] = [name for name, _ in related], [bits for _, bits in related]
    kept_id[out], distance[out] = held.column("copy_of").to_pylist(), held.column("distance").to_pylist()
    relation[out] = against.RELATION
    texts, origins = pooled(columns.column("captions"), columns.column("caption_origins"), dropped, keeper[dropped],
                            turned=dropped[relation[dropped] == MIRRORED])
    return pa.table([ids, pa.array(kept_id, pa.string()), pa.array(relation, pa.string()),
                     pa.array(distance, pa.int32()), neighbours.group, texts, origins], schema=DEDUPE.arrow)


def pooled(captions: pa.ChunkedArray, origins: pa.ChunkedArray, dropped: NDArray[np.int64], keeper: NDArray[np.int64],
           *, turned: NDArray[np.int64] = _NONE) -> tuple[pa.Array, pa.Array]:
    """Per row its own captions, then those of the rows `dropped` for it, each text once; and where each came from.

    Rows that are `turned` show a mirror image: what they say of left and right is not true of the row that stays. The
    first origin of a text counts, rows in their order. Only rows that may change are looked at one by one.
    """
    captions, origins = captions.combine_chunks(), origins.combine_chunks()
    lengths = np.asarray(pc.fill_null(pc.list_value_length(captions), -1))
    changing = np.unique(np.concatenate([keeper, np.flatnonzero((lengths > 1) | (lengths < 0))]))
    rows = pa.array(np.concatenate([changing, dropped]))
    words = [list(zip(texts or [], froms or [], strict=True)) for texts, froms in
             zip(captions.take(rows).to_pylist(), origins.take(rows).to_pylist(), strict=True)]
    pools: dict[int, dict[str, str]] = {row: {} for row in changing.tolist()}
    given = zip(dropped.tolist(), words[len(changing):], strict=True)
    mirror_images = set(turned.tolist())
    true = [[word for word in said if row not in mirror_images or not SIDES.search(word[0])] for row, said in given]
    givers = sorted(zip(dropped.tolist(), keeper.tolist(), true, strict=True))
    for row, said in [*zip(changing.tolist(), words, strict=False), *((kept, said) for _, kept, said in givers)]:
        for text, origin in said:
            pools[row].setdefault(text, origin)
    return tuple(_replaced(lists, changing, [list(part(pools[row])) for row in changing.tolist()])
                 for lists, part in ((captions, dict.keys), (origins, dict.values)))  # type: ignore[return-value]


def _replaced(lists: pa.Array, rows: NDArray[np.int64], values: list[list[str]]) -> pa.Array:
    """The lists with those of `rows` exchanged for `values`."""
    places = np.arange(len(lists))
    places[rows] = len(lists) + np.arange(len(rows))
    return pa.concat_arrays([lists, pa.array(values, lists.type)]).take(pa.array(places))
