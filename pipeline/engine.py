"""Where work runs: processes on this machine, or Ray on many. A stage does not know which.

An engine maps a *factory* over jobs. The factory is picklable and is called once per worker process;
what it returns is called once per job. Results come back in the order of the jobs, or, from `as_done`, each with
its job's number as soon as it is there. There an inline worker with a method `start(job, ready)` is given `ahead`
jobs at once: `start` returns a function that finishes the job, and `ready` is called when that need not wait.

`kind` says what a job needs: `cpu` (one core), `model` (the accelerator, or all cores without one) or
`inline` (this process: network work that keeps its own concurrency, and shared politeness).
"""

from __future__ import annotations

import importlib.util
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from itertools import chain
from queue import SimpleQueue
from typing import Any, Literal

from pydantic import Field

from pipeline.errors import GristmillError
from pipeline.settings import Settings
from pipeline.workers import Factory, Job, Rescue, Result, WorkerDiedError, pooled

__all__ = ["Engine", "EngineSettings", "Kind", "LocalEngine", "RayEngine", "Rescue", "WorkerDiedError", "build_engine",
           "check_engine", "cores"]

Kind = Literal["cpu", "model", "inline"]


class EngineSettings(Settings):
    kind: Literal["local", "ray"] = Field(
        "local", description="local: processes on this machine; ray: a Ray cluster (extra `ray`)"
    )
    workers: int = Field(0, ge=0, description="CPU worker processes; 0: one per core this process may use")
    address: str = Field("auto", description="Ray cluster's address; auto: find or start one")


class Engine(ABC):
    @abstractmethod
    def map(self, factory: Factory[Job, Result], jobs: Iterable[Job], *, kind: Kind,
            rescue: Rescue[Job, Result] | None = None) -> Iterator[Result]:
        """Results in the order of `jobs`, which is read lazily and only a few jobs ahead.

        Raises WorkerDiedError when a worker process dies, unless `rescue` says how to go on (Ray: always).
        """

    def as_done(self, factory: Factory[Job, Result], jobs: Iterable[Job], *, kind: Kind,
                rescue: Rescue[Job, Result] | None = None) -> Generator[tuple[int, Result], None, None]:
        """(number of the job, result), in any order: a slow answer of the network holds nothing up. Close it."""
        if kind == "inline":
            yield from _under_way(factory, jobs)
        else:
            yield from enumerate(self.map(factory, jobs, kind=kind, rescue=rescue))

    def close(self) -> None:
        """Stop the workers."""


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


class LocalEngine(Engine):
    """Processes on this machine; one model process per visible GPU, or the calling process without one."""

    def __init__(self, workers: int = 0) -> None:
        self.workers = workers or cores()

    def map(self, factory: Factory[Job, Result], jobs: Iterable[Job], *, kind: Kind,
            rescue: Rescue[Job, Result] | None = None) -> Iterator[Result]:
        if kind == "inline":
            return _inline(factory, jobs)
        if kind == "model":
            devices = _visible_gpus()
            return _inline(factory, jobs) if devices < 2 else pooled(factory, jobs, devices, on_gpus=True)
        return pooled(factory, jobs, self.workers, rescue)


def _inline(factory: Factory[Job, Result], jobs: Iterable[Job]) -> Iterator[Result]:
    work: Callable[[Job], Result] | None = None
    for job in jobs:
        if work is None:  # built with the first job: nothing to do loads no model
            work = factory()
        yield work(job)


def _under_way(factory: Factory[Job, Result], jobs: Iterable[Job]) -> Iterator[tuple[int, Result]]:
    numbered = enumerate(jobs)
    first = next(numbered, None)
    if first is None:
        return
    work: Any = factory()
    if not hasattr(work, "start"):
        for number, job in chain([first], numbered):
            yield number, work(job)
        return
    ready: SimpleQueue[int] = SimpleQueue()
    begun: dict[int, Callable[[], Result]] = {}
    left = chain([first], numbered)
    try:
        while True:
            while len(begun) < work.ahead and ready.empty() and (entry := next(left, None)) is not None:
                begun[entry[0]] = work.start(entry[1], partial(ready.put, entry[0]))
            if not begun:
                return
            number = ready.get()
            yield number, begun.pop(number)()
    finally:
        work.close()


def _visible_gpus() -> int:
    import torch

    return torch.cuda.device_count()


class RayEngine(Engine):
    """Ray actors: a pool of CPU actors, or one actor per GPU. Needs the extra `ray`."""

    def __init__(self, address: str = "auto", workers: int = 0) -> None:
        import ray

        self._ray = ray
        if not ray.is_initialized():
            try:
                ray.init(address=address)
            except ConnectionError:  # "auto" found no cluster: start one here
                ray.init(include_dashboard=False)
        self._workers = workers

    def map(self, factory: Factory[Job, Result], jobs: Iterable[Job], *, kind: Kind,
            rescue: Rescue[Job, Result] | None = None) -> Iterator[Result]:
        if kind == "inline":
            yield from _inline(factory, jobs)
            return
        resources = self._ray.cluster_resources()
        gpus = int(resources.get("GPU", 0)) if kind == "model" else 0
        count = gpus or (1 if kind == "model" else self._workers or int(resources["CPU"]))
        actor = self._ray.remote(num_gpus=1 if gpus else 0, num_cpus=1)(_Actor)
        actors = [actor.remote(factory) for _ in range(count)]
        waiting: deque[Any] = deque()
        for number, job in enumerate(jobs):
            waiting.append(actors[number % count].work.remote(job))
            if len(waiting) > 2 * count:
                yield self._ray.get(waiting.popleft())
        while waiting:
            yield self._ray.get(waiting.popleft())

    def close(self) -> None:
        self._ray.shutdown()


class _Actor:
    def __init__(self, factory: Factory[Any, Any]) -> None:
        self._work = factory()

    def work(self, job: Any) -> Any:
        return self._work(job)


def check_engine(settings: EngineSettings) -> None:
    """Raise GristmillError when what the engine needs is not installed; starts nothing."""
    if settings.kind == "ray" and importlib.util.find_spec("ray") is None:
        raise GristmillError("engine.kind is ray, but Ray is not installed",
                             hint='pip install "gristmill[ray]", or set engine.kind = "local"')


def build_engine(settings: EngineSettings) -> Engine:
    """Raises GristmillError, see `check_engine`."""
    check_engine(settings)
    if settings.kind == "ray":
        return RayEngine(settings.address, settings.workers)
    return LocalEngine(settings.workers)
