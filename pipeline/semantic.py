"""Semantic duplicates: pictures that say the same to the CLIP model (SemDeDup, Abbas et al. 2023, arXiv:2303.09540).

Rows are visited from best to worst. A row is dropped when a better row that stays lies within `max_similarity` of
it, in favour of the best such row. So every dropped row is that near to the very row kept in its place: no chains.
Only rows of one cluster are compared: a pair on two sides of a border is missed unless `probes` looks across it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from pipeline.clusters import Halves, Rows, unit

Near = NDArray[np.bool_]

_FIRST, _LARGEST = 256, 1 << 16
_TILE = 4096
_ROUNDING = 2e-6
"""Sums in fp32 err by less than this; cosines nearer than this to the limit are not called duplicates."""


def elect(vectors_nd: Halves, order: Rows, clusters_np: NDArray[np.int32], max_similarity: float) -> Rows:
    """Per row of `order` (row numbers, best first) the row kept in its place, itself when it stays.

    `clusters_np` (len(order), probes) holds the nearest clusters of each, its own first: a row is compared with the
    better rows that lie in these.
    """
    keeper = np.arange(len(order))  # places in `order` from here on: a smaller one is a better row
    kept: dict[int, Rows] = {}
    start, size = 0, _FIRST
    while start < len(order):  # few rows first: what they keep settles most copies before large blocks come
        block = np.arange(start, min(start + size, len(order)))
        for own, known, near in _compared(vectors_nd, order, clusters_np, block, kept, max_similarity):
            hit = near.any(1)
            keeper[own[hit]] = np.minimum(keeper[own[hit]], known[near[hit].argmax(1)])
        _settle(vectors_nd, order, clusters_np, block[keeper[block] == block], keeper, max_similarity)
        for cluster, places in _grouped(clusters_np, block[keeper[block] == block]).items():
            kept[cluster] = np.concatenate([kept.get(cluster, places[:0]), places])
        start, size = start + size, min(2 * size, _LARGEST)
    return order[keeper]


def _settle(vectors_nd: Halves, order: Rows, clusters_np: NDArray[np.int32], open_: Rows, keeper: Rows,
            max_similarity: float) -> None:
    """Elect among rows that lie near none kept before: each goes to the best row near it that stays."""
    better: dict[int, list[int]] = {}
    members = _grouped(clusters_np, open_)
    for own, known, near in _compared(vectors_nd, order, clusters_np, open_, members, max_similarity):
        for row, other in zip(*(side.tolist() for side in np.nonzero(near & (known < own[:, None]))), strict=True):
            better.setdefault(int(own[row]), []).append(int(known[other]))
    for row in sorted(better):
        staying = [other for other in better[row] if keeper[other] == other]
        keeper[row] = min(staying, default=row)


def _compared(vectors_nd: Halves, order: Rows, clusters_np: NDArray[np.int32], asking: Rows,
              members: Mapping[int, Rows], max_similarity: float) -> Iterator[tuple[Rows, Rows, Near]]:
    """Tiles of (asking places, members' places, whether they are near): all whom the asking ones look at."""
    for probe in range(clusters_np.shape[1]):
        for cluster, askers in _grouped(clusters_np, asking, probe).items():
            known = members.get(cluster, askers[:0])
            for a in range(0, len(askers) if len(known) else 0, _TILE):
                own = askers[a:a + _TILE]
                vectors = unit(vectors_nd, order[own])
                for b in range(0, len(known), _TILE):
                    theirs = known[b:b + _TILE]
                    cosine = vectors @ unit(vectors_nd, order[theirs]).T
                    yield own, theirs, (cosine >= max_similarity + _ROUNDING).numpy()


def _grouped(clusters_np: NDArray[np.int32], places: Rows, probe: int = 0) -> dict[int, Rows]:
    """Places by the cluster that is their nearest, second nearest, …; ascending within each."""
    clusters = clusters_np[places, probe]
    by_cluster = places[np.argsort(clusters, kind="stable")]
    names, starts = np.unique(np.sort(clusters), return_index=True)
    return dict(zip(names.tolist(), np.split(by_cluster, starts[1:]), strict=False))


def cosines(vectors_nd: Halves, a: Rows, b: Rows) -> NDArray[np.float64]:
    """Cosine of each pair of rows, in float64."""
    out = np.empty(len(a))
    for start in range(0, len(a), _TILE):
        x, y = (vectors_nd[rows[start:start + _TILE]].astype(np.float64) for rows in (a, b))
        out[start:start + _TILE] = (x * y).sum(1) / np.sqrt((x * x).sum(1) * (y * y).sum(1))
    return out


def evenly(to_centre: NDArray[np.float32], most: int) -> Rows:
    """Which `most` of a cluster's rows stay: at even steps from its core to its fringe."""
    ordered = np.argsort(-to_centre, kind="stable")
    return np.sort(ordered[(np.arange(most) * len(ordered)) // most])
