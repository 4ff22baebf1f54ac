"""Decontamination: rows that are copies of pictures in other runs, such as an evaluation set.

The same edges as within a run (equal bytes, equal pixels, verified likeness) are looked for between this run's rows and
those of every run in `dedupe.against`. A picture on both sides is dropped here, whatever its quality: a model must not
be tested on what it was shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from pipeline.manifest import Manifests
from pipeline.pairs import EXACT, Neighbours, copies
from pipeline.schema import HELD_OUT

if TYPE_CHECKING:
    from pipeline.dedupe import DedupeSettings

RELATION = "held_out"


def contents(urls: Sequence[str]) -> dict[str, str]:
    """Manifests folder → content of its measures. Raises ManifestError where `measure` has not finished."""
    return {url: Manifests(url).need("measure").content for url in urls}


def held_out(columns: pa.Table, settings: DedupeSettings) -> pa.Table:
    """Rows of `columns` that are copies of pictures in `settings.against`: `schema.HELD_OUT`, by id.

    Each is listed with the one picture over there that is nearest to it.
    """
    foreign = pa.concat_tables([_foreign(url, columns.column_names) for url in settings.against])
    both = pa.concat_tables([columns, foreign.cast(columns.schema)])
    ids = both.column("id").to_pylist()
    neighbours = Neighbours(both.column("id"), copies(both, settings))
    nearest: dict[int, tuple[int, int, str]] = {}
    for other in range(columns.num_rows, both.num_rows):
        for row in neighbours.of(other):
            if row < columns.num_rows:
                relation, distance = neighbours.between(row, other)
                rank = EXACT.index(relation) if relation in EXACT else len(EXACT)
                nearest[row] = min(nearest.get(row, (99, 0, "")), (rank, distance, ids[other]))
    rows = [{"id": ids[row], "copy_of": copy, "distance": distance}
            for row, (_, distance, copy) in sorted(nearest.items(), key=lambda item: ids[item[0]])]
    return pa.Table.from_pylist(rows, schema=HELD_OUT.arrow)


def _foreign(url: str, names: Sequence[str]) -> pa.Table:
    """Another run's rows, under ids that no row here can have, and at no address: only pictures are compared."""
    manifests = Manifests(url)
    table = manifests.joined(names, stages=("ingest", "measure")).arrow(names)
    run = url.rstrip("/").rsplit("/", 1)[-1]
    ids = pa.array([f"{run}/{each}" for each in table.column("id").to_pylist()], pa.string())
    table = table.set_column(names.index("id"), "id", ids)
    return table.set_column(names.index("url"), "url", ids)
