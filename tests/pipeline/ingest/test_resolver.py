"""Looking up names: once for all who ask, also when there is no answer; what may pass is told from what may not."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter

import pytest
from aiohttp.abc import ResolveResult

from pipeline.ingest.failures import explain, worth_retrying
from pipeline.ingest.guard import Guard, PrivateAddress
from pipeline.ingest.resolver import TEMPORARY_S, Resolver

ADDRESSES = {"example.org": "93.184.215.14", "inside.example": "10.1.2.3"}


class Names:
    """Stands for the system: counts who is asked for; `busy` names have no server that answers."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.busy = {"busy.example"}

    async def __call__(self, host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
        self.asked[host] += 1
        await asyncio.sleep(0.01)
        if host in self.busy:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        if host not in ADDRESSES:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [ResolveResult(hostname=host, host=ADDRESSES[host], port=port, family=family, proto=0, flags=0)]


def test_a_name_is_asked_for_once_whatever_the_answer() -> None:
    async def run() -> Counter[str]:
        names = Names()
        resolver = Resolver(Guard(()), names)
        for _ in range(2):
            asks = [resolver.resolve(host, 80) for host in ("example.org", "gone.example") for _ in range(50)]
            answers = await asyncio.gather(*asks, return_exceptions=True)
            assert [each[0]["host"] for each in answers[:50]] == ["93.184.215.14"] * 50  # type: ignore[index]
            assert {type(each) for each in answers[50:]} == {socket.gaierror}
        return names.asked

    assert asyncio.run(run()) == {"example.org": 1, "gone.example": 1}


def test_a_temporary_failure_is_forgotten_soon_and_worth_another_attempt() -> None:
    async def run() -> None:
        names = Names()
        resolver = Resolver(Guard(()), names)
        failures = await asyncio.gather(*(resolver.resolve("busy.example") for _ in range(9)), return_exceptions=True)
        assert names.asked == {"busy.example": 1}
        outcome, detail = explain(failures[0])  # type: ignore[arg-type]
        assert (outcome, worth_retrying(outcome, None, detail)) == ("dns", True)
        ADDRESSES["busy.example"] = "93.184.215.14"
        names.busy.clear()
        await asyncio.sleep(1.2 * TEMPORARY_S)
        assert (await resolver.resolve("busy.example"))[0]["host"] == "93.184.215.14"

    asyncio.run(run())


def test_no_such_name_is_final() -> None:
    async def run() -> None:
        with pytest.raises(socket.gaierror) as caught:
            await Resolver(Guard(()), Names()).resolve("gone.example")
        outcome, detail = explain(caught.value)
        assert (outcome, worth_retrying(outcome, None, detail)) == ("dns", False)

    asyncio.run(run())


def test_what_is_remembered_is_judged_each_time() -> None:
    async def run() -> None:
        names = Names()
        resolver = Resolver(Guard(("inside.example:8080",)), names)
        assert (await resolver.resolve("inside.example", 8080))[0]["host"] == "10.1.2.3"
        for _ in range(2):
            with pytest.raises(PrivateAddress):
                await resolver.resolve("inside.example", 80)

    asyncio.run(run())


def test_who_gives_up_does_not_spoil_it_for_others() -> None:
    async def run() -> None:
        resolver = Resolver(Guard(()), Names())
        first, second = (asyncio.create_task(resolver.resolve("example.org")) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second)[0]["host"] == "93.184.215.14"

    asyncio.run(run())
