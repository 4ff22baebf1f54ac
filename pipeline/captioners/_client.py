"""Asking an OpenAI-compatible server: many requests at once, again where that helps, and never for ever.

Network work runs in a thread of its own, so that pictures can be read and scaled meanwhile. The key is in the
session's header and nowhere else.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import random
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import aiohttp

from pipeline.captioners._reply import Usage, text_in
from pipeline.captioners.base import Failure
from pipeline.errors import ModelError

GIVE_UP_AFTER = 64
"""Requests one after the other without any answer, after which the server counts as gone."""
Answers = list[str | Failure]
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0


@dataclass(frozen=True)
class Limits:
    """How hard a server is asked; none of it changes an answer."""

    concurrency: int
    attempts: int
    timeout_s: float
    deadline_s: float
    max_reply_bytes: int


class Client:
    """One server for one captioner. `usage`, `requests` and `failures` count what was asked so far."""

    def __init__(self, url: str, key: str, limits: Limits) -> None:
        self.url, self.limits = url.rstrip("/"), limits
        self.usage, self.requests, self.failures = Usage(), 0, dict[str, int]()
        self._unanswered, self._stopped = 0, None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="caption-network", daemon=True)
        self._thread.start()
        self._slots, self._session = asyncio.run_coroutine_threadsafe(_make(limits, key), self._loop).result()
        self.close = weakref.finalize(self, _shut, self._loop, self._thread, self._session)

    _stopped: ModelError | None

    def start(self, bodies: Sequence[Mapping[str, Any]], ready: Callable[[], None]) -> Callable[[], Answers]:
        """Begin to ask; the returned function waits for one answer per body, in their order.

        `ready` is called in the network's thread when all are there, or none will come. The wait raises
        ModelError when the server refuses the key or has stopped answering.
        """
        future = asyncio.run_coroutine_threadsafe(self._all(bodies), self._loop)
        future.add_done_callback(lambda _: ready())

        def wait() -> Answers:
            try:
                return future.result()
            except BaseException:
                future.cancel()
                raise

        return wait

    async def _all(self, bodies: Sequence[Mapping[str, Any]]) -> Answers:
        return list(await asyncio.gather(*(self._answer(body) for body in bodies)))

    async def _answer(self, body: Mapping[str, Any]) -> str | Failure:
        async with self._slots:
            if self._stopped is not None:
                raise self._stopped
            answer = await self._tries(body, time.monotonic() + self.limits.deadline_s)
        if isinstance(answer, Failure):
            self.failures[answer.reason] = self.failures.get(answer.reason, 0) + 1
        self._unanswered = self._unanswered + 1 if isinstance(answer, Failure) and answer.unanswered else 0
        if self._unanswered >= GIVE_UP_AFTER:
            self._stopped = ModelError(
                f"{self.url} gave no answer to {GIVE_UP_AFTER} requests one after the other",
                hint="captions so far are kept; run the same command when the server is well again",
            )
        if self._stopped is not None:
            raise self._stopped
        return answer

    async def _tries(self, body: Mapping[str, Any], until: float) -> str | Failure:
        data = json.dumps(body).encode()
        for attempt in range(self.limits.attempts):
            self.requests += 1
            left = until - time.monotonic()
            answer, asked_pause = await self._once(data, max(0.001, min(self.limits.timeout_s, left)))
            if not isinstance(answer, Failure) or not answer.again:
                return answer
            pause = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**attempt) * random.uniform(0.5, 1)
            if asked_pause is not None:
                pause = asked_pause + random.uniform(0, 0.25) * min(asked_pause, 1)
            if attempt + 1 == self.limits.attempts or time.monotonic() + pause >= until:
                break
            await asyncio.sleep(pause)
        return answer

    async def _once(self, data: bytes, timeout_s: float) -> tuple[str | Failure, float | None]:
        """The answer, and how long the server wants to be left alone, seconds."""
        try:
            async with asyncio.timeout(timeout_s):
                async with self._session.post(f"{self.url}/chat/completions", data=data, allow_redirects=False) as got:
                    if got.status != 200:
                        return self._refused(got.status), _retry_after(got.headers.get("retry-after"))
                    raw = await _bounded(got, self.limits.max_reply_bytes)
        except TimeoutError:
            return Failure("timeout"), None
        except (aiohttp.ClientError, OSError, ValueError):
            return Failure("unreachable"), None
        if raw is None:
            return Failure("too_large"), None
        answer, used = text_in(raw)
        self.usage += used
        return answer, None

    def _refused(self, status: int) -> Failure:
        if status == 401 or 300 <= status < 400:
            self._stopped = refused(self.url, status)
        if status in (408, 425, 429):
            return Failure("busy")
        return Failure("server_error" if status >= 500 else f"http_{status}")


def refused(url: str, status: int) -> ModelError:
    """The error for a server that will answer nothing as things stand. 401, 403 and 3xx."""
    if 300 <= status < 400:
        return ModelError(f"{url} sends requests elsewhere (HTTP {status})",
                          hint="give the address it leads to, up to and with /v1, as the captioner's url")
    return ModelError(f"{url} refuses the key (HTTP {status})",
                      hint="set the captioner's key_env to the name of an environment variable that holds a good key")


def models_at(url: str, key: str, timeout_s: float = 15.0) -> list[str] | None:
    """Names of the models that a server offers; None when it does not list them.

    Raises ModelError when nothing answers there or the key is refused.
    """
    return asyncio.run(_models(url.rstrip("/"), key, timeout_s))


async def _models(url: str, key: str, timeout_s: float) -> list[str] | None:
    try:
        async with asyncio.timeout(timeout_s), aiohttp.ClientSession(headers=_headers(key)) as session:
            async with session.get(f"{url}/models", allow_redirects=False) as got:
                status, raw = got.status, await _bounded(got, 1 << 24)
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
        what = "within 15 seconds" if isinstance(error, TimeoutError) else f"({type(error).__name__})"
        raise ModelError(f"no captioning server answers at {url} {what}",
                         hint='start it, or correct the captioner\'s url; caption.when = "none" goes on without'
                         ) from None
    if status in (401, 403) or 300 <= status < 400:
        raise refused(url, status)
    if status != 200 or raw is None:
        return None
    try:
        listed = json.loads(raw)["data"]
        return [str(each["id"]) for each in listed]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _headers(key: str) -> dict[str, str]:
    found = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    return {**found, "Authorization": f"Bearer {key}"} if key else found


async def _make(limits: Limits, key: str) -> tuple[asyncio.Semaphore, aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(limit=limits.concurrency)
    timeout = aiohttp.ClientTimeout(total=None)
    return asyncio.Semaphore(limits.concurrency), aiohttp.ClientSession(
        connector=connector, timeout=timeout, headers=_headers(key), cookie_jar=aiohttp.DummyCookieJar()
    )


async def _bounded(answer: aiohttp.ClientResponse, most: int) -> bytes | None:
    """The body; None when it is longer than `most` bytes."""
    parts, length = [], 0
    async for part in answer.content.iter_chunked(1 << 16):
        length += len(part)
        if length > most:
            return None
        parts.append(part)
    return b"".join(parts)


def _retry_after(text: str | None) -> float | None:
    """Seconds of a Retry-After header (RFC 9110, section 10.2.3): a number or a date; None when absent or odd."""
    if text is None:
        return None
    if text.strip().isascii() and text.strip().isdigit():
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def _shut(loop: asyncio.AbstractEventLoop, thread: threading.Thread, session: aiohttp.ClientSession) -> None:
    with suppress(TimeoutError):
        asyncio.run_coroutine_threadsafe(_end(session), loop).result(timeout=5)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(timeout=5)
    if not thread.is_alive():
        loop.close()


async def _end(session: aiohttp.ClientSession) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await session.close()
