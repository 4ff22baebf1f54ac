"""Progress on stderr: a bar on a terminal, one line per stage elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar


class Task:
    """Counts rows done; `advance` may be called from one thread only."""

    def __init__(self, bar: Bar | None, number: int) -> None:
        self._bar, self._number = bar, number
        self.done = 0

    def expect(self, total: int | None) -> None:
        """There are `total` rows in all; None while that is not known."""
        if self._bar is not None:
            self._bar.update(self._number, total=total)  # type: ignore[arg-type]

    def advance(self, rows: int) -> None:
        self.done += rows
        if self._bar is not None:
            self._bar.advance(self._number, rows)  # type: ignore[arg-type]


class Progress:
    """`quiet` silences everything but errors."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet)
        self._quiet = quiet

    def say(self, line: str) -> None:
        self.console.print(line, highlight=False)

    @contextmanager
    def task(self, name: str, total: int | None) -> Iterator[Task]:
        """A bar for `total` rows, None while that is not known; when nothing is left to do, nothing is drawn."""
        if self._quiet or total == 0 or not sys.stderr.isatty():
            begun = time.monotonic()
            task = Task(None, 0)
            yield task
            if task.done:
                seconds = time.monotonic() - begun
                self.say(f"  {name}: {task.done} rows in {seconds:.1f} s ({task.done / max(seconds, 1e-9):.0f}/s)")
            return
        columns = (TextColumn("  {task.description:<20}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                   TimeRemainingColumn())
        with Bar(*columns, console=self.console) as bar:
            yield Task(bar, bar.add_task(name, total=total))
