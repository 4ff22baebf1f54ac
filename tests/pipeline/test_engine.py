"""Order, laziness and death of workers."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from pipeline import workers
from pipeline.engine import LocalEngine, Rescue, WorkerDiedError


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


def _setting(name: str) -> Callable[[int], str | None]:
    return lambda job: os.environ.get(name)


def test_a_worker_has_one_thread_of_linear_algebra_and_this_process_what_it_had() -> None:
    before = os.environ.get("OPENBLAS_NUM_THREADS")
    found = list(LocalEngine(2).map(partial(_setting, "OPENBLAS_NUM_THREADS"), range(3), kind="cpu"))
    assert found == [before or "1"] * 3
    assert os.environ.get("OPENBLAS_NUM_THREADS") == before


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


def _numbers(bad: tuple[int, ...], spin: tuple[int, ...]) -> Callable[[list[int]], list[int]]:
    signal.signal(signal.SIGPROF, signal.SIG_DFL)

    def work(job: list[int]) -> list[int]:
        for number in job:
            signal.setitimer(signal.ITIMER_PROF, 0.3)
            if number in bad:
                os.kill(os.getpid(), signal.SIGSEGV)
            while number in spin:
                pass
        signal.setitimer(signal.ITIMER_PROF, 0)
        return [number * number for number in job]

    return work


def _halves(job: list[int]) -> list[list[int]]:
    return [job] if len(job) == 1 else [job[:len(job) // 2], job[len(job) // 2:]]


RESCUE = Rescue[list[int], list[int]](_halves, lambda parts: [each for part in parts for each in part],
                                      lambda job: [-1] * len(job))


def test_items_that_crash_or_hang_cost_only_themselves() -> None:
    jobs = [list(range(start, start + 16)) for start in range(0, 160, 16)]
    results = list(LocalEngine(2).map(partial(_numbers, (37, 158), (90,)), jobs, kind="cpu", rescue=RESCUE))
    expected = [-1 if number in (37, 90, 158) else number * number for number in range(160)]
    assert [each for result in results for each in result] == expected


def test_when_everything_crashes_it_is_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "MOST_GIVEN_UP", 5)
    jobs = [list(range(start, start + 8)) for start in range(0, 64, 8)]
    done = []
    with pytest.raises(WorkerDiedError):
        for result in LocalEngine(1).map(partial(_numbers, tuple(range(4, 64)), ()), jobs, kind="cpu", rescue=RESCUE):
            done.append(result)
    assert done[0] == [0, 1, 4, 9, -1, -1, -1, -1]


class Slow:
    """Finishes its jobs in threads; job 0 only when three others are done."""

    ahead = 3

    def __init__(self) -> None:
        self.done, self.most, self.under_way, self.closed = threading.Semaphore(0), 0, 0, False

    def start(self, job: int, ready: Callable[[], None]) -> Callable[[], int]:
        self.under_way += 1
        self.most = max(self.most, self.under_way)

        def work() -> None:
            if job == 0:
                for _ in range(3):
                    self.done.acquire()
            ready()

        threading.Thread(target=work).start()

        def finish() -> int:
            self.under_way -= 1
            self.done.release()
            return job * job

        return finish

    def close(self) -> None:
        self.closed = True


def test_a_slow_inline_job_holds_nothing_up() -> None:
    worker = Slow()
    done = list(LocalEngine(1).as_done(lambda: worker, iter(range(6)), kind="inline"))
    assert sorted(done) == [(n, n * n) for n in range(6)]
    assert [number for number, _ in done].index(0) >= 3
    assert 2 <= worker.most <= 3
    assert worker.closed


def test_a_worker_is_closed_when_its_results_are_no_longer_wanted() -> None:
    worker = Slow()
    results = LocalEngine(1).as_done(lambda: worker, iter(range(6)), kind="inline")
    next(results)
    results.close()
    assert worker.closed
    for _ in range(3):
        worker.done.release()
