"""Progress on stderr: a bar on a terminal, with lines below it where there is more to tell; one line elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar
from rich.text import Text


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


class _Panel(Bar):
    """A bar with lines below it that are asked for at every redraw, and gone when the work is done."""

    def __init__(self, *columns: ProgressColumn, console: Console, lines: Callable[[], list[str]] | None) -> None:
        self._lines = lines
        super().__init__(*columns, console=console)

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if self._lines is not None and not self.finished:
            for line in self._lines():
                yield Text(f"    {line}", style="dim", no_wrap=True, overflow="ellipsis")

    def stop(self) -> None:
        self._lines = None
        super().stop()


class Progress:
    """`quiet` silences everything but errors."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet)
        self._quiet = quiet

    def say(self, line: str) -> None:
        self.console.print(line, highlight=False)

    @contextmanager
    def task(self, name: str, total: int | None, lines: Callable[[], list[str]] | None = None) -> Iterator[Task]:
        """A bar for `total` rows, None while that is not known; when nothing is left to do, nothing is drawn.

        `lines` tells more, in lines of its own below the bar; it is called from another thread, a few times a second.
        """
        if self._quiet or total == 0 or not sys.stderr.isatty():
            begun = time.monotonic()
            task = Task(None, 0)
            yield task
            if task.done:
                seconds = time.monotonic() - begun
                self.say(f"  {name}: {task.done} rows in {seconds:.1f} s ({task.done / max(seconds, 1e-9):.0f}/s)")
            return
        width = max(10, min(40, self.console.width - 61))
        columns = (TextColumn("  {task.description:<16}"), BarColumn(width), MofNCompleteColumn(), TimeElapsedColumn(),
                   TextColumn("left"), TimeRemainingColumn())
        with _Panel(*columns, console=self.console, lines=lines) as bar:
            yield Task(bar, bar.add_task(name, total=total))
