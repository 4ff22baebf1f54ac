"""How hard one host is leant on: requests at once, pauses, and giving way when it pushes back.

Additive increase, multiplicative decrease, as TCP does it (RFC 5681): an answer that asks for less halves the requests
at once, and below one it doubles a pause between them; every round of good answers takes a tenth of the pause off, and
then allows one request more, up to the recipe's limit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

LEAST_PAUSE_S = 0.25
"""The first pause between requests when a host pushes back although it is asked one at a time, seconds."""


@dataclass(frozen=True)
class Turn:
    """The right to one request, since `begun` (the loop's clock)."""

    begun: float


class HostGate:
    """Limits one host to `most` requests at once, `delay_s` between two starts, and less when it pushes back.

    Make and use it inside one running loop. Who has entered must leave.
    """

    def __init__(self, most: int, delay_s: float, *, longest_pause_s: float = 30.0) -> None:
        self.most, self.delay_s = most, delay_s
        self.allowed, self.pause_s = float(most), 0.0
        self.under_way = 0
        self._longest = longest_pause_s
        self._next = self._slowed = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._clock = asyncio.get_running_loop().time

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def enter(self) -> Turn:
        """Wait until the host may be asked, first come first served."""
        now = self._clock()
        if self._waiting or not self._free(now):
            place = asyncio.get_running_loop().create_future()
            self._waiting.append(place)
            self._wake()
            try:
                await place
            except asyncio.CancelledError:
                if not place.cancelled():
                    self.leave()
                elif place in self._waiting:
                    self._waiting.remove(place)
                raise
            return Turn(self._clock())
        self._start(now)
        return Turn(now)

    def leave(self) -> None:
        self.under_way -= 1
        if self._waiting:
            self._wake()

    def went_well(self) -> None:
        """The host answered as it should: allow a little more again."""
        if self.pause_s > 0.0:
            self.pause_s *= 1 - 0.1 / max(1.0, self.allowed)
            if self.pause_s < 0.01:
                self.pause_s = 0.0
        elif self.allowed < self.most:
            self.allowed = min(float(self.most), self.allowed + 1 / self.allowed)

    def pushed_back(self, turn: Turn, hold_s: float) -> None:
        """The host asks for less (429 or 503): nobody asks it for `hold_s`, and then fewer do.

        Requests begun before the last slowing down say nothing new.
        """
        now = self._clock()
        self._next = max(self._next, now + hold_s)
        if turn.begun < self._slowed:
            return
        self._slowed = now
        if self.allowed >= 2:
            self.allowed = max(1.0, self.allowed / 2)
        else:
            self.allowed = 1.0
            self.pause_s = min(self._longest, max(LEAST_PAUSE_S, 2 * self.pause_s))

    def _free(self, now: float) -> bool:
        return self.under_way < int(self.allowed) and now >= self._next

    def _start(self, now: float) -> None:
        self.under_way += 1
        self._next = max(self._next, now + max(self.delay_s, self.pause_s))

    def _wake(self) -> None:
        """Let in as many of those who wait as may be, and come back when the pause is over."""
        now = self._clock()
        while self._waiting and self._free(now):
            place = self._waiting.popleft()
            if not place.done():
                self._start(now)
                place.set_result(None)
        if self._waiting and self._timer is None and self.under_way < int(self.allowed):
            self._timer = asyncio.get_running_loop().call_at(self._next, self._resume)

    def _resume(self) -> None:
        self._timer = None
        self._wake()
