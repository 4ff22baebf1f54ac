"""Verified pairs of copies, and the graph they make.

Equality (of address, bytes, pixels) is transitive, so each class of equal rows is a star around its smallest id.
Perceptual likeness is not, nor is that of mirror images: there, pairs between distinct pictures are listed one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.nearby import Pairs, near_pairs
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
MIRRORED = "mirrored"
_LIKE = ("perceptual", MIRRORED)


def copies(columns: pa.Table, settings: DedupeSettings) -> pa.Table:
    """All edges among the rows, sorted: `schema.EDGES`. Rows that could not be decoded have none but addresses."""
    rank = ranks(columns.column("id"))
    ok = np.asarray(pc.fill_null(pc.equal(columns.column("decode_outcome"), "ok"), False))
    kind, url = (pc.fill_null(columns.column(name), "") for name in ("kind", "url"))
    address = pc.binary_join_element_wise(kind, url, "\0")
    found = [_stars(address, np.arange(columns.num_rows), rank)[1]]
    for name in ("sha256", "pixel_digest"):
        usable = np.flatnonzero(ok & np.asarray(pc.is_valid(columns.column(name))))
        heads, star = _stars(columns.column(name), usable, rank)
        found.append(star)
    distances = [np.zeros(len(star), np.int64) for star in found]
    if settings.perceptual:  # between distinct pictures: one row of each
        for likes in _likes(columns, np.sort(heads), settings):
            swapped = rank[likes[:, 0]] > rank[likes[:, 1]]
            likes[swapped, :2] = likes[swapped, 1::-1]
            found.append(likes[:, :2])
            distances.append(likes[:, 2])
    edges, distance = np.concatenate(found), np.concatenate(distances)
    relation = np.repeat(np.arange(len(found)), [len(each) for each in found])
    # what is equal in several ways is listed once, by the plainest: np.unique gives the first of equal keys
    _, first = np.unique(edges[:, 0] * columns.num_rows + edges[:, 1], return_index=True)
    first = first[np.lexsort((rank[edges[first, 1]], rank[edges[first, 0]]))]
    ids = columns.column("id").combine_chunks()
    names = pa.array([*EXACT, *_LIKE]).take(pa.array(relation[first]))
    a, b = (ids.take(pa.array(edges[first, side])) for side in (0, 1))
    return pa.table([a, b, names, pa.array(distance[first], pa.int32())], schema=EDGES.arrow)


def ranks(ids: pa.ChunkedArray) -> NDArray[np.int64]:
    """Place of each id in the order of ids."""
    order = np.asarray(pc.array_sort_indices(ids.combine_chunks()), np.int64)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank


def _stars(values: pa.ChunkedArray, rows: NDArray[np.int64], rank: NDArray[np.int64],
           ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Among `rows`: the one of smallest id of each value, and (that row, other row) for all others."""
    codes = np.asarray(values.combine_chunks().take(pa.array(rows)).dictionary_encode().indices, np.int64)
    order = np.lexsort((rank[rows], codes))
    new = np.concatenate([[True], codes[order][1:] != codes[order][:-1]])[:len(order)]
    heads = rows[order[new]]
    head_of = heads[np.cumsum(new) - 1]
    others = ~new
    return heads, np.stack([head_of[others], rows[order][others]], axis=1)


def _likes(columns: pa.Table, rows: NDArray[np.int64], settings: DedupeSettings) -> Iterator[NDArray[np.int64]]:
    """(row, row, distance) of all pairs within the limits, of each of `_LIKE`; `pipeline.nearby` misses none.

    Mirror images are near to one another in the hash of the one and the mirrored hash of the other. The two ways to say
    so may differ by a bit or two, and the nearer one counts, which is listed first.
    """
    hashes, thumbs = (columns.column(name).combine_chunks().take(pa.array(rows)) for name in ("phash", "thumb"))
    planes = _thumbs(thumbs)
    contrast = np.concatenate([np.empty(0, np.float32), *(
        _contrast(planes[start:start + _PAIRS_AT_ONCE]) for start in range(0, len(planes), _PAIRS_AT_ONCE))])
    telling = np.flatnonzero(contrast >= FLAT)
    rows, planes, values = rows[telling], planes[telling], np.asarray(hashes, np.uint64)[telling]
    allowed = np.minimum(settings.max_difference, np.maximum(_LEAST_DIFFERENCE, RELATIVE * contrast[telling]))
    if settings.mirrored:
        mirrored = columns.column("phash_mirrored").combine_chunks().take(pa.array(rows))
        values = np.concatenate([values, np.asarray(mirrored, np.uint64)])
    count = len(rows)
    a, b, distance = near_pairs(values, settings.max_distance)
    as_they_are = b < count
    yield _verified(rows, (planes, planes), allowed, (a[as_they_are], b[as_they_are], distance[as_they_are]))
    if settings.mirrored:
        turned = (a < count) & ~as_they_are & (b - count != a)
        by_distance = np.flatnonzero(turned)[np.argsort(distance[turned], kind="stable")]
        yield _verified(rows, (planes, _mirror_images(planes)), allowed,
                        (a[by_distance], b[by_distance] - count, distance[by_distance]))


def _verified(rows: NDArray[np.int64], planes: tuple[NDArray[np.uint8], NDArray[np.uint8]],
              allowed: NDArray[np.float32], pairs: Pairs) -> NDArray[np.int64]:
    """(row, row, distance) of the pairs whose thumbnails, `planes` of each side, agree as far as is `allowed`."""
    found = [np.empty((0, 3), np.int64)]
    for start in range(0, len(pairs[0]), _PAIRS_AT_ONCE):
        a, b, distance = (each[start:start + _PAIRS_AT_ONCE] for each in pairs)
        apart = np.abs(planes[0][a].astype(np.int16) - planes[1][b]).max(1, initial=0)
        same = apart <= np.minimum(allowed[a], allowed[b])
        found.append(np.stack([rows[a[same]], rows[b[same]], distance[same].astype(np.int64)], axis=1))
    return np.concatenate(found)


def _mirror_images(thumbs: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The thumbnails (n, 384) of the pictures mirrored left to right."""
    luma, chroma = thumbs[:, :256].reshape(-1, 16, 16), thumbs[:, 256:].reshape(-1, 2, 8, 8)
    return np.concatenate([luma[..., ::-1].reshape(-1, 256), chroma[..., ::-1].reshape(-1, 128)], axis=1)


def _thumbs(thumbs: pa.Array) -> NDArray[np.uint8]:
    """Thumbnails as `measure` stores them, (n, 384): 16 × 16 luma, 8 × 8 Cb, 8 × 8 Cr."""
    return np.frombuffer(b"".join(thumbs.to_pylist()), np.uint8).reshape(len(thumbs), THUMB_BYTES)


def _contrast(thumbs: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Standard deviation of the plane that has most."""
    planes = thumbs.astype(np.float32)
    stds = [planes[:, start:end].std(1) for start, end in ((0, 256), (256, 320), (320, 384))]
    most: NDArray[np.float32] = np.max(stds, axis=0)
    return most


class Neighbours:
    """Who is a copy of whom. `group` is, per row, the smallest id of its connected
    component."""

    def __init__(self, ids: pa.ChunkedArray, edges: pa.Table) -> None:
        whole = ids.combine_chunks()
        ends = [np.asarray(pc.index_in(edges.column(side), value_set=whole), np.int64) for side in ("a", "b")]
        self._direct: dict[int, dict[int, tuple[str, int]]] = {}
        self._heads: dict[str, dict[int, int]] = {name: {} for name in EXACT}
        self._classes: dict[str, dict[int, list[int]]] = {name: {} for name in EXACT}
        relations, distances = (edges.column(name).to_pylist() for name in ("relation", "distance"))
        for a, b, relation, distance in zip(ends[0].tolist(), ends[1].tolist(), relations, distances, strict=True):
            if relation in EXACT:
                self._classes[relation].setdefault(a, [a]).append(b)
                self._heads[relation][a] = self._heads[relation][b] = a
            self._direct.setdefault(a, {})[b] = self._direct.setdefault(b, {})[a] = (relation, distance)
        self.tied = np.unique(np.concatenate(ends))
        """Rows that have a copy."""
        self.group = self._groups(whole, *ends)

    def _groups(self, ids: pa.Array, a: NDArray[np.int64], b: NDArray[np.int64]) -> pa.Array:
        count, rank = len(ids), ranks(pa.chunked_array([ids]))
        from scipy.sparse import coo_matrix  # a fifth of a second that other commands need not wait for
        from scipy.sparse.csgraph import connected_components

        _, labels = connected_components(coo_matrix((np.ones(len(a)), (a, b)), shape=(count, count)), directed=False)
        order = np.lexsort((rank, labels))
        new = np.concatenate([[True], labels[order][1:] != labels[order][:-1]])[:count]
        smallest = np.empty(count, np.int64)
        smallest[order] = order[new][np.cumsum(new) - 1]
        return ids.take(pa.array(smallest))

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
