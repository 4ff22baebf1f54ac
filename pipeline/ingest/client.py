"""One GET, whatever the server does: bounded in time and bytes, and never into a private network."""

from __future__ import annotations

import asyncio
import zlib
from dataclasses import dataclass, field
from urllib.parse import quote

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy, MultiMapping
from yarl import URL

from pipeline.ingest.addresses import canonical
from pipeline.ingest.body import Body
from pipeline.ingest.coding import Unpacker, codings, unpacker
from pipeline.ingest.failures import explain
from pipeline.ingest.guard import Guard
from pipeline.ingest.magic import HEAD
from pipeline.ingest.politeness import user_agent
from pipeline.ingest.resolver import Resolver
from pipeline.ingest.settings import FetchSettings

_REDIRECTS = (301, 302, 303, 307, 308)
_GONE = (404, 410)
_HEADER_LINE = 16 * 1024
_NO_HEADERS: MultiMapping[str] = CIMultiDictProxy(CIMultiDict())
_ASCII = "".join(map(chr, range(128)))


@dataclass(frozen=True)
class Answer:
    """How one request ended. `url` is the address that answered; `location` is where a redirect leads."""

    outcome: str
    url: str
    detail: str = ""
    status: int | None = None
    body: Body | None = None
    location: str | None = None
    headers: MultiMapping[str] = field(default_factory=lambda: _NO_HEADERS)

    def values(self, header: str) -> tuple[str, ...]:
        """All values of a header, whatever the case of its name."""
        return tuple(self.headers.getall(header, ()))


class Stop(Exception):  # noqa: N818 - not an error of the program: it ends a request with an outcome
    """Ends a request with an outcome."""

    def __init__(self, outcome: str, detail: str) -> None:
        super().__init__(detail)
        self.outcome, self.detail = outcome, detail


class Wish:
    """What the caller wants of an answer; this base takes any body of up to `max_bytes`."""

    accept = "*/*"
    knows = False
    """Whether `head_seen` knows by its bytes what was wished for."""

    def __init__(self, max_bytes: int, *, cut: bool = False) -> None:
        self.max_bytes = max_bytes
        self.cut = cut
        """Take the first `max_bytes` of a longer body instead of refusing it."""

    def headers_seen(self, answer: Answer) -> None:
        """Raise Stop when the headers of a 200 answer already say no."""

    def head_seen(self, head: bytes) -> None:
        """Raise Stop when the first bytes already say no."""


class Client:
    """A connection pool and its rules. Make, use and close it inside one running loop."""

    def __init__(self, settings: FetchSettings) -> None:
        self._settings = settings
        self._guard = Guard(settings.allow_hosts)
        connector = aiohttp.TCPConnector(
            limit=settings.concurrency, resolver=Resolver(self._guard), use_dns_cache=False,
            socket_factory=self._guard.socket, enable_cleanup_closed=True,
        )
        self._session = aiohttp.ClientSession(
            connector=connector, auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=settings.connect_s, sock_read=settings.idle_s),
            headers={"User-Agent": user_agent(settings.contact)}, cookie_jar=aiohttp.DummyCookieJar(),
            max_line_size=_HEADER_LINE, max_field_size=_HEADER_LINE,
        )

    async def close(self) -> None:
        await self._session.close()

    async def get(self, url: str, wish: Wish) -> Answer:
        """One request: no redirect followed, no retry. `url` is canonical. Never raises for what servers do.

        The caller owns the answer's body and closes it.
        """
        target = URL(url, encoded=True)
        seen: list[Answer] = []
        try:
            self._guard.check_literal(target.raw_host or "", target.port or 0)
            async with asyncio.timeout(self._settings.deadline_s) as deadline:
                return await self._exchange(target, wish, seen)
        except Stop as stop:
            outcome, detail = stop.outcome, stop.detail
        except (aiohttp.ClientError, OSError, ValueError) as error:
            outcome, detail = explain(error)
            if outcome == "timeout" and deadline.expired():
                detail = f"not complete within {self._settings.deadline_s:g} s"
        first = seen[0] if seen else Answer(outcome, url)
        return Answer(outcome, url, detail, first.status, headers=first.headers)

    async def _exchange(self, address: URL, wish: Wish, seen: list[Answer]) -> Answer:
        """Puts what the headers say into `seen`, so that it is known however the body ends."""
        headers, url = {"Accept": wish.accept, "Accept-Encoding": "gzip, deflate"}, str(address)
        request = self._session.get(address, headers=headers, allow_redirects=False)
        async with request as response:
            answer = Answer("ok", url, "", response.status, headers=response.headers)
            seen.append(answer)
            if response.status in _REDIRECTS and (target := response.headers.get("Location")):
                location = _location(target, url)
                if location is None:
                    raise Stop("bad_url", f"redirect to {target[:200]!r}")
                return Answer("redirect", url, "", response.status, None, location, answer.headers)
            if response.status not in (200, 203):
                raise Stop("not_found" if response.status in _GONE else "http_error", f"HTTP {response.status}")
            wish.headers_seen(answer)
            body = await _body(response, wish)
            return Answer("ok", url, "", response.status, body, None, answer.headers)


async def _body(response: aiohttp.ClientResponse, wish: Wish) -> Body:
    body = Body()
    try:
        await _fill(body, response, wish)
    except BaseException:
        body.close()
        raise
    return body


async def _fill(body: Body, response: aiohttp.ClientResponse, wish: Wish) -> None:
    announced, names = response.content_length, codings(response.headers.getall("Content-Encoding", ()))
    unpack = unpacker(names)
    strange = f"compressed with {', '.join(names)[:40]!r}, which was not asked for" if names and not unpack else ""
    if strange and not wish.knows:
        raise Stop("bad_response", strange)
    if announced is not None and announced > wish.max_bytes and not wish.cut and unpack is None:
        raise Stop("too_large", f"announces {announced} bytes")
    judged = False
    async for piece in response.content.iter_any():
        room = wish.max_bytes - body.length
        plain = piece if unpack is None else _unpacked(unpack, piece, room + 1)
        body.append(plain[:room])
        if not judged and len(body.head) == HEAD:
            judged = True
            _judge(body, wish, strange)
        if len(plain) > room:
            if wish.cut:
                return
            raise Stop("too_large", f"more than {wish.max_bytes} bytes")
        if unpack is not None and unpack.over:
            break
    if unpack is not None and not unpack.complete:
        raise Stop("disconnected", "the compressed body breaks off")
    if body.length and not judged:
        _judge(body, wish, strange)


def _judge(body: Body, wish: Wish, strange: str) -> None:
    """Servers also name codings that they did not use ("none", "utf-8"): then the bytes are what is wished for."""
    try:
        wish.head_seen(body.head)
    except Stop as stop:
        raise (Stop("bad_response", strange) if strange else stop) from None


def _unpacked(unpack: Unpacker, piece: bytes, room: int) -> bytes:
    """At most `room` bytes: a bomb is never unpacked further than the caller's limit."""
    try:
        return unpack.feed(piece, room)
    except zlib.error as error:
        raise Stop("bad_response", f"broken compression: {error}") from None


def _location(target: str, url: str) -> str | None:
    """Where a redirect leads; bytes that are no text are escaped as they are, as browsers do."""
    try:
        return canonical(quote(target.encode("utf-8", "surrogateescape"), safe=_ASCII), url)
    except UnicodeEncodeError:
        return None
