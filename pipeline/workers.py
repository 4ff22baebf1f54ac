"""Worker processes that may die: a pool that goes on, and finds the one item that kills its worker.

A codec that crashes takes its process along, and with it every job in that pool. `pooled` then runs the jobs that were
under way again, one at a time in a process of their own, halves the one that kills it again, and gives up the single
item at the bottom. So one picture costs one row and not the run.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import forkserver
from typing import Any, Generic, TypeVar

from pipeline.errors import GristmillError

Job = TypeVar("Job")
Result = TypeVar("Result")
Factory = Callable[[], Callable[[Job], Result]]

MOST_GIVEN_UP = 20
"""Items given up in a row: then not the items are at fault but the machine, and the run ends."""


class WorkerDiedError(GristmillError):
    """A worker process was killed or crashed."""


@dataclass(frozen=True)
class Rescue(Generic[Job, Result]):
    """What to do about a job that kills its worker: `split` it into smaller ones (one, when it cannot be), `join` their
    results, and say what stands for a job that cannot be split further."""

    split: Callable[[Job], list[Job]]
    join: Callable[[list[Result]], Result]
    give_up: Callable[[Job], Result]


def pooled(factory: Factory[Job, Result], jobs: Iterable[Job], workers: int,
           rescue: Rescue[Job, Result] | None = None, *, on_gpus: bool = False) -> Iterator[Result]:
    """Results in the order of `jobs`, read a few ahead. Raises WorkerDiedError, see `Engine.map`."""
    waiting: deque[tuple[Job, Future[Result]]] = deque()
    coming = iter(jobs)
    pool = _pool(factory, workers, on_gpus)
    try:
        while True:
            while len(waiting) <= 2 * workers and (job := next(coming, _END)) is not _END:
                waiting.append((job, _submitted(pool, job)))  # type: ignore[arg-type]
            if not waiting:
                return
            try:
                result = waiting[0][1].result()
            except BrokenProcessPool as error:
                if rescue is None:
                    raise _died() from error
                pool.shutdown(wait=True)
                nursery = Nursery(factory, rescue)
                try:
                    for job, future in waiting:
                        done = future.done() and future.exception() is None
                        yield future.result() if done else nursery.result_of(job)
                finally:
                    nursery.close()
                waiting.clear()
                pool = _pool(factory, workers, on_gpus)
                continue
            waiting.popleft()
            yield result
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_END: Any = object()


class Nursery(Generic[Job, Result]):
    """One process for jobs that may kill it; replaced whenever one does."""

    def __init__(self, factory: Factory[Job, Result], rescue: Rescue[Job, Result]) -> None:
        self._factory, self._rescue = factory, rescue
        self._pool: ProcessPoolExecutor | None = None
        self._given_up = 0

    def result_of(self, job: Job) -> Result:
        """The job's result, with something in the place of every item that kills its process twice."""
        parts = self._rescue.split(job)
        attempts = 1 if len(parts) > 1 else 2  # a process may also be killed for what another one did
        for _ in range(attempts):
            try:
                result = self._run(job)
                self._given_up = 0
                return result
            except BrokenProcessPool as error:
                self.close()
                if self._given_up >= MOST_GIVEN_UP:
                    raise _died() from error
        if len(parts) > 1:
            return self._rescue.join([self.result_of(part) for part in parts])
        self._given_up += 1
        return self._rescue.give_up(job)

    def _run(self, job: Job) -> Result:
        if self._pool is None:
            self._pool = _pool(self._factory, 1, False)
        future: Future[Result] = self._pool.submit(_call, job)
        return future.result()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None


def _submitted(pool: ProcessPoolExecutor, job: Any) -> Future[Any]:
    try:
        return pool.submit(_call, job)
    except BrokenProcessPool as error:  # it died since: said by the job's future, as for those under way
        broken: Future[Any] = Future()
        broken.set_exception(error)
        return broken


def _died() -> WorkerDiedError:
    return WorkerDiedError(
        "a worker process died (killed for memory, or a codec crashed)",
        hint="run the same command again: finished chunks are kept; with little memory set engine.workers = 1",
    )


_work: Callable[[Any], Any] | None = None


def _start(factory: Factory[Any, Any], numbers: Any) -> None:
    global _work
    if numbers is not None:  # before CUDA starts in this process
        os.environ["CUDA_VISIBLE_DEVICES"] = numbers.get()
    _work = factory()


def _call(job: Any) -> Any:
    assert _work is not None
    return _work(job)


def _gpu_names(count: int) -> list[str]:
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",")[:count] if named else [str(number) for number in range(count)]


_THREADS = "OPENBLAS_NUM_THREADS"


def _start_server() -> None:
    """The process that workers are forked from; what is in the environment when it starts, they have for good.

    One thread of numpy's linear algebra in each, unless the user says otherwise: there is a worker per core already,
    and threads that wait for work keep cores busy with it.
    """
    ours = _THREADS not in os.environ
    if ours:
        os.environ[_THREADS] = "1"
    try:
        forkserver.ensure_running()
    finally:
        if ours:
            del os.environ[_THREADS]


def _pool(factory: Factory[Any, Any], workers: int, on_gpus: bool) -> ProcessPoolExecutor:
    # forkserver: this process has threads (lease, progress), which plain fork would copy half-way
    _start_server()
    context = multiprocessing.get_context("forkserver")
    numbers = None
    if on_gpus:
        numbers = context.Manager().Queue()
        for name in _gpu_names(workers):
            numbers.put(name)
    return ProcessPoolExecutor(workers, mp_context=context, initializer=_start, initargs=(factory, numbers))
