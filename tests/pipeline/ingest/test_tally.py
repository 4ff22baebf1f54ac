"""What people see while rows are fetched: true numbers, and lines that fit their terminal."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from pipeline.ingest.fetch import FetchWorker
from pipeline.ingest.tally import Tally, counted
from pipeline.progress import Progress
from tests.pipeline.ingest import hostile
from tests.pipeline.ingest.hostile import PICTURE, reply
from tests.pipeline.ingest.test_fetch import chunk_of, settings_for


class Clock:
    """Time that passes when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_rates_are_those_of_the_last_seconds() -> None:
    clock = Clock()
    tally = Tally(clock)
    for second in range(60):
        for _ in range(100 if second < 40 else 7):  # it becomes slow
            tally.end(tally.begin(None), "ok", 50_000)
        clock.now += 1
        line = tally.lines()[0]
    assert line == "7 rows/s   0.3 MB/s   4,140 ok"


def test_hosts_that_rows_wait_for() -> None:
    tally = Tally()
    slow = [tally.begin("http://slow.example:8080/a?b") for _ in range(4)]
    for url in ("https://b.example/", "http://[2001:db8::1]:8/x", "https://a.example/", "https://c.example/"):
        tally.begin(url)
    tally.end(slow[0], "timeout", 0)
    tally.end(tally.begin("https://quick.example/1"), "ok", 10)
    tally.end(tally.begin("file:///pictures/1"), "ok", 10)
    assert tally.lines()[1] == "rows waiting for slow.example 3, [2001:db8::1] 1, a.example 1, 2 more hosts"


@pytest.mark.parametrize(("counts", "said"), [
    ({}, ""), ({"not_found": 5, "ok": 1}, "1 ok, 5 not_found"),
    ({"ok": 9120, "a": 1, "b": 2, "c": 30, "d": 4, "e": 5}, "9,120 ok, 30 c, 5 e, 4 d, 3 others"),
])
def test_counts_in_words(counts: dict[str, int], said: str) -> None:
    assert counted(counts, 4) == said


def test_rows_that_are_fetched_are_counted(tmp_path: Path) -> None:
    paths = {f"/{n}.png": reply(PICTURE) for n in range(3)}
    tally = Tally()
    with hostile.serve({"/robots.txt": reply(b"", 404), **paths}) as server:
        worker = FetchWorker(settings_for(server), str(tmp_path), tally=tally)
        worker(chunk_of([server.base + path for path in (*paths, "/gone")]))
    lines = tally.lines()
    assert lines[0].endswith("3 ok, 1 not_found")
    assert len(lines) == 1  # nobody is waited for


@pytest.mark.parametrize("width", [80, 120])
def test_the_panel_fits_the_terminal_and_leaves_only_its_bar(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = io.StringIO()
    progress = Progress()
    progress.console = Console(file=drawn, width=width, force_terminal=True, color_system=None, legacy_windows=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    long = "rows waiting for " + ", ".join(f"a-rather-long-host-name-{n}.example.org 1,000" for n in range(9))
    with progress.task("ingest", 1_000_000, lambda: ["1,234 rows/s", long]) as task:
        task.advance(123_456)
    lines = [line for line in drawn.getvalue().replace("\r", "\n").split("\n") if not line.startswith("\x1b[")]
    assert max(len(line) for line in lines) <= width
    assert any("1,234 rows/s" in line for line in drawn.getvalue().split("\n"))
    last = drawn.getvalue().rstrip("\n").rsplit("\x1b[2K", 1)[-1]
    assert "123456/1000000" in last
    assert "rows/s" not in last
