"""Verified pairs of copies, and the graph they make.

Equality (of address, bytes, pixels) is transitive, so each class of equal rows is a star around its smallest id.
Perceptual likeness is not: there, pairs between distinct pictures are listed one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from pipeline.nearby import near_pairs
from pipeline.schema import EDGES, THUMB_BYTES

if TYPE_CHECKING:
    from pipeline.dedupe import DedupeSettings

FLAT = 3.0
"""Standard deviation, grey levels, below which a thumbnail holds too little to tell pictures apart: every flat
picture has the same perceptual hash."""
RELATIVE = 0.5
"""Largest difference of two thumbnails' cells over the thumbnail's standard deviation. A thin line drawing is pale
when it is reduced to 16 × 16, so that any two of them agree within a few levels. On 124 clip arts and photographs,
re-encoded and rescaled, copies stay below this (99.6 % of those found without it), while it parts most of 794 pairs of
different star patterns drawn in hairlines."""
_LEAST_DIFFERENCE = 2.0
_PAIRS_AT_ONCE = 1 << 16
EXACT = ("address", "bytes", "pixels")


def copies(columns: pa.Table, settings: DedupeSettings) -> pa.Table:
    """All edges among the rows, sorted: `schema.EDGES`. Rows that could not be decoded have none but addresses."""
    ids = columns.column("id").to_pylist()
    ok = [outcome == "ok" for outcome in columns.column("decode_outcome").to_pylist()]
    address = list(zip(columns.column("kind").to_pylist(), columns.column("url").to_pylist(), strict=True))
    stars = [("address", address), ("bytes", columns.column("sha256").to_pylist()),
             ("pixels", columns.column("pixel_digest").to_pylist())]
    edges: dict[tuple[str, str], tuple[str, int]] = {}
    first: dict[Any, int] = {}
    for relation, values in stars:
        first = {}
        for row in sorted(range(len(ids)), key=lambda row: ids[row]):
            if relation != "address" and (not ok[row] or values[row] is None):
                continue
            head = first.setdefault(values[row], row)
            if head != row:
                edges.setdefault((ids[head], ids[row]), (relation, 0))
    if settings.perceptual:
        distinct = np.array(sorted(first.values()), np.int64)  # one row per distinct picture
        for a, b, distance in _perceptual(columns, distinct, settings):
            edges.setdefault((min(ids[a], ids[b]), max(ids[a], ids[b])), ("perceptual", distance))
    rows = [{"a": a, "b": b, "relation": r, "distance": d} for (a, b), (r, d) in sorted(edges.items())]
    return pa.Table.from_pylist(rows, schema=EDGES.arrow)


def _perceptual(columns: pa.Table, rows: NDArray[np.int64], settings: DedupeSettings) -> list[tuple[int, int, int]]:
    """(row, row, distance) of all pairs within the limits; `pipeline.nearby` misses none."""
    hashes = columns.column("phash").to_numpy()[rows].astype(np.uint64)
    thumbs = _thumbs([columns.column("thumb")[int(row)].as_py() for row in rows])
    contrast = np.array([max(t[:256].std(), t[256:320].std(), t[320:].std()) for t in thumbs], np.float32)
    telling = contrast >= FLAT
    rows, hashes, thumbs, contrast = rows[telling], hashes[telling], thumbs[telling], contrast[telling]
    allowed = np.minimum(settings.max_difference, np.maximum(_LEAST_DIFFERENCE, RELATIVE * contrast))
    near_a, near_b, distances = near_pairs(hashes, settings.max_distance)
    found: list[tuple[int, int, int]] = []
    for start in range(0, len(near_a), _PAIRS_AT_ONCE):
        some = slice(start, start + _PAIRS_AT_ONCE)
        a, b = near_a[some], near_b[some]
        same = np.abs(thumbs[a] - thumbs[b]).max(1, initial=0) <= np.minimum(allowed[a], allowed[b])
        found += zip(rows[a[same]].tolist(), rows[b[same]].tolist(), distances[some][same].tolist(), strict=True)
    return found


def _thumbs(thumbs: list[bytes]) -> NDArray[np.float32]:
    """Thumbnails as `measure` stores them, (n, 384): 16 × 16 luma, 8 × 8 Cb, 8 × 8 Cr."""
    return np.frombuffer(b"".join(thumbs), np.uint8).reshape(len(thumbs), THUMB_BYTES).astype(np.float32)


class Neighbours:
    """Who is a copy of whom. `group` is, per row, the smallest id of its connected component."""

    def __init__(self, ids: list[str], edges: pa.Table) -> None:
        place = {each: row for row, each in enumerate(ids)}
        self._ids = ids
        self._direct: dict[int, dict[int, tuple[str, int]]] = {}
        self._heads: dict[str, dict[int, int]] = {name: {} for name in EXACT}
        self._classes: dict[str, dict[int, list[int]]] = {name: {} for name in EXACT}
        ends = []
        for edge in edges.to_pylist():
            a, b, relation = place[edge["a"]], place[edge["b"]], edge["relation"]
            ends.append((a, b))
            if relation in EXACT:
                self._classes[relation].setdefault(a, [a]).append(b)
                self._heads[relation] |= {a: a, b: a}
            self._direct.setdefault(a, {})[b] = self._direct.setdefault(b, {})[a] = (relation, edge["distance"])
        self.group = self._components(ends)

    def _components(self, ends: list[tuple[int, int]]) -> list[str]:
        count = len(self._ids)
        a, b = (np.array(side, np.int64) for side in zip(*ends, strict=True)) if ends else (np.array([], int),) * 2
        _, labels = connected_components(coo_matrix((np.ones(len(a)), (a, b)), shape=(count, count)), directed=False)
        smallest: dict[int, str] = {}
        for label, each in zip(labels.tolist(), self._ids, strict=True):
            smallest[label] = min(each, smallest.get(label, each))
        return [smallest[label] for label in labels.tolist()]

    def _equal(self, row: int) -> set[int]:
        """All rows equal to `row` in address, bytes or pixels, itself included."""
        found, waiting = {row}, [row]
        while waiting:
            each = waiting.pop()
            for relation in EXACT:
                head = self._heads[relation].get(each)
                for other in self._classes[relation].get(head, []) if head is not None else []:
                    if other not in found:
                        found.add(other)
                        waiting.append(other)
        return found

    def of(self, row: int) -> set[int]:
        """All copies of `row`: equal rows, rows perceptually like one of these, and rows equal to those."""
        equal = self._equal(row)
        like = {other for each in equal for other in self._direct.get(each, {})} - equal
        return (equal | {more for other in like for more in self._equal(other)}) - {row}

    def between(self, row: int, kept: int) -> tuple[str, int]:
        """How two copies are related: (relation, Hamming distance)."""
        for relation in EXACT:
            head = self._heads[relation].get(row)
            if head is not None and head == self._heads[relation].get(kept):
                return relation, 0
        if kept in self._equal(row):
            return "pixels", 0
        mine, theirs = self._equal(row), self._equal(kept)
        return min((self._direct[a][b] for a in mine for b in theirs if b in self._direct.get(a, {})),
                   key=lambda edge: edge[1])
