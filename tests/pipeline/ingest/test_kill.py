"""kill -9 while lists are fetched: nothing finished is lost or asked for again, nothing half is left."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import socket
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import pipeline
from pipeline import storage
from tests.pipeline.ingest import hostile
from tests.pipeline.ingest.hostile import HTML, Hostile, reply

PICTURES, CHUNK = 120, 8
CHUNKS_TWICE = 4
"""What the setting `chunk_rows` promises: so many chunks at most are fetched again."""


def late(answer: bytes) -> hostile.Behaviour:
    """Answers come in any order, each a moment after it was asked for."""

    def behave(server: Hostile, connection: socket.socket, path: str) -> None:
        time.sleep(random.uniform(0.0, 0.05))
        connection.sendall(answer)

    return behave


@pytest.fixture
def server() -> Iterator[Hostile]:
    paths = {f"/{n}.png": late(reply(hostile.png(n + 1))) for n in range(PICTURES)}
    with hostile.serve({**paths, "/gone.png": late(reply(HTML, 404, "text/html"))}) as running:
        yield running


def recipe(folder: Path, server: Hostile) -> list[str]:
    """Writes a list with repeats and a recipe; returns the command that ingests it."""
    lines = [f"{server.base}/{n}.png,picture {n}" for n in range(PICTURES)]
    lines[50:50] = [f"{server.base}/gone.png,gone", f"{server.base}/7.png,seven again", "nonsense,no address"]
    (folder / "list.csv").write_text("url,caption\n" + "\n".join(lines) + "\n")
    (folder / "r.toml").write_text(
        f'name = "r"\n[ingest]\nchunk_rows = {CHUNK}\n[ingest.fetch]\ncontact = "t@example.org"\n'
        'allow_hosts = ["127.0.0.1"]\nretries = 0\n[[ingest.sources]]\nkind = "urls"\nname = "list"\n'
        f'path = "{folder / "list.csv"}"\ncaptions = ["caption"]\n')
    return [sys.executable, "-m", "pipeline", "ingest", "--recipe", str(folder / "r.toml"), "--workdir"]


def start(command: list[str], workdir: Path) -> subprocess.Popen[bytes]:
    below = workdir.parent / "tmp"
    below.mkdir(exist_ok=True)
    return subprocess.Popen([*command, str(workdir)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                            env={**os.environ, "TMPDIR": str(below)})


def to_the_end(command: list[str], workdir: Path) -> dict[str, str]:
    assert start(command, workdir).wait() == 0
    return content(workdir)


def content(workdir: Path) -> dict[str, str]:
    """Hash of every manifest part, listing and raw tar."""
    return {str(path.relative_to(workdir)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted([*workdir.glob("manifests/r/**/*.parquet"), *workdir.glob("data/r/raw/*")])}


def check_whole(workdir: Path, server: Hostile) -> None:
    """One row per line of the list, bytes as their SHA-256, only whole members that rows refer to, nothing half."""
    rows = pipeline.open(str(workdir / "manifests" / "r")).stage("ingest").arrow().to_pylist()
    assert Counter(row["fetch_outcome"] for row in rows) == {"ok": PICTURES + 1, "not_found": 1, "bad_url": 1}
    assert len({row["id"] for row in rows}) == len(rows)
    assert {row["url"] for row in rows if row["container"]} == {f"{server.base}/{n}.png" for n in range(PICTURES)}
    members: set[tuple[str, int, int]] = set()
    for tar in (workdir / "data/r/raw").iterdir():
        with tarfile.open(tar) as file:
            members |= {(f"raw/{tar.name}", member.offset_data, member.size) for member in file.getmembers()}
    referred = {(row["container"], row["offset"], row["length"]) for row in rows if row["container"]}
    assert members == referred
    for row in rows:
        if row["container"]:
            storage.read_range(str(workdir / "data/r" / row["container"]), row["offset"], row["length"],
                               sha256=row["sha256"])
    files = [path.name for path in workdir.rglob("*") if path.is_file()]
    assert [name for name in files if name.startswith((".partial", "chunk-"))] == []
    assert list((workdir.parent / "tmp").iterdir()) == []


def kill_again_and_again(kills: int, server: Hostile, folder: Path, draw: random.Random) -> None:
    """Kill runs at random moments; each run that ends anyway is looked at, and another is begun."""
    command = recipe(folder, server)
    (folder / "undisturbed").mkdir()
    begun = time.monotonic()
    expected = to_the_end(command, folder / "undisturbed" / "w")
    whole_s, number, killed = time.monotonic() - begun, 0, 0
    while killed < kills:
        workdir, asked = folder / str(number) / "w", Counter[str]()
        workdir.parent.mkdir()
        ended = False
        while not ended:
            before = Counter(server.hits)
            process = start(command, workdir)
            if killed < kills:
                time.sleep(draw.uniform(0.2, 0.9) * whole_s)
                process.send_signal(signal.SIGKILL)
            ended = process.wait() == 0
            killed += process.returncode == -signal.SIGKILL
            now = {path for path in server.hits - before if path.endswith(".png")}
            assert len(now & asked.keys()) <= CHUNKS_TWICE * CHUNK
            asked.update(now)
        assert content(workdir) == expected
        check_whole(workdir, server)
        number += 1


def test_killed_three_times_it_ends_in_the_same_bytes(server: Hostile, tmp_path: Path) -> None:
    kill_again_and_again(3, server, tmp_path, random.Random(3))


@pytest.mark.soak
def test_killed_at_twenty_random_moments_it_ends_in_the_same_bytes(server: Hostile, tmp_path: Path) -> None:
    kill_again_and_again(20, server, tmp_path, random.Random(20))


def test_two_runs_give_the_same_ids_rows_and_raw_bytes_whatever_the_order_of_answers(server: Hostile, tmp_path: Path,
                                                                                     ) -> None:
    command = recipe(tmp_path, server)
    one = to_the_end(command, tmp_path / "one")
    assert to_the_end(command, tmp_path / "other") == one
    assert len(one) > PICTURES // CHUNK  # parts, the listing, and raw tars of at most CHUNK pictures each
