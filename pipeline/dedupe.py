"""`dedupe`: which rows are copies of one another, and which of them stays.

Two halves. *Edges* are verified pairs, computed from hashes and kept for the next run: equal addresses, equal
bytes, equal pixels, and pictures whose perceptual hashes are within `max_distance` bits and whose thumbnails agree.
The *election* is cheap and runs again whenever a threshold changes: rows are visited from best to worst, a row that
nobody has taken stays and takes its undecided neighbours. So every dropped row is a verified copy of the very row
that is kept in its place (no chains), and a good copy never falls for a bad one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field

from pipeline import against, checks
from pipeline.pairs import Neighbours, copies
from pipeline.receipt import JsonObject, digest
from pipeline.schema import DEDUPE, EDGES, HELD_OUT, TableSchema
from pipeline.settings import Settings
from pipeline.stage import ColumnStage

if TYPE_CHECKING:
    from pipeline.run import Run

REASONS = {
    "duplicate_address": "The same address was found before, on another page or in another place. The bytes are "
                         "shared and the captions went to the row that stays.",
    "duplicate_bytes": "Another address holds exactly the same file. The captions went to the row that stays.",
    "duplicate_pixels": "Another file holds exactly the same pixels, stored differently.",
    "duplicate_perceptual": "A re-encoded or rescaled copy: the perceptual hashes are within dedupe.max_distance and "
                            "the thumbnails agree within dedupe.max_difference.",
    "duplicate_held_out": "A copy of a picture in another run that dedupe.against names, such as an evaluation set: a "
                          "model must not be tested on what it was shown.",
}
EDGE_READS = ("id", "kind", "url", "sha256", "decode_outcome", "pixel_digest", "phash", "thumb")


class DedupeSettings(Settings):
    max_distance: int = Field(
        8, ge=0, le=16, description="perceptual copies differ in at most this many bits of the 64-bit pHash"
    )
    max_difference: float = Field(
        10.0, ge=0, description="and no cell of their 16 × 16 luma and 8 × 8 chroma thumbnails differs by more than "
        "this, levels of 255; pale thumbnails, as of line drawings, must agree more closely"
    )
    perceptual: bool = Field(True, description="look for re-encoded and rescaled copies too, not only exact ones")
    against: tuple[str, ...] = Field(
        (), description="manifests folders of other runs, e.g. manifests/evaluation, whose pictures must not be in "
        "this set; they need `measure`; paths or any fsspec URLs"
    )


class DedupeStage(ColumnStage):
    name: ClassVar[str] = "dedupe"
    version: ClassVar[int] = 2
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
        return (*EDGE_READS, "width", "height", "length", "captions", "caption_origins", *checks.columns_read())

    def compute(self, run: Run, columns: pa.Table) -> dict[str, pa.Table]:
        edges = self.cached(run, "edges")
        if edges is None:
            edges = copies(columns.select(EDGE_READS), run.recipe.dedupe)
        tables = {"edges": edges}
        if run.recipe.dedupe.against:
            held = self.cached(run, "held_out")
            if held is None:
                held = against.held_out(columns.select(EDGE_READS), run.recipe.dedupe)
            tables["held_out"] = held
        ids = columns.column("id").to_pylist()
        out = {entry["id"]: entry for table in (tables.get("held_out"),) if table for entry in table.to_pylist()}
        neighbours = Neighbours(ids, edges)
        order = preference(columns, checks.verdicts(columns, run.recipe.checks).dropped)
        keeper = elect(neighbours, order, {row for row, each in enumerate(ids) if each in out})
        return {"": _rows(columns, ids, neighbours, keeper, out), **tables}


def preference(columns: pa.Table, dropped: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Row numbers from best to worst: rows the checks keep, then more pixels, then more bytes (less compressed),
    then a caption, then the smaller id. File order plays no part."""
    ids = np.array(columns.column("id").to_pylist())
    pixels = _numbers(columns, "width") * _numbers(columns, "height")
    worded = np.array([any(text and text.strip() for text in texts or []) for texts in
                       columns.column("captions").to_pylist()], bool)
    return np.lexsort((ids, ~worded, -_numbers(columns, "length"), -pixels, dropped))


def _numbers(columns: pa.Table, name: str) -> NDArray[np.float64]:
    return np.nan_to_num(np.asarray(columns.column(name).cast(pa.float64()), np.float64))


def elect(neighbours: Neighbours, order: Sequence[int] | NDArray[np.int64], out: Collection[int] = (),
          ) -> NDArray[np.int64]:
    """Per row the row kept in its place: itself for those that stay, and for rows that are `out` already."""
    keeper = np.full(len(order), -1, np.int64)
    keeper[list(out)] = list(out)
    for row in np.asarray(order).tolist():
        if keeper[row] >= 0:
            continue
        keeper[row] = row
        for other in neighbours.of(row):
            if keeper[other] < 0:
                keeper[other] = row
    return keeper


def _rows(columns: pa.Table, ids: list[str], neighbours: Neighbours, keeper: NDArray[np.int64],
          out: Mapping[str, Mapping[str, Any]]) -> pa.Table:
    captions = columns.column("captions").to_pylist()
    origins = columns.column("caption_origins").to_pylist()
    pools: list[dict[str, str]] = [dict(zip(c or [], o or [], strict=True)) for c, o in
                                   zip(captions, origins, strict=True)]
    made: list[dict[str, Any]] = []
    for row, kept in enumerate(keeper.tolist()):
        relation, distance = (None, None) if kept == row else neighbours.between(row, kept)
        made.append({"id": ids[row], "duplicate_of": None if kept == row else ids[kept], "relation": relation,
                     "distance": distance, "group": neighbours.group[row]})
        if ids[row] in out:
            twin = out[ids[row]]
            made[-1] |= {"duplicate_of": twin["copy_of"], "relation": against.RELATION, "distance": twin["distance"]}
        if kept != row:
            for text, origin in zip(captions[row] or [], origins[row] or [], strict=True):
                pools[kept].setdefault(text, origin)
    for entry, pool in zip(made, pools, strict=True):
        entry |= {"pooled_captions": list(pool), "pooled_origins": list(pool.values())}
    return pa.Table.from_pylist(made, schema=DEDUPE.arrow)
