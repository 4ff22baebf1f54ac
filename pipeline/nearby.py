"""All pairs of 64-bit hashes within a Hamming distance, found completely and without comparing all with all.

Cut the 64 bits into k bands. Two hashes that differ in at most D bits differ in at most ⌊D/k⌋ bits in some band
(pigeonhole), so looking, band by band, for values within radius ⌊D/k⌋ misses nothing (multi-index hashing: Norouzi,
Punjani and Fleet, CVPR 2012). Here k = 3 bands of 21, 21 and 22 bits: complete for every D, with radius 2 for D = 8.
Sets of at most `DENSE` distinct hashes are compared all with all, which is quicker then.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Pairs = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]

BANDS = ((0, 21), (21, 21), (42, 22))
"""First bit and width of each band."""
DENSE = 4_096
MOST = 11
"""Largest distance searched by bands (radius 3); beyond it everything is compared with everything."""

_BLOCK = 2048
_PAIRS_AT_ONCE = 1 << 22


def near_pairs(hashes: NDArray[np.uint64], max_distance: int) -> Pairs:
    """Every pair (a < b) with its distance ≤ max_distance, sorted by a, then b.

    `hashes` uint64 (n,); returns indices a, b int64 (pairs,) and distances uint8 (pairs,). Equal hashes are pairs at
    distance 0, so n equal hashes give n·(n − 1)/2 of them.
    """
    values, inverse, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    order = np.argsort(inverse, kind="stable")
    starts = np.concatenate([[0], np.cumsum(counts)])
    found = _dense(values, max_distance) if len(values) <= DENSE or max_distance > MOST else _banded(
        values, max_distance)
    parts = [_spread(*found, order, starts, counts), _equal(order, starts, counts)]
    a, b, distance = (np.concatenate([part[i] for part in parts]) for i in range(3))
    low, high = np.minimum(a, b), np.maximum(a, b)
    sequence = np.lexsort((high, low))
    return low[sequence], high[sequence], distance[sequence].astype(np.uint8)


def _dense(values: NDArray[np.uint64], max_distance: int) -> Pairs:
    """All with all, a block of rows at a time."""
    parts: list[Pairs] = []
    for start in range(0, len(values), _BLOCK):
        distance = np.bitwise_count(values[start:start + _BLOCK, None] ^ values[None, start:])
        a, b = np.nonzero(distance <= max_distance)
        later = b > a
        a, b = a[later], b[later]
        parts.append((a + start, b + start, distance[a, b]))
    return _joined(parts)


def _banded(values: NDArray[np.uint64], max_distance: int) -> Pairs:
    """Each pair once: in the first band where it is within the radius. In machine code where numba is installed."""
    try:
        from pipeline.kernels.bands import search
    except ImportError:
        return _banded_plainly(values, max_distance)
    radius = max_distance // len(BANDS)
    masks = np.array([((1 << width) - 1) << start for start, width in BANDS], np.uint64)

    def searched(number: int) -> Pairs:
        start, width = BANDS[number]
        keys = _keys(values, (start, width))
        order = np.argsort(keys, kind="stable")
        first = np.searchsorted(keys[order], np.arange((1 << width) + 1))
        flips = np.array([sum(1 << bit for bit in bits) for count in range(radius + 1)
                          for bits in combinations(range(width), count)], np.int64)
        return search(values[order], order, first, flips, masks[:number], radius, max_distance)

    with ThreadPoolExecutor(min(len(BANDS), os.cpu_count() or 1)) as threads:
        return _joined(list(threads.map(searched, range(len(BANDS)))))


def _banded_plainly(values: NDArray[np.uint64], max_distance: int) -> Pairs:
    """The same in numpy: three times as long for a million, and for ten million no way at all."""
    radius = max_distance // len(BANDS)
    parts: list[Pairs] = []
    for number, band in enumerate(BANDS):
        for a, b in _candidates(_keys(values, band), band[1], radius):
            differing = values[a] ^ values[b]
            distance = np.bitwise_count(differing)
            new = distance <= max_distance
            for earlier in BANDS[:number]:
                new &= np.bitwise_count(_keys(differing, earlier)) > radius
            parts.append((a[new], b[new], distance[new]))
    return _joined(parts)


def _keys(values: NDArray[np.uint64], band: tuple[int, int]) -> NDArray[np.int64]:
    start, width = band
    return ((values >> np.uint64(start)) & np.uint64((1 << width) - 1)).astype(np.int64)


def _candidates(keys: NDArray[np.int64], width: int, radius: int) -> Iterator[tuple[NDArray[np.int64],
                                                                                    NDArray[np.int64]]]:
    """Pairs of places whose keys differ in at most `radius` bits, each once."""
    order = np.argsort(keys, kind="stable")
    ranked = keys[order]
    first = np.searchsorted(ranked, np.arange((1 << width) + 1)).astype(np.int32)
    places = np.arange(len(keys), dtype=np.int64)
    same_end = first[ranked + 1]
    yield from _expanded(order, places, places + 1, same_end)
    for flips in range(1, radius + 1):
        for bits in combinations(range(width), flips):
            # of the two sides of a pair, look from the one whose highest flipped bit is 0: each pair comes once
            asking = places[(ranked >> bits[-1]) & 1 == 0]
            sought = ranked[asking] ^ sum(1 << bit for bit in bits)
            begin, end = first[sought], first[sought + 1]
            hit = begin < end
            yield from _expanded(order, asking[hit], begin[hit], end[hit])


def _expanded(order: NDArray[np.int64], asking: NDArray[np.int64], begin: NDArray[np.integer],
              end: NDArray[np.integer]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Each asking place with every place in begin..end, in slices that fit in memory."""
    counts = np.maximum(end - begin, 0).astype(np.int64)
    total = np.concatenate([[0], np.cumsum(counts)])
    start = 0
    while start < len(asking):
        stop = max(start + 1, int(np.searchsorted(total, total[start] + _PAIRS_AT_ONCE, side="right")) - 1)
        some = counts[start:stop]
        if some.any():
            offset = np.arange(int(some.sum())) - np.repeat(total[start:stop] - total[start], some)
            a, b = np.repeat(asking[start:stop], some), np.repeat(begin[start:stop], some) + offset
            yield order[a], order[b]
        start = stop


def _spread(a: NDArray[np.int64], b: NDArray[np.int64], distance: NDArray[np.uint8], order: NDArray[np.int64],
            starts: NDArray[np.int64], counts: NDArray[np.int64]) -> Pairs:
    """Pairs of distinct values → pairs of all rows that hold them."""
    each = counts[a] * counts[b]
    within = np.arange(int(each.sum())) - np.repeat(np.cumsum(each) - each, each)
    across = np.repeat(counts[b], each)
    left = order[np.repeat(starts[a], each) + within // across]
    right = order[np.repeat(starts[b], each) + within % across]
    return left, right, np.repeat(distance, each)


def _equal(order: NDArray[np.int64], starts: NDArray[np.int64], counts: NDArray[np.int64]) -> Pairs:
    """All pairs of rows with the same value."""
    parts: list[Pairs] = []
    for value in np.flatnonzero(counts > 1).tolist():
        rows = order[starts[value]:starts[value + 1]]
        upper, lower = np.triu_indices(len(rows), 1)
        parts.append((rows[upper], rows[lower], np.zeros(len(upper), np.uint8)))
    return _joined(parts)


def _joined(parts: list[Pairs]) -> Pairs:
    empty = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint8))
    a, b, distance = (np.concatenate([part[i] for part in [empty, *parts]]) for i in range(3))
    return a, b, distance
