"""Names → addresses, judged and remembered: what a name leads to, and that it leads nowhere."""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from pipeline.ingest.guard import Guard

Lookup = Callable[[str, int, socket.AddressFamily], Awaitable[list[ResolveResult]]]
_Key = tuple[str, int, int]

KEPT_S = 600.0
"""How long an answer holds, also that there is no such name, seconds; the system's resolver tells no time to live."""

TEMPORARY_S = 0.3
"""The same for a failure that may pass: enough for rows that come together, not for a further attempt."""

MOST_NAMES = 100_000


class Resolver(AbstractResolver):
    """The system's resolver in threads. Each name is asked for once at a time; `lookup` may stand for the system's."""

    def __init__(self, guard: Guard, lookup: Lookup | None = None) -> None:
        self._guard = guard
        self._lookup: Lookup = lookup or ThreadedResolver().resolve
        self._known: OrderedDict[_Key, tuple[float, list[ResolveResult] | socket.gaierror]] = OrderedDict()
        self._asking: dict[_Key, asyncio.Task[list[ResolveResult] | socket.gaierror]] = {}
        self._clock = asyncio.get_running_loop().time

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Raises socket.gaierror for names without an address, PrivateAddress for those that lead inside."""
        key = (host, port, int(family))
        until, found = self._known.get(key, (0.0, None))
        if found is None or until <= self._clock():
            asking = self._asking.get(key)
            if asking is None:
                asking = self._asking[key] = asyncio.create_task(self._ask(key, family))
            found = await asyncio.shield(asking)  # who gives up does not spoil it for the others
        if isinstance(found, socket.gaierror):
            raise socket.gaierror(*found.args)
        return self._guard.approve(host, port, found)

    async def close(self) -> None:
        for task in self._asking.values():
            task.cancel()

    async def _ask(self, key: _Key, family: socket.AddressFamily) -> list[ResolveResult] | socket.gaierror:
        kept: float = KEPT_S
        found: list[ResolveResult] | socket.gaierror
        try:
            found = await self._lookup(key[0], key[1], family)
        except socket.gaierror as error:
            found, kept = error, TEMPORARY_S if error.errno in MAY_PASS else KEPT_S
        except UnicodeError:  # a label that is too long
            found = socket.gaierror(socket.EAI_NONAME, "no such name")
        finally:
            del self._asking[key]
        self._known[key] = (self._clock() + kept, found)
        if len(self._known) > MOST_NAMES:
            self._known.popitem(last=False)
        return found


MAY_PASS = frozenset({socket.EAI_AGAIN, socket.EAI_SYSTEM, socket.EAI_MEMORY})
"""Failures of looking up a name (getaddrinfo) that say nothing of the name: no answer in time, SERVFAIL, no descriptors
left. The others are final: there is no such name, or it has no address."""
