"""Which rows the report shows, and reading just those: the same rows on every machine and every run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.manifest import Manifests, View
from pipeline.schema import STILL_IN

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Ranks = NDArray[np.uint64]


def ranks(ids: pa.ChunkedArray, seed: int) -> Ranks:
    """A number per id, (n,), that orders rows at random but always alike.

    Ids are hashes already, so their first 16 hex characters, mixed with the seed by splitmix64 (Steele et al.
    2014), are as good as a new hash and a hundred times as quick. An id that is no hash is hashed.
    """
    salt = np.frombuffer(hashlib.blake2b(f"report:{seed}".encode(), digest_size=8).digest(), "<u8")
    mixed: Ranks = _leading_bits(ids.to_pylist()) ^ salt
    with np.errstate(over="ignore"):
        mixed = mixed + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    finished: Ranks = mixed ^ (mixed >> np.uint64(31))
    return finished


def _leading_bits(ids: Sequence[str]) -> Ranks:
    try:
        return np.fromiter((int(text[:16], 16) for text in ids), np.uint64, len(ids))
    except ValueError:
        digests = (hashlib.blake2b(text.encode(), digest_size=8).digest() for text in ids)
        return np.fromiter((int.from_bytes(digest, "little") for digest in digests), np.uint64, len(ids))


def pick(mask: Bools, order: Ranks, count: int) -> Indices:
    """Up to `count` row numbers for which `mask` (n,) holds, lowest rank first."""
    found = np.flatnonzero(mask)
    if count <= 0 or not len(found):
        return found[:0].astype(np.int64)
    few = found if len(found) <= count else found[np.argpartition(order[found], count - 1)[:count]]
    return few[np.argsort(order[few], kind="stable")].astype(np.int64)


def nearest(mask: Bools, distance: NDArray[np.float64], order: Ranks, count: int) -> Indices:
    """Up to `count` row numbers for which `mask` holds, least `distance` first, equal ones by rank."""
    found = np.flatnonzero(mask & np.isfinite(distance))
    chosen = found[np.lexsort((order[found], distance[found]))[:count]]
    return chosen.astype(np.int64)


class RunRows:
    """A run's joined rows: whole columns where the page counts, whole rows only for the few it shows."""

    def __init__(self, manifests: Manifests) -> None:
        self.manifests = manifests
        self.view: View = manifests.joined()
        self.count = manifests.need("ingest").rows

    def has(self, *names: str) -> bool:
        return all(name in self.view.columns for name in names)

    def columns(self, names: Iterable[str]) -> pa.Table:
        """Those of `names` that exist, all rows."""
        return self.view.arrow([name for name in dict.fromkeys(names) if self.has(name)])

    def found(self, names: Iterable[str]) -> pa.Table | None:
        """What the checks found in other columns, all rows, as `filter` left it; None before it has run."""
        receipt = self.manifests.receipt("filter")
        parts = [] if receipt is None else receipt.tables.get("found", [])
        if sum(part.rows for part in parts) != self.count or not parts:
            return None
        table = self.manifests.stage("filter", "found").arrow()
        return table.select(list(names)) if set(names) <= set(table.column_names) else None

    @cached_property
    def decoded(self) -> Bools:
        """Rows that are pictures, (n,): all of them before `measure` has run."""
        if not self.has("decode_outcome"):
            return np.ones(self.count, bool)
        outcome = self.view.arrow(["decode_outcome"]).column("decode_outcome")
        return np.asarray(pc.is_in(outcome, value_set=pa.array(STILL_IN)))

    @cached_property
    def copies(self) -> Bools:
        """Rows for which another one is kept, (n,): none before `dedupe` has run."""
        if not self.has("duplicate_of"):
            return np.zeros(self.count, bool)
        return np.asarray(pc.is_valid(self.view.arrow(["duplicate_of"]).column("duplicate_of")))

    def rows(self, indices: Iterable[int], names: Sequence[str]) -> dict[int, dict[str, Any]]:
        """Row number → its `names` (missing columns are None). Reads only the parts in which the rows lie."""
        wanted = np.unique(np.fromiter(indices, np.int64))
        present = [name for name in names if self.has(name)]
        blank = dict.fromkeys(names)
        found: dict[int, dict[str, Any]] = {}
        start = 0
        for number, part in enumerate(self.manifests.need("ingest").tables[""]):
            here = wanted[(wanted >= start) & (wanted < start + part.rows)]
            if len(here):
                table = self.view.part(number, present).take(pa.array(here - start))
                found.update(zip(here.tolist(), ({**blank, **row} for row in table.to_pylist()), strict=True))
            start += part.rows
        return found
