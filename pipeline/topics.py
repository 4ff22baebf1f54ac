"""Classes without labels: k-means clusters of the CLIP embeddings, each named by the nearest word of a list.

A cluster's centre and a word are compared by what sets them apart from the mean of all centres and of all words, since
in CLIP's space pictures and texts lie in two places (Liang et al. 2022, arXiv:2203.02053). Each word names one cluster,
the pairs with the largest cosine first; when the words run out, a cluster takes its nearest and a number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.clusters import Halves, Rows, nearest

Floats = NDArray[np.float32]

PROMPT = "a picture of {}"
_BLOCK = 1 << 14
_MOST = 200


def count_for(rows: int, asked: int) -> int:
    """Clusters for so many rows: as asked, else the square root of their number, at most 200."""
    return max(1, min(rows, asked or min(_MOST, round(rows**0.5))))


def clustered(vectors_nd: Halves, rows: Rows, count: int, seed: int) -> tuple[NDArray[np.int32], Floats]:
    """The cluster of each of `rows`, and the unit centres (count, width) of those with any; others are NaN."""
    numbers = nearest(vectors_nd, rows, count, seed)[0][:, 0]
    sums = np.zeros((count, vectors_nd.shape[1]))
    for start in range(0, len(rows), _BLOCK):
        block = slice(start, start + _BLOCK)
        np.add.at(sums, numbers[block], vectors_nd[rows[block]].astype(np.float32))
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return numbers, (sums / lengths).astype(np.float32)


def named(centres_kd: Floats, words: Sequence[str], words_wd: Floats) -> list[str]:
    """A name for each centre, all different. `words_wd` are the words' unit vectors."""
    there = ~np.isnan(centres_kd[:, 0])
    cosine = _apart(centres_kd, there) @ _apart(words_wd, np.ones(len(words), bool)).T
    names: list[str | None] = [None if each else "" for each in there]
    taken: set[int] = set()
    for place in np.argsort(-np.nan_to_num(cosine, nan=-np.inf), axis=None, kind="stable").tolist():
        centre, word = divmod(place, len(words))
        if names[centre] is None and word not in taken:
            names[centre] = words[word]
            taken.add(word)
    used = dict.fromkeys(words, 1)
    for centre, name in enumerate(names):
        if name is None:
            word = words[int(cosine[centre].argmax())]
            used[word] += 1
            names[centre] = f"{word} {used[word]}"
    return [name or "" for name in names]


def _apart(vectors: Floats, there: NDArray[np.bool_]) -> Floats:
    """Each less the mean of those that are there, at unit length."""
    moved = vectors - vectors[there].mean(0) if there.sum() > 1 else vectors
    return np.asarray(moved / np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-12), np.float32)
