"""One recipe's training: its folders, rows, buckets, plans and jobs.

    runs/<name>/vae/        checkpoints, log.jsonl, tensorboard/, grids/; when finished model/ and vae.json
    runs/<name>/latents/    cached latents, by VAE fingerprint and shape
    runs/<name>/text/       cached text states, by text encoder fingerprint
    runs/<name>/denoiser/   checkpoints, log.jsonl, tensorboard/, grids/, tokenizer/
    runs/<name>/grid.png    the last sample grid
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from pipeline import storage
from pipeline.errors import TrainingError
from pipeline.recipe import Recipe
from train import randomness
from train.config import TrainSettings
from train.distributed import Ranks
from train.feed import Feed, fixed_batches
from train.loop import Job, State, Stopped, train
from train.models.settings import OptimiserSettings
from train.pictures import Pictures, Shape, Variation, bucket_shape
from train.plan import Plan, merged_buckets
from train.shards import ByteCache, Shards, open_shards
from train.tasks import Task
from train.watch import Probe, Watch

Ints = NDArray[np.int64]

SQUARE = "1:1"

NOT_DECIDING = {
    "data": {"shards", "workers", "prefetch", "cache", "cache_gb", "retries", "pixel_cache_mb"},
    "optimiser": {"steps", "accumulate"},
}
"""Settings that may change between a run and its resumption, by section."""


@dataclass(frozen=True)
class Buckets:
    """`number` maps a row's bucket name to an index into `shapes`, (height, width) in pixels."""

    number: dict[str, int]
    shapes: list[Shape]


@dataclass(frozen=True)
class ChosenRows:
    """Places in the shards, and beside them each row's bucket number."""

    rows: Ints
    buckets: Ints

    def at(self, places: Ints) -> ChosenRows:
        """Some of them, by place."""
        return ChosenRows(self.rows[places], self.buckets[places])

    def first(self, count: int) -> ChosenRows:
        return ChosenRows(self.rows[:count], self.buckets[:count])


class Session:
    """One recipe on these ranks. Building one reads nothing; parts are opened when first asked for."""

    def __init__(self, recipe: Recipe, ranks: Ranks, *, quiet: bool = False) -> None:
        section = recipe.section("train")
        assert isinstance(section, TrainSettings)
        self.recipe, self.ranks, self.quiet = recipe, ranks, quiet
        self.settings = section
        self.seed = recipe.seed if section.seed is None else section.seed
        # Checkpoints and memory-mapped latents want a disk: with a remote workdir they lie beside the caller.
        self.folder = storage.local(recipe.runs_url) or storage.join("runs", recipe.name)
        if section.threads is not None:
            torch.set_num_threads(section.threads)

    def place(self, *names: str) -> str:
        """A path below the run's folder."""
        return storage.join(self.folder, *names)

    @property
    def precision(self) -> str:
        """fp32 or bf16: `auto` takes bf16 on GPUs that have it."""
        if self.settings.precision != "auto":
            return self.settings.precision
        on_gpu = self.ranks.device.type == "cuda" and torch.cuda.is_bf16_supported()
        return "bf16" if on_gpu else "fp32"

    @cached_property
    def shards(self) -> Shards:
        data = self.settings.data
        url = data.shards or storage.join(self.recipe.data_url, "shards")
        cache = ByteCache(data.cache or self.place("cache"), int(data.cache_gb * 1e9))
        shards = open_shards(url, cache=cache, retries=data.retries)
        if not len(shards.rows("train")):
            raise TrainingError(f"the shards at {url} hold no row to train on",
                                hint="see `curate status` for where the rows went")
        return shards

    @cached_property
    def pictures(self) -> Pictures:
        """Centre-cropped pictures: for the latents, validation, and training when `crop` is center."""
        return Pictures(self.shards, seed=self.seed, cache_bytes=self.settings.data.pixel_cache_mb * 10**6)

    @cached_property
    def training_pictures(self) -> Pictures:
        """Pictures as training sees them, varied where the recipe says so."""
        data = self.settings.data
        vary = Variation(crop=data.crop == "random", zoom=data.zoom, flip=data.flip)
        if not vary.any:
            return self.pictures
        return Pictures(self.shards, seed=self.seed, vary=vary, cache_bytes=data.pixel_cache_mb * 10**6)

    @cached_property
    def buckets(self) -> Buckets:
        """The buckets that batches are made of; small ones have joined others, and that is said."""
        names, cell = self.shards.buckets, self.settings.cell
        if self.settings.data.aspect == "square":
            return Buckets(dict.fromkeys(names, 0), [bucket_shape(SQUARE, self.settings.resolution, cell)])
        samples: dict[str, float] = dict.fromkeys(sorted(set(names)), 0.0)
        for row in self.shards.rows("train").tolist():
            samples[names[row]] += float(self.shards.weights[row])
        target = merged_buckets(samples, self.settings.optimiser.batch)
        for name, goal in target.items():
            if name != goal:
                self.say(f"bucket {name} has {samples[name]:.0f} samples an epoch, too few: merged into {goal}")
        left = sorted(set(target.values()))
        return Buckets({name: left.index(goal) for name, goal in target.items()},
                       [bucket_shape(name, self.settings.resolution, cell) for name in left])

    def chosen(self, split: str, without: Collection[int] = ()) -> ChosenRows:
        """The split's rows, less those in `without`."""
        rows = self.shards.rows(split)
        rows = rows[~np.isin(rows, list(without))] if without else rows
        kinds = np.array([self.buckets.number[self.shards.buckets[row]] for row in rows.tolist()], dtype=np.int64)
        return ChosenRows(rows, kinds)

    def plan(self, chosen: ChosenRows, batch: int, purpose: str) -> Plan:
        """The order of training over `chosen` rows. Raises TrainingError when none has a weight."""
        data, rows = self.settings.data, chosen.rows
        try:
            return Plan(seed=randomness.key(self.seed, "plan", purpose), batch=batch, cap=data.max_repeats,
                        weights=self.shards.weights[rows], buckets=chosen.buckets,
                        shards=self.shards.shard_numbers[rows], shuffle_block=data.shuffle_block)
        except ValueError as error:
            raise TrainingError(f"nothing to train on: {error}", hint="look at `weigh` in the recipe") from error

    def job(self, name: str, settings: OptimiserSettings, sections: Sequence[str], feed: Feed, chosen: ChosenRows
            ) -> Job:
        """A training run in the folder `name`, whose weights are decided by the named sections."""
        data = self.settings.data
        rows = hashlib.blake2b(chosen.rows.tobytes() + chosen.buckets.tobytes(), digest_size=8).hexdigest()
        return Job(folder=self.place(name), seed=self.seed, settings=settings, checkpoint=self.settings.checkpoint,
                   plan=self.plan(chosen, settings.batch, name), rows=chosen.rows, feed=feed, ranks=self.ranks,
                   precision=self.precision, workers=data.workers, prefetch=data.prefetch,
                   identity={"shards": self.shards.fingerprint, "seed": str(self.seed),
                             "shards' readable rows": f"{len(chosen.rows)} ({rows})",
                             **self.decided(("resolution", "data", *sections))})

    def probes(self, job: Job, feed: Feed, chosen: ChosenRows, held: ChosenRows) -> dict[str, Probe]:
        """Fixed samples to take losses on: held-out rows (where there are any) and as many training rows."""
        count, sharing = self.settings.watch.validation_samples, replace(job.sharing, turns=1)
        micro = job.settings.batch // (self.ranks.world * job.settings.accumulate)
        order = randomness.generator(self.seed, "probe").permutation(len(chosen.rows))
        sets = {"validation": held.first(count), "train": chosen.at(np.sort(order[:count]))}
        return {name: partial(fixed_batches, feed, some.rows, some.buckets, micro, sharing)
                for name, some in sets.items() if len(some.rows)}

    def forget(self, *names: str) -> None:
        """Remove files and folders of the run, so that it starts anew."""
        if self.ranks.main:
            for name in names:
                storage.remove(self.place(name))
        self.ranks.barrier()

    def example_prompt(self) -> str:
        """A caption like those trained on."""
        if self.settings.watch.prompts:
            return self.settings.watch.prompts[0]
        rows = self.shards.rows("validation")
        return self.shards.row(int(rows[0]) if len(rows) else int(self.shards.rows("train")[0])).caption

    def trained(self, task: Task, job: Job, watch: Watch, bad: dict[int, str]) -> State:
        """Train, and tell of the pictures that were `bad` on the way, also when training was stopped."""
        try:
            state = train(task, job, watch)
        except Stopped:
            self.report_bad(bad)
            raise
        self.report_bad(bad)
        return state

    def report_bad(self, bad: dict[int, str]) -> None:
        """Rows whose pictures could not be read, on any rank: into `bad.jsonl`, and their number for people."""
        everywhere = {row: why for share in self.ranks.gathered(bad) for row, why in share.items()}
        if everywhere and self.ranks.main:
            lines = [json.dumps({"id": self.shards.row(row).id, "why": why}) for row, why in sorted(everywhere.items())]
            storage.write_bytes(self.place("bad.jsonl"), ("\n".join(lines) + "\n").encode())
            self.say(f"{len(everywhere)} pictures cannot be read and are left out; see {self.place('bad.jsonl')}")

    def say(self, line: str) -> None:
        """One line on stderr, from the main rank only."""
        if self.ranks.main and not self.quiet:
            Console(stderr=True).print(f"  {line}", highlight=False, soft_wrap=True)

    def decided(self, sections: Sequence[str]) -> dict[str, str]:
        """Settings of the named parts of `[train]` by dotted key, less those in NOT_DECIDING. Opens no data."""
        found: dict[str, str] = {}
        dumped = self.settings.model_dump(mode="json")
        _flatten({name: value for name, value in dumped.items() if name in sections}, "", found)
        return found


def _flatten(values: dict[str, Any], prefix: str, into: dict[str, str]) -> None:
    section = prefix.rstrip(".").rsplit(".", 1)[-1]
    for name, value in values.items():
        if name in NOT_DECIDING.get(section, ()):
            continue
        if isinstance(value, dict):
            _flatten(value, f"{prefix}{name}.", into)
        else:
            into[f"{prefix}{name}"] = json.dumps(value)
