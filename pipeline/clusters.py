"""Spherical k-means over stored embeddings: the same rows, number of clusters and seed give the same clusters.

Centroids are learnt on a sample (64 rows per cluster), then every row is given its nearest ones. Vectors stay fp16
and become fp32 block by block, so a million rows of 512 values need 1 GB and little more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Halves = NDArray[np.float16]
Rows = NDArray[np.int64]

_PER_CLUSTER = 64
_ROUNDS = 10
_BLOCK = 1 << 14
_WHOLE = 10_000
_MOST_APART = 2048


def halves(column: pa.ChunkedArray) -> tuple[Halves, NDArray[np.bool_]]:
    """The `embedding` column as fp16 (n, width) and which rows have one; a single chunk is not copied."""
    bytes_each = column.type.byte_width
    pieces = [_bytes_of(chunk, bytes_each) for chunk in column.chunks if len(chunk)]
    if not pieces:
        return np.zeros((0, bytes_each // 2), np.float16), np.zeros(0, bool)
    joined = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    return joined.view("<f2"), np.asarray(column.is_valid().to_numpy(), bool)


def _bytes_of(chunk: pa.Array, bytes_each: int) -> NDArray[np.uint8]:
    data = chunk.buffers()[1]
    if data is None:
        return np.zeros((len(chunk), bytes_each), np.uint8)
    flat = np.frombuffer(data, np.uint8, len(chunk) * bytes_each, chunk.offset * bytes_each)
    return flat.reshape(len(chunk), bytes_each)


def unit(vectors_nd: Halves, rows: Rows) -> torch.Tensor:
    """These rows as fp32 of length 1 (fp16 rounds a unit vector's length by up to 1e-3)."""
    import torch

    return torch.nn.functional.normalize(torch.from_numpy(vectors_nd[rows]).float(), dim=1)


def count_for(rows: int, asked: int, *, whole: bool = True) -> int:
    """Clusters for so many rows: as asked, else 1 up to 10,000 rows (every pair is looked at; not where `whole` is
    false), then √rows, at which finding the clusters costs about as much as comparing within them."""
    if asked:
        return max(1, min(asked, rows))
    return 1 if whole and rows <= _WHOLE else max(1, round(rows**0.5))


def nearest(vectors_nd: Halves, rows: Rows, count: int, seed: int, probes: int = 1,
            ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The `probes` nearest of `count` clusters of each of `rows`, nearest first: numbers and cosines, (rows, probes).
    """
    import torch

    probes = min(probes, count)
    if not len(rows):
        return np.zeros((0, probes), np.int32), np.zeros((0, probes), np.float32)
    centres = _learn(vectors_nd, rows, count, seed)
    numbers = np.zeros((len(rows), probes), np.int32)
    cosines = np.zeros((len(rows), probes), np.float32)
    for start in range(0, len(rows), _BLOCK):
        found = torch.topk(unit(vectors_nd, rows[start:start + _BLOCK]) @ centres.T, probes, dim=1)
        numbers[start:start + _BLOCK] = found.indices.numpy()
        cosines[start:start + _BLOCK] = found.values.numpy()
    return numbers, cosines


def _learn(vectors_nd: Halves, rows: Rows, count: int, seed: int) -> torch.Tensor:
    """Unit centroids (count, width). A cluster that loses all its rows starts again at the worst placed row."""
    import torch
    from scipy.sparse import csr_matrix  # slow to import, and few commands need it

    rng = np.random.default_rng(seed)
    sample = rows[np.sort(rng.choice(len(rows), min(len(rows), _PER_CLUSTER * count), replace=False))]
    vectors = unit(vectors_nd, sample)
    centres = vectors[torch.from_numpy(_first(vectors, count, rng))]
    for _ in range(_ROUNDS if count > 1 else 1):
        best = [(vectors[start:start + _BLOCK] @ centres.T).max(1) for start in range(0, len(sample), _BLOCK)]
        label = np.concatenate([each.indices.numpy() for each in best])
        cosine = np.concatenate([each.values.numpy() for each in best])
        member = csr_matrix((np.ones(len(label), np.float32), (label, np.arange(len(label)))), (count, len(label)))
        sums = torch.from_numpy(np.asarray(member @ vectors.numpy(), np.float32))
        empty = np.flatnonzero(np.bincount(label, minlength=count) == 0)
        if len(empty):
            sums[torch.from_numpy(empty)] = vectors[torch.from_numpy(np.argsort(cosine, kind="stable")[:len(empty)])]
        centres = torch.nn.functional.normalize(sums, dim=1)
    return centres


def _first(vectors: torch.Tensor, count: int, rng: np.random.Generator) -> Rows:
    """Where the centroids begin: k-means++ (Arthur and Vassilvitskii, SODA 2007), each at a row drawn by its squared
    distance to those before; any rows where there are too many clusters for that to pay."""
    if count > _MOST_APART:
        return np.sort(rng.choice(len(vectors), count, replace=False))
    chosen = [int(rng.integers(len(vectors)))]
    apart = np.full(len(vectors), np.inf)
    for _ in range(count - 1):
        cosine = (vectors @ vectors[chosen[-1]]).numpy().astype(np.float64)
        apart = np.minimum(apart, np.maximum(1 - cosine, 0))  # half the squared distance of unit vectors
        apart[chosen] = 0
        total = np.cumsum(apart)
        free = total[-1] > 0
        chosen.append(int(np.searchsorted(total, rng.random() * total[-1], side="right")) if free
                      else int(rng.integers(len(vectors))))
    return np.array(chosen, np.int64)
