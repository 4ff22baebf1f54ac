"""One host: pauses, holds, and giving way by the rule of TCP (additive increase, multiplicative decrease)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from pipeline.ingest.fetch import FetchWorker
from pipeline.ingest.gate import LEAST_PAUSE_S, HostGate
from tests.pipeline.ingest import hostile
from tests.pipeline.ingest.hostile import PICTURE, reply
from tests.pipeline.ingest.test_fetch import chunk_of, settings_for


def in_loop(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 10))


def test_a_gate_spaces_requests_and_holds() -> None:
    async def run() -> None:
        gate, times = HostGate(5, 0.05), list[float]()
        begun = asyncio.get_running_loop().time()

        async def one() -> None:
            turn = await gate.enter()
            times.append(turn.begun - begun)
            gate.leave()

        await asyncio.gather(*(one() for _ in range(4)))
        turn = await gate.enter()
        gate.leave()
        gate.pushed_back(turn, 0.2)
        await one()
        assert times[3] - times[0] >= 0.14
        assert times[4] + begun - turn.begun >= 0.19

    in_loop(run())


def test_pushing_back_halves_and_good_answers_add_one_a_round() -> None:
    async def run() -> None:
        gate = HostGate(16, 0.0)
        turns = [await gate.enter() for _ in range(16)]
        for turn in turns:  # a burst is one event: these were all begun before the first answer came
            gate.pushed_back(turn, 0.0)
        assert gate.allowed == 8
        for _ in turns:
            gate.leave()
        gate.pushed_back(await gate.enter(), 0.0)
        assert gate.allowed == 4
        for _ in range(4):
            gate.went_well()
        assert 4.8 < gate.allowed < 5  # TCP's congestion avoidance: one more per round
        for _ in range(200):
            gate.went_well()
        assert gate.allowed == 16

    in_loop(run())


def test_a_host_asked_one_at_a_time_is_given_longer_and_longer_pauses() -> None:
    async def run() -> None:
        gate = HostGate(1, 0.0, longest_pause_s=1.0)
        turn = await gate.enter()
        pauses = []
        for _ in range(4):
            gate.pushed_back(turn, 0.0)
            pauses.append(gate.pause_s)
            turn = await gate.enter() if gate.under_way == 0 else type(turn)(asyncio.get_running_loop().time())
        assert pauses == [LEAST_PAUSE_S, 2 * LEAST_PAUSE_S, 1.0, 1.0]
        gate.leave()
        for _ in range(100):
            gate.went_well()
        assert gate.pause_s == 0.0

    in_loop(run())


def test_who_gives_up_waiting_leaves_the_place_to_others() -> None:
    async def run() -> None:
        gate = HostGate(1, 0.0)
        await gate.enter()
        first, second = (asyncio.create_task(gate.enter()) for _ in range(2))
        await asyncio.sleep(0)
        assert gate.waiting == 2
        first.cancel()
        await asyncio.sleep(0)
        gate.leave()
        await second
        assert (gate.under_way, gate.waiting) == (1, 0)
        third = asyncio.create_task(gate.enter())
        await asyncio.sleep(0)
        gate.leave()  # gives the place to the third, which is cancelled before it hears of it
        third.cancel()
        with pytest.raises(asyncio.CancelledError):
            await third
        assert (gate.under_way, gate.waiting) == (0, 0)

    in_loop(run())


def test_a_host_that_bears_two_at_once_ends_up_with_few_refusals(tmp_path: Path) -> None:
    """503 to whoever comes third: the fetcher starts with sixteen and must learn."""
    lock, inside, refused = threading.Lock(), [0], [0]

    def bears_two(server: hostile.Hostile, connection: Any, path: str) -> None:
        with lock:
            inside[0] += 1
            full = inside[0] > 2
            refused[0] += full
        time.sleep(0.01)
        answer = reply(b"", 503, Connection="close") if full else reply(PICTURE, Connection="close")
        connection.sendall(answer)
        with lock:
            inside[0] -= 1

    paths = {f"/{n}.png": bears_two for n in range(80)}
    with hostile.serve({"/robots.txt": reply(b"", 404), **paths}) as server:
        settings = settings_for(server, connections_per_host=16, retries=6, backoff_s=0.05, deadline_s=10)
        table = FetchWorker(settings, str(tmp_path))(chunk_of([server.base + path for path in paths]))
    assert table.column("fetch_outcome").to_pylist() == ["ok"] * 80
    assert refused[0] < 60  # without giving way, about fourteen of every sixteen requests


def test_retry_after_holds_the_whole_host(tmp_path: Path) -> None:
    """While one row waits, nobody else asks."""
    asked = list[float]()

    def noted(server: hostile.Hostile, connection: Any, path: str) -> None:
        asked.append(time.monotonic())
        again = server.hits[path] > 1 or path != "/0.png"
        wait = reply(b"", 429, Retry_After="1", Connection="close")
        connection.sendall(reply(PICTURE, Connection="close") if again else wait)

    paths = {f"/{n}.png": noted for n in range(6)}
    with hostile.serve({"/robots.txt": reply(b"", 404), **paths}) as server:
        settings = settings_for(server, connections_per_host=1)
        table = FetchWorker(settings, str(tmp_path))(chunk_of([server.base + path for path in paths]))
    assert table.column("fetch_outcome").to_pylist() == ["ok"] * 6
    assert asked[1] - asked[0] >= 0.95
