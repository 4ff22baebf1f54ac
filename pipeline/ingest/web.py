"""The network behind a plain function call: an event loop in a thread of its own.

A thread, because a notebook already runs a loop in the main one, and because Ctrl-C then stops the caller at
once. Loop, connections and robots.txt live as long as the object, over many calls.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from multidict import CIMultiDict

from pipeline.ingest.addresses import canonical
from pipeline.ingest.ban import NOTHING, Ban
from pipeline.ingest.client import Answer, Wish
from pipeline.ingest.fetcher import Fetcher, opted_out
from pipeline.ingest.pages import read_page
from pipeline.ingest.settings import FetchSettings
from pipeline.ingest.sources.base import File, Page

Result = TypeVar("Result")

_BIG = 1 << 18
"""Bytes from which a page is read in a thread of its own."""
_THREADS = 32  # they wait for name servers and disks


class Courier:
    """Runs coroutines that need a Fetcher and waits for them."""

    def __init__(self, settings: FetchSettings, ban: Ban = NOTHING) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(ThreadPoolExecutor(_THREADS, thread_name_prefix="ingest-thread"))
        self._thread = threading.Thread(target=self._loop.run_forever, name="ingest-network", daemon=True)
        self._thread.start()
        self._fetcher = asyncio.run_coroutine_threadsafe(_make(settings, ban), self._loop).result()
        self.close = weakref.finalize(self, _shut, self._loop, self._thread, self._fetcher)

    def call(self, work: Callable[[Fetcher], Awaitable[Result]]) -> Result:
        """Run `work(fetcher)` to its end."""
        return self.start(work)()

    def start(self, work: Callable[[Fetcher], Awaitable[Result]], ready: Callable[[], None] = lambda: None,
              ) -> Callable[[], Result]:
        """Begin `work(fetcher)`; the returned function waits for it. An interrupt of the waiter cancels it.

        `ready` is called in the network's thread when the work has ended, however it did.
        """

        async def run() -> Result:
            return await work(self._fetcher)

        future = asyncio.run_coroutine_threadsafe(run(), self._loop)
        future.add_done_callback(lambda _: ready())

        def wait() -> Result:
            try:
                return future.result()
            except BaseException:
                future.cancel()
                raise

        return wait


async def _make(settings: FetchSettings, ban: Ban) -> Fetcher:
    return Fetcher(settings, ban)


def _shut(loop: asyncio.AbstractEventLoop, thread: threading.Thread, fetcher: Fetcher) -> None:
    with suppress(TimeoutError):  # a thread may hang on a dead disk; the process need not wait for it
        asyncio.run_coroutine_threadsafe(_end(fetcher), loop).result(timeout=5)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(timeout=5)
    if not thread.is_alive():
        loop.close()


async def _end(fetcher: Fetcher) -> None:
    """Cancel whatever is under way and wait for that, so that nothing asks a closed session for anything."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: None)
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await fetcher.close()


class LazyWeb:
    """What sources see of the network (see `sources.base.Web`); nothing is started before it is asked for."""

    def __init__(self, settings: FetchSettings, ban: Ban = NOTHING) -> None:
        self._settings, self._ban = settings, ban
        self._courier: Courier | None = None

    def pages(self, urls: Sequence[str]) -> list[Page]:
        """Read pages side by side, politely; answers come in the order of `urls`."""
        if self._courier is None:
            self._courier = Courier(self._settings, self._ban)

        async def all_of(fetcher: Fetcher) -> list[Page]:
            return list(await asyncio.gather(*(_page(fetcher, url) for url in urls)))

        return self._courier.call(all_of)

    def files(self, urls: Sequence[str], max_bytes: int) -> list[File]:
        """Read files whole and politely; answers come in the order of `urls`."""
        if self._courier is None:
            self._courier = Courier(self._settings, self._ban)

        async def all_of(fetcher: Fetcher) -> list[File]:
            return list(await asyncio.gather(*(_file(fetcher, url, max_bytes) for url in urls)))

        return self._courier.call(all_of)

    def read(self, url: str, body: bytes, headers: Mapping[str, tuple[str, ...]]) -> Page:
        """A page that is at hand, read as one from the network."""
        return _page_of(Answer("ok", url, headers=_headers(headers)), body, self._settings)

    def opt_out(self, headers: Mapping[str, tuple[str, ...]]) -> str | None:
        """The opt-out that an answer's headers carry, in words."""
        return opted_out(Answer("ok", "", headers=_headers(headers)), self._settings)

    def close(self) -> None:
        if self._courier is not None:
            self._courier.close()
            self._courier = None


def _headers(given: Mapping[str, tuple[str, ...]]) -> CIMultiDict[str]:
    return CIMultiDict([(name, value) for name, values in given.items() for value in values])


async def _file(fetcher: Fetcher, given: str, max_bytes: int) -> File:
    url = canonical(given)
    if url is None:
        return File(given, "bad_url", "not an http(s) address")
    answer, body = await fetcher.file(url, Wish(max_bytes))
    return File(answer.url, answer.outcome, answer.detail, body)


async def _page(fetcher: Fetcher, given: str) -> Page:
    url = canonical(given)
    if url is None:
        return Page(given, "bad_url", "not an http(s) address")
    answer = await fetcher.page(url)
    if answer.outcome != "ok" or answer.body is None:
        return Page(answer.url, answer.outcome, answer.detail)
    body = answer.body.read()
    answer.body.close()
    if len(body) > _BIG:  # it must not keep the loop from the deadlines of others
        return await asyncio.to_thread(_page_of, answer, body, fetcher.settings)
    return _page_of(answer, body, fetcher.settings)


def _page_of(answer: Answer, body: bytes, settings: FetchSettings) -> Page:
    kind = (answer.values("content-type") or ("",))[0]
    page = read_page(answer.url, body, kind, opt_outs=settings.opt_outs, respect_tdm=settings.respect_tdm)
    in_header = opted_out(answer, settings)
    return page if in_header is None else replace(page, opt_out=in_header)
