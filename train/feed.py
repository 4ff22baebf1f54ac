"""Plan + shards (or latents) → batches, prepared ahead by threads, always in the plan's order.

Everything random about a sample is a function of its global number; so a batch is the same however many ranks,
threads or accumulation turns share the work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from train import randomness
from train.latents import ArrayStore, content_key
from train.pictures import BadPicture, Pictures, Shape
from train.plan import Plan, PlannedBatch
from train.shards import Row

Ints = NDArray[np.int64]

GOLDEN_RATIO = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class Batch:
    """What a task computes its loss from; `b` samples of one shape.

    `images`: pixels as uint8 (b, 3, h, w), or latents as float32 (b, c, h, w). `valid` (b,) is 0 for pictures
    that could not be read. `noise` has the latents' shape; `times` (b,) are uniform numbers in [0, 1), to be
    turned into timesteps by the objective. `text` (b, l, d) and `text_mask` (b, l) are there when cached.
    """

    rows: Ints
    numbers: Ints
    images: Tensor
    valid: Tensor
    captions: tuple[str, ...]
    times: Tensor
    noise: Tensor | None = None
    text: Tensor | None = None
    text_mask: Tensor | None = None

    def to(self, device: torch.device) -> Batch:
        """The same batch with its tensors on `device`."""
        tensors: dict[str, Any] = {
            name: value.to(device, non_blocking=True)
            for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        return replace(self, **tensors)


class Images(Protocol):
    """Where a batch's images come from."""

    def load(self, rows: Ints, bucket: int, numbers: Ints) -> tuple[Tensor, Tensor]:
        """Images of the rows, and which of them are valid (float 0 or 1)."""


class PixelImages:
    """Decoded pictures. Bad ones become black and invalid; `bad` is told why, by row."""

    def __init__(self, pictures: Pictures, shapes: Sequence[Shape], bad: dict[int, str] | None = None) -> None:
        self._pictures, self._shapes = pictures, shapes
        self.bad = {} if bad is None else bad

    def load(self, rows: Ints, bucket: int, numbers: Ints) -> tuple[Tensor, Tensor]:
        shape = self._shapes[bucket]
        pixels = np.zeros((len(rows), 3, *shape), np.uint8)
        valid = torch.ones(len(rows))
        for index, (row, number) in enumerate(zip(rows.tolist(), numbers.tolist(), strict=True)):
            try:
                pixels[index] = self._pictures.pixels(row, shape, number)
            except BadPicture as error:
                self.bad[row] = str(error)
                valid[index] = 0
        return torch.from_numpy(pixels), valid


class LatentImages:
    """Cached latents: one store per bucket, or per bucket and version of a picture.

    `stores` is by version, then by bucket; which version a sample gets follows from its number. `key` gives a row's
    key in the stores.
    """

    def __init__(self, stores: Sequence[Sequence[ArrayStore]], key: Callable[[int], bytes], seed: int) -> None:
        self._stores, self._key, self._seed = stores, key, seed

    def load(self, rows: Ints, bucket: int, numbers: Ints) -> tuple[Tensor, Tensor]:
        views = (randomness.uniforms(self._seed, "view", numbers) * len(self._stores)).astype(int).tolist()
        latents = np.stack([self._stores[view][bucket].take([self._key(row)])["latents"][0]
                            for row, view in zip(rows.tolist(), views, strict=True)])
        return torch.from_numpy(latents.astype(np.float32)), torch.ones(len(rows))


@dataclass(frozen=True)
class Feed:
    """Planned batches → batches. `row` gives a row's captions.

    `cfg_dropout`: share of samples with an empty caption. `mix`: half of the time another acceptable caption
    than the chosen one. `noise_shape` maps the images' (c, h, w) to the noise's, or is None for no noise.
    `even_times`: timesteps from the golden-ratio sequence instead of random ones, for validation.
    """

    images: Images
    row: Callable[[int], Row]
    seed: int
    cfg_dropout: float = 0.0
    mix: bool = False
    noise_shape: Callable[[tuple[int, ...]], tuple[int, ...]] | None = None
    even_times: bool = False
    texts: ArrayStore | None = None

    def batch(self, planned: PlannedBatch) -> Batch:
        """Pure in `planned`, whose rows are rows of the shards."""
        numbers = planned.numbers
        images, valid = self.images.load(planned.rows, planned.bucket, numbers)
        captions = self._captions(planned.rows, numbers)
        batch = Batch(planned.rows, numbers, images, valid, captions, self._times(numbers))
        if self.noise_shape is not None:
            shape = self.noise_shape(tuple(images.shape[1:]))
            batch = replace(batch, noise=torch.from_numpy(randomness.normals(self.seed, "noise", numbers, shape)))
        if self.texts is not None:
            kept = self.texts.take([content_key(text) for text in captions])
            batch = replace(batch, text=torch.from_numpy(kept["text"].astype(np.float32)),
                            text_mask=torch.from_numpy(kept["mask"]))
        return batch

    def _captions(self, rows: Ints, numbers: Ints) -> tuple[str, ...]:
        dropped = randomness.uniforms(self.seed, "cfg", numbers) < self.cfg_dropout
        choice = randomness.uniforms(self.seed, "caption", numbers)
        return tuple("" if drop else chosen_caption(self.row(row), at if self.mix else 0.0)
                     for row, drop, at in zip(rows.tolist(), dropped, choice.tolist(), strict=True))

    def _times(self, numbers: Ints) -> Tensor:
        if self.even_times:
            return torch.from_numpy(((numbers + 0.5) * GOLDEN_RATIO) % 1.0).float()
        # Rounding to fp32 may reach 1.0, which is outside the interval.
        return torch.from_numpy(randomness.uniforms(self.seed, "timestep", numbers)).float().clamp(max=1 - 2**-24)


def chosen_caption(row: Row, at: float) -> str:
    """The chosen caption for `at` in [0, ½), evenly one of the other acceptable ones for [½, 1)."""
    others = [text for text in row.captions if text != row.caption]
    if at < 0.5 or not others:
        return row.caption
    return others[min(int((at - 0.5) * 2 * len(others)), len(others) - 1)]


@dataclass(frozen=True)
class Sharing:
    """How a global batch is taken apart: this rank of how many, in how many accumulation turns."""

    rank: int = 0
    ranks: int = 1
    turns: int = 1


def steps(plan: Plan, rows: Ints, feed: Feed, begin: int, end: int, sharing: Sharing, *, workers: int,
          prefetch: int) -> Generator[list[Batch], None, None]:
    """This rank's micro-batches of each global batch in [begin, end); `rows` turns plan rows into shard rows.

    With workers, up to `prefetch` global batches are prepared ahead by threads; the order never changes.
    """
    def jobs(index: int) -> list[PlannedBatch]:
        whole = plan.batch(index)
        parts = [whole.part(sharing.rank, sharing.ranks, turn, sharing.turns) for turn in range(sharing.turns)]
        return [replace(part, rows=rows[part.rows]) for part in parts]

    if workers == 0:
        for index in range(begin, end):
            yield [feed.batch(job) for job in jobs(index)]
        return
    with ThreadPoolExecutor(workers, thread_name_prefix="feed") as pool:
        ahead: deque[list[Future[Batch]]] = deque()
        try:
            for index in range(begin, end):
                ahead.append([pool.submit(feed.batch, job) for job in jobs(index)])
                if len(ahead) > prefetch:
                    yield [future.result() for future in ahead.popleft()]
            while ahead:
                yield [future.result() for future in ahead.popleft()]
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def fixed_batches(feed: Feed, rows: Ints, buckets: Ints, batch: int, sharing: Sharing) -> Iterator[Batch]:
    """The given rows in batches of one bucket, always with the same noise and times; ranks take turns.

    A sample's number is its place in `rows`; `buckets` runs beside it.
    """
    count = 0
    for bucket in np.unique(buckets).tolist():
        places = np.flatnonzero(buckets == bucket)
        for start in range(0, len(places), batch):
            numbers = places[start:start + batch].astype(np.int64)
            if count % sharing.ranks == sharing.rank:
                yield feed.batch(PlannedBatch(count, 0, int(bucket), rows[numbers], numbers))
            count += 1
