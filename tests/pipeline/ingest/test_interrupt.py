"""Ctrl-C and SIGTERM in the middle of fetching: quiet, and nothing finished is lost."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pipeline
from tests.pipeline.ingest import hostile
from tests.pipeline.ingest.hostile import Hostile, reply

ROWS, CHUNK = 120, 10
RECIPE = """
name = "stopped"
[ingest]
chunk_rows = {chunk}
[ingest.fetch]
contact = "tests@example.org"
allow_hosts = ["127.0.0.1"]
[[ingest.sources]]
kind = "urls"
name = "list"
path = "list.txt"
"""


def slowly(server: Hostile, connection: socket.socket, path: str) -> None:
    time.sleep(0.05)
    connection.sendall(reply(hostile.png(int(path[1:-4]) + 1), Connection="close"))


def start(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pipeline", "ingest", "--recipe", "recipe.toml", "--workdir", "."]
    root = str(Path(__file__).parents[3])
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "PYTHONPATH": root})


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_says_so_in_a_line_and_goes_on(tmp_path: Path, how: signal.Signals) -> None:
    paths: dict[str, bytes | hostile.Behaviour] = {f"/{n}.png": slowly for n in range(ROWS)}
    with hostile.serve({"/robots.txt": reply(b"", 404), **paths}) as server:
        (tmp_path / "list.txt").write_text("".join(f"{server.base}{path}\n" for path in paths))
        (tmp_path / "recipe.toml").write_text(RECIPE.format(chunk=CHUNK))
        stopped = start(tmp_path)
        work = tmp_path / "manifests/stopped/ingest/.work/main"
        while not list(work.rglob("chunk-*.parquet")):  # one chunk is finished, others are under way
            assert stopped.poll() is None, stopped.communicate()[1]
            time.sleep(0.02)
        stopped.send_signal(how)
        said = stopped.communicate(timeout=20)[1]
        assert stopped.returncode in (130, 143, -how)
        for trace in ("Traceback", "Task ", "exception", "Error", "Unclosed"):
            assert trace not in said, said
        kept = len(list(work.rglob("chunk-*.parquet"))) * CHUNK
        before = server.hits.copy()
        again = start(tmp_path)
        assert again.wait(60) == 0, again.communicate()[1]
        assert again.communicate()[1]
        asked = {path for path in paths if server.hits[path] > before[path]}
        assert len(asked) == ROWS - kept < ROWS
    manifest = pipeline.open(str(tmp_path / "manifests/stopped")).stage("ingest")
    rows = manifest.arrow(["url", "fetch_outcome"]).to_pylist()
    assert [row["url"].rsplit("/", 1)[1] for row in rows] == [f"{n}.png" for n in range(ROWS)]
    assert {row["fetch_outcome"] for row in rows} == {"ok"}
