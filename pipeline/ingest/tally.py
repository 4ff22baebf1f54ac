"""What is going on while rows are fetched, in two lines for people: how fast, with what outcomes, who is waited for."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping

from pipeline.ingest.addresses import host, is_local
from pipeline.ingest.outcomes import OK

WINDOW_S = 10.0
"""Rates are those of the last so many seconds."""

_SHOWN_OUTCOMES, _SHOWN_HOSTS = 4, 3


class Tally:
    """Counts as rows begin and end, in the network's thread; `lines` may be asked for in another."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._outcomes: Counter[str] = Counter()
        self._rows = self._bytes = 0
        self._waiting: Counter[str] = Counter()
        self._marks: deque[tuple[float, int, int]] = deque([(clock(), 0, 0)])

    def begin(self, url: str | None) -> str | None:
        """A row is under way, at a canonical address if anybody is asked for it; give the result to `end`."""
        if url is None or is_local(url):
            return None
        name = host(f"{url}/")
        self._waiting[name] += 1
        return name

    def end(self, name: str | None, outcome: str, length: int) -> None:
        """A row has its outcome, and `length` bytes."""
        self._rows += 1
        self._bytes += length
        self._outcomes[outcome] += 1
        if name is not None:
            self._waiting[name] -= 1
            if not self._waiting[name]:
                del self._waiting[name]

    def lines(self) -> list[str]:
        """Rates and outcomes; the hosts with most rows waiting for them, where any wait."""
        rows, size = self._rates()
        said = [f"{rows:,.0f} rows/s   {size / 1e6:,.1f} MB/s   {counted(self._outcomes, _SHOWN_OUTCOMES)}"]
        hosts = list(self._waiting.items())
        hosts.sort(key=lambda each: (-each[1], each[0]))
        if hosts:
            named = ", ".join(f"{name} {waiting:,}" for name, waiting in hosts[:_SHOWN_HOSTS])
            others = f", {len(hosts) - _SHOWN_HOSTS:,} more hosts" if len(hosts) > _SHOWN_HOSTS else ""
            said.append(f"rows waiting for {named}{others}")
        return said

    def _rates(self) -> tuple[float, float]:
        """Rows and bytes a second over the last WINDOW_S."""
        now = self._clock()
        self._marks.append((now, self._rows, self._bytes))
        while len(self._marks) > 2 and now - self._marks[1][0] >= WINDOW_S:
            self._marks.popleft()
        then, rows, size = self._marks[0]
        seconds = max(now - then, 1e-3)
        return (self._rows - rows) / seconds, (self._bytes - size) / seconds


def counted(outcomes: Mapping[str, int], most: int | None = None) -> str:
    """`9,120 ok, 210 not_found, 3 others`: `ok` first, then by number; nothing for no rows."""
    ordered = list(outcomes.items())  # copied at once: another thread may be counting
    ordered.sort(key=lambda each: (each[0] != OK, -each[1], each[0]))
    shown = ordered if most is None or len(ordered) <= most + 1 else ordered[:most]
    words = [f"{count:,} {outcome}" for outcome, count in shown]
    if len(shown) < len(ordered):
        words.append(f"{sum(count for _, count in ordered[len(shown):]):,} others")
    return ", ".join(words)
