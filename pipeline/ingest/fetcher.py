"""From an address to its final answer: robots, opt-outs, redirects, retries, and turns at each host."""

from __future__ import annotations

import asyncio
import email.utils
import random
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from pipeline.ingest.addresses import host, origin
from pipeline.ingest.ban import NOTHING, Ban
from pipeline.ingest.client import Answer, Client, Stop, Wish
from pipeline.ingest.failures import worth_retrying
from pipeline.ingest.gate import HostGate
from pipeline.ingest.magic import sniff
from pipeline.ingest.politeness import (
    ROBOTS_BYTES,
    ROBOTS_REDIRECTS,
    TDM_BYTES,
    WELL_KNOWN_TDM,
    Reservations,
    Robots,
    opt_out,
    reservations_from,
    robots_from,
    tdm_reserved,
)
from pipeline.ingest.settings import FetchSettings

Said = TypeVar("Said", Robots, Reservations)

_PUSH_BACK = (429, 503)
_TOO_LONG = "asks to wait longer than ingest.fetch.max_wait_s"


class PictureWish(Wish):
    """A picture that does not opt out and begins like one."""

    accept = "image/*,*/*;q=0.5"
    knows = True

    def __init__(self, settings: FetchSettings) -> None:
        super().__init__(settings.max_bytes)
        self._settings = settings

    def headers_seen(self, answer: Answer) -> None:
        if directive := opted_out(answer, self._settings):
            raise Stop("opt_out", directive)

    def head_seen(self, head: bytes) -> None:
        if sniff(head) is None:
            raise Stop("not_an_image", f"begins with {head[:16]!r}")


class PageWish(Wish):
    """An HTML page; other types are not read."""

    accept = "text/html,application/xhtml+xml;q=0.9,*/*;q=0.1"

    def headers_seen(self, answer: Answer) -> None:
        kind = (answer.values("content-type") or ("text/html",))[0].split(";")[0].strip().lower()
        if kind not in ("text/html", "application/xhtml+xml"):
            raise Stop("not_a_page", kind[:80])


def opted_out(answer: Answer, settings: FetchSettings) -> str | None:
    """The opt-out that an answer's headers carry, in words, or None."""
    directive = opt_out(answer.values("x-robots-tag"), settings.opt_outs)
    if directive is not None:
        return f"X-Robots-Tag: {directive}"
    if settings.respect_tdm and tdm_reserved(answer.values("tdm-reservation")):
        return "TDM-Reservation: 1"
    return None


class Fetcher:
    """Fetches politely. Make, use and close it inside one running loop."""

    def __init__(self, settings: FetchSettings, ban: Ban = NOTHING) -> None:
        self.settings, self.ban = settings, ban
        self._client = Client(settings)
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._gates: dict[str, HostGate] = {}
        self._robots: dict[str, asyncio.Task[Robots]] = {}
        self._reservations: dict[str, asyncio.Task[Reservations]] = {}
        self._jitter = random.Random()  # spreads retries in time; no row depends on it

    async def close(self) -> None:
        for task in (*self._robots.values(), *self._reservations.values()):
            task.cancel()
        await self._client.close()

    async def picture(self, url: str) -> Answer:
        """The picture at a canonical address. The caller closes the body of an `ok` answer."""
        answer = await self._follow(url, PictureWish(self.settings))
        if answer.outcome == "ok" and answer.body is not None and answer.body.length == 0:
            answer.body.close()
            return replace(answer, outcome="empty", detail="no bytes", body=None)
        return answer

    async def page(self, url: str) -> Answer:
        """The HTML page at a canonical address; `not_a_page` for anything else."""
        return await self._follow(url, PageWish(self.settings.max_bytes))

    async def _follow(self, url: str, wish: Wish, *, robots: bool = True) -> Answer:
        """Follow redirects, asking robots.txt and taking a turn at every hop."""
        asked, visited = url, {url}
        most = self.settings.max_redirects if robots else max(self.settings.max_redirects, ROBOTS_REDIRECTS)
        while True:
            if (kept_out := self.ban.address(url)) is not None:
                return Answer(kept_out[0], asked, kept_out[1])
            if robots and (refusal := await self._refusal(url)) is not None:
                return Answer(refusal[0], url, refusal[1])
            answer = await self._persist(url, wish)
            if answer.outcome != "redirect" or answer.location is None:
                return answer
            if answer.location in visited:
                return replace(answer, outcome="redirect_loop", detail=f"back to {answer.location}")
            if len(visited) > most:
                return replace(answer, outcome="too_many_redirects", detail=f"more than {len(visited) - 1}")
            url = answer.location
            visited.add(url)

    async def _persist(self, url: str, wish: Wish) -> Answer:
        """One hop, tried again where that may help."""
        gate = self._gate(url)
        for attempt in range(self.settings.retries + 1):
            turn = await gate.enter()
            try:
                async with self._slots:
                    answer = await self._client.get(url, wish)
                again = worth_retrying(answer.outcome, answer.status, answer.detail)
                wait = self._wait(answer, attempt) if again else 0.0
                if answer.status in _PUSH_BACK:
                    gate.pushed_back(turn, min(wait, self.settings.max_wait_s))
                elif not again:
                    gate.went_well()
            finally:
                gate.leave()
            if not again:
                return answer
            if wait > self.settings.max_wait_s:
                return replace(answer, detail=f"{answer.detail}; {_TOO_LONG}")
            if attempt < self.settings.retries:
                await asyncio.sleep(wait)
        return replace(answer, detail=f"{answer.detail}; {self.settings.retries + 1} attempts")

    def _wait(self, answer: Answer, attempt: int) -> float:
        """Seconds before the next attempt: the server's own wish, or doubling with jitter."""
        asked = retry_after(answer.values("retry-after"))
        if asked is not None and answer.status in _PUSH_BACK:
            return asked
        backoff = self.settings.backoff_s * 2.0**attempt * self._jitter.uniform(0.75, 1.25)
        return min(backoff, self.settings.max_wait_s)

    async def _refusal(self, url: str) -> tuple[str, str] | None:
        site = origin(url)
        if self.settings.respect_robots:
            rules = await self._once(self._robots, site, self._ask_robots)
            if (said := rules.refusal(url)) is not None:
                return said
        if self.settings.respect_tdm and (await self._once(self._reservations, site, self._ask_tdm)).reserved(url):
            return "opt_out", f"{WELL_KNOWN_TDM}: tdm-reservation 1"
        return None

    async def _once(self, asked: dict[str, asyncio.Task[Said]], site: str,
                    ask: Callable[[str], Coroutine[Any, Any, Said]]) -> Said:
        """What an origin's file for robots says; it is asked for once, by whoever comes first."""
        task = asked.get(site)
        if task is None:
            task = asked[site] = asyncio.create_task(ask(site))
        return task.result() if task.done() else await asyncio.shield(task)

    async def _ask_tdm(self, site: str) -> Reservations:
        """Without a file that can be read the site does not take part in TDMRep; pages and headers still may."""
        _, body = await self.file(site + WELL_KNOWN_TDM, Wish(TDM_BYTES), robots=False)
        return reservations_from(body)

    async def file(self, url: str, wish: Wish, *, robots: bool = True) -> tuple[Answer, bytes]:
        """A file made for robots and its content, empty unless the outcome is `ok`; for those that say what robots
        may do, robots.txt is not asked first."""
        answer = await self._follow(url, wish, robots=robots)
        if answer.body is None:
            return answer, b""
        body = answer.body.read()
        answer.body.close()
        return answer, body

    async def _ask_robots(self, site: str) -> Robots:
        answer, body = await self.file(f"{site}/robots.txt", Wish(ROBOTS_BYTES, cut=True), robots=False)
        robots = robots_from(answer.outcome, answer.status, body, answer.detail)
        gate = self._gate(f"{site}/")
        gate.delay_s = max(gate.delay_s, min(robots.crawl_delay, self.settings.max_wait_s))
        return robots

    def _gate(self, url: str) -> HostGate:
        """One for all ports and schemes of a host: it is one machine."""
        name = host(url)
        gate = self._gates.get(name)
        if gate is None:
            settings = self.settings
            gate = self._gates[name] = HostGate(settings.connections_per_host, settings.delay_s,
                                                longest_pause_s=settings.max_wait_s)
        return gate


def retry_after(values: tuple[str, ...]) -> float | None:
    """Seconds of a Retry-After header (RFC 9110, section 10.2.3): a number or a date; None when absent or odd."""
    if not values:
        return None
    text = values[0].strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None
