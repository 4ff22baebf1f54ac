"""Which sample comes when: a pure function of the seed, the rows and the batch size.

Position is one integer, the global batch's number. Ranks and workers take slices of a global batch and never
change what is in it.

- **Class weights become repeat counts** by systematic rounding (Madow 1949): with C the running sum of
  weights and u one uniform number per epoch, row i comes ⌊C_i + u⌋ − ⌊C_(i−1) + u⌋ times. That is ⌊w⌋ or ⌈w⌉,
  its mean over u is w, and nothing is drawn with replacement. Sums are integers of 2⁻²⁰ and so are exact.
- **Shards are shuffled, then cut into blocks** of about `shuffle_block` rows. In a block each bucket's
  rows are one segment: how many samples it holds follows from the running sums at its ends, not from rows.
- **Within a segment** the samples are shuffled and a row's repeats lie spread apart.
- **Batches hold one bucket.** A bucket's segments form one endless stream, cut every `batch` samples; what is
  left at the end of a block or an epoch begins that bucket's next batch. Nothing is padded or thrown away.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from train import randomness

Ints = NDArray[np.int64]

UNIT = 1 << 20
"""Weights are whole multiples of 1 / UNIT."""

SMALLEST_BUCKET_BATCHES = 4


def fixed_point(weights: NDArray[np.floating], cap: float = math.inf) -> Ints:
    """Weights as whole multiples of 1 / UNIT, each at most `cap`."""
    units: Ints = np.rint(np.minimum(weights.astype(np.float64), cap) * UNIT).astype(np.int64)
    return units


def repeats(weights: Ints, start: int, offset: int) -> Ints:
    """⌊C_i + u⌋ − ⌊C_(i−1) + u⌋ for each row; C begins at `start`, u = `offset`, all in units of 1 / UNIT."""
    ends = np.cumsum(weights) + (start + offset)
    return np.diff(ends // UNIT, prepend=(start + offset) // UNIT)


def spread(counts: Ints, generator: np.random.Generator) -> Ints:
    """Shuffled indices in which index i comes counts[i] times, its repeats about evenly apart.

    Repeat j of r gets a random place in the j-th of r equal parts of the segment.
    """
    index = np.repeat(np.arange(len(counts)), counts)
    first = np.repeat(np.cumsum(counts) - counts, counts)
    turn = np.arange(len(index)) - first
    places = (turn + generator.random(len(index))) / counts[index]
    return index[np.argsort(places, kind="stable")]


def bucket_ratio(name: str) -> float:
    """Width over height of a bucket called `W:H`."""
    width, height = name.split(":")
    return float(width) / float(height)


def merged_buckets(samples: Mapping[str, float], batch: int) -> dict[str, str]:
    """Bucket → bucket it is trained in. Those below four batches an epoch join the nearest ratio.

    `samples` holds each bucket's expected samples per epoch. The smallest goes first; one always stays.
    """
    left = dict(samples)
    target = {name: name for name in samples}
    while len(left) > 1:
        small = min(left, key=lambda name: (left[name], name))
        if left[small] >= SMALLEST_BUCKET_BATCHES * batch:
            break
        amount = left.pop(small)
        ratio = math.log(bucket_ratio(small))
        near = min(left, key=lambda name: (abs(math.log(bucket_ratio(name)) - ratio), name))
        left[near] += amount
        target = {name: near if goal == small else goal for name, goal in target.items()}
    return target


@dataclass(frozen=True)
class PlannedBatch:
    """One global batch: `rows` (b,) indexes the plan's rows, `numbers` (b,) are global sample numbers."""

    index: int
    epoch: int
    bucket: int
    rows: Ints
    numbers: Ints

    def part(self, rank: int, ranks: int, turn: int = 0, turns: int = 1) -> PlannedBatch:
        """What one rank takes in one accumulation turn. `ranks × turns` must divide the batch."""
        size, rest = divmod(len(self.rows), ranks * turns)
        assert rest == 0, "the batch size is checked against ranks before any work"
        begin = (turn * ranks + rank) * size
        piece = slice(begin, begin + size)
        return PlannedBatch(self.index, self.epoch, self.bucket, self.rows[piece], self.numbers[piece])


@dataclass(frozen=True)
class _Epoch:
    """Running sums of one epoch. `marks` (blocks + 1, buckets): samples of each bucket before each block."""

    shards: list[Ints]
    sums: Ints
    marks: Ints
    batches: Ints
    offset: int


class Plan:
    """The endless order of global batches over `n` rows.

    `weights` (n,) are expected repeats per epoch, `buckets` (n,) and `shards` (n,) small whole numbers.
    Raises ValueError when no row has a weight.
    """

    def __init__(self, *, seed: int, batch: int, weights: NDArray[np.floating], buckets: Sequence[int] | Ints,
                 shards: Sequence[int] | Ints, shuffle_block: int = 16_384, cap: float = math.inf) -> None:
        self.seed, self.batch_size, self._block = seed, batch, shuffle_block
        self._weights = fixed_point(weights, cap)
        self._buckets = np.asarray(buckets, dtype=np.int64)
        if not len(self._weights) or self._weights.sum() <= 0:
            raise ValueError("no row has a weight above 0")
        shard = np.asarray(shards, dtype=np.int64)
        count, self._kinds = int(shard.max()) + 1, int(self._buckets.max()) + 1
        order = np.argsort(shard, kind="stable")
        self._rows_of = np.split(order, np.searchsorted(shard[order], np.arange(1, count)))
        self._sizes = np.bincount(shard, minlength=count)
        self._sums = np.zeros((count, self._kinds), np.int64)
        np.add.at(self._sums, (shard, self._buckets), self._weights)
        self._totals = self._sums.sum(axis=0)
        self._starts: list[Ints] = [np.zeros(self._kinds, np.int64)]
        self._first_batch = [0]
        self._epoch = lru_cache(maxsize=4)(self._make_epoch)
        self._segment = lru_cache(maxsize=4 * self._kinds + 4)(self._make_segment)

    @property
    def samples_per_epoch(self) -> float:
        """Expected samples of one epoch: the sum of the (capped) weights."""
        return float(self._totals.sum()) / UNIT

    def epoch_of(self, index: int) -> int:
        """The epoch in which global batch `index` is completed."""
        while self._first_batch[-1] <= index:
            ends = self._starts[-1] + (self._totals + self._offset(len(self._starts) - 1)) // UNIT
            self._starts.append(ends)
            self._first_batch.append(int((ends // self.batch_size).sum()))
        return bisect_right(self._first_batch, index) - 1

    def batch(self, index: int) -> PlannedBatch:
        """Global batch `index`, from 0."""
        epoch = self.epoch_of(index)
        table = self._epoch(epoch)
        within = index - self._first_batch[epoch]
        block = bisect_right(table.batches.tolist(), within) - 1
        bucket, turn = self._turns(epoch, block)[within - int(table.batches[block])]
        begin = turn * self.batch_size
        rows = self._stream(epoch, block, bucket, begin, begin + self.batch_size)
        numbers = np.arange(index * self.batch_size, (index + 1) * self.batch_size, dtype=np.int64)
        return PlannedBatch(index, epoch, bucket, rows, numbers)

    def _offset(self, epoch: int) -> int:
        return randomness.key(self.seed, "rounding", epoch) % UNIT

    def _make_epoch(self, epoch: int) -> _Epoch:
        order = randomness.generator(self.seed, "shards", epoch).permutation(len(self._sizes))
        block_of = np.cumsum(self._sizes[order]) - self._sizes[order]
        cuts = np.flatnonzero(np.diff(block_of // self._block)) + 1
        shards = np.split(order, cuts)
        sums = np.zeros((len(shards) + 1, self._kinds), np.int64)
        sums[1:] = np.cumsum([self._sums[block].sum(axis=0) for block in shards], axis=0)
        offset = self._offset(epoch)
        marks = self._starts[epoch] + (sums + offset) // UNIT
        batches = (marks // self.batch_size).sum(axis=1)
        return _Epoch(shards, sums, marks, batches - batches[0], offset)

    def _turns(self, epoch: int, block: int) -> list[tuple[int, int]]:
        """(bucket, number in the bucket's stream) of each batch completed in a block, in order."""
        first, last = self._epoch(epoch).marks[block:block + 2] // self.batch_size
        labels = np.repeat(np.arange(self._kinds), last - first)
        randomness.generator(self.seed, "batches", epoch, block).shuffle(labels)
        upcoming = first.copy()
        turns = []
        for bucket in labels.tolist():
            turns.append((bucket, int(upcoming[bucket])))
            upcoming[bucket] += 1
        return turns

    def _stream(self, epoch: int, block: int, bucket: int, begin: int, end: int) -> Ints:
        """Rows [begin, end) of a bucket's stream; `end` lies in the given block, `begin` maybe far before."""
        pieces: list[Ints] = []
        while True:
            start = int(self._epoch(epoch).marks[block, bucket])
            segment = self._segment(epoch, block, bucket)
            pieces.append(segment[max(begin - start, 0):max(end - start, 0)])
            if begin >= start:
                return np.concatenate(pieces[::-1])
            end = min(end, start)
            block -= 1
            if block < 0:
                epoch -= 1
                block = len(self._epoch(epoch).shards) - 1

    def _make_segment(self, epoch: int, block: int, bucket: int) -> Ints:
        table = self._epoch(epoch)
        rows = np.concatenate([self._rows_of[shard] for shard in table.shards[block]])
        rows = rows[self._buckets[rows] == bucket]
        generator = randomness.generator(self.seed, "segment", epoch, block, bucket)
        rows = rows[generator.permutation(len(rows))]
        counts = repeats(self._weights[rows], int(table.sums[block, bucket]), table.offset)
        samples: Ints = rows[spread(counts, generator)]
        return samples
