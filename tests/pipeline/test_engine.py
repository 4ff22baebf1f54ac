"""Order, laziness and death of workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from pipeline.engine import LocalEngine, WorkerDiedError


def _square(offset: int, job: int) -> tuple[int, int]:
    return job * job + offset, os.getpid()


def _factory(offset: int) -> Callable[[int], tuple[int, int]]:
    return partial(_square, offset)


def _die(job: int) -> int:
    if job == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return job


def _dying() -> Callable[[int], int]:
    return _die


@pytest.mark.parametrize("kind", ["cpu", "inline"])
def test_results_come_in_the_order_of_the_jobs(kind: str) -> None:
    results = list(LocalEngine(2).map(partial(_factory, 1), range(50), kind=kind))  # type: ignore[arg-type]
    assert [value for value, _ in results] == [job * job + 1 for job in range(50)]
    processes = {process for _, process in results}
    assert (os.getpid() in processes) == (kind == "inline")


def test_jobs_are_read_only_a_few_ahead() -> None:
    taken = 0

    def jobs() -> Iterator[int]:
        nonlocal taken
        for job in range(1000):
            taken += 1
            yield job

    results = LocalEngine(2).map(partial(_factory, 0), jobs(), kind="cpu")
    assert next(iter(results))[0] == 0
    assert taken <= 10


def test_a_killed_worker_is_an_error_with_a_hint_not_a_hang() -> None:
    with pytest.raises(WorkerDiedError) as caught:
        list(LocalEngine(2).map(_dying, range(10), kind="cpu"))
    assert "again" in caught.value.hint


def test_no_jobs_build_no_worker() -> None:
    def never() -> Callable[[int], int]:
        raise AssertionError("built for nothing")

    assert list(LocalEngine(1).map(never, [], kind="inline")) == []
