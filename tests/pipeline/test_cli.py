"""Faults that a user can cause: one line saying what is wrong, one hint, exit code 2, nothing harmed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pipeline.demo.scenes import draw, sample_scene

CURATE = [sys.executable, "-m", "pipeline.cli"]


def curate(*words: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "COLUMNS": "100"}
    return subprocess.run([*CURATE, *map(str, words)], capture_output=True, text=True, cwd=cwd, env=environment,
                          check=False)


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The error line, after checking the manners of the refusal."""
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.strip().splitlines() if line]
    assert lines[-2].startswith("error: "), done.stderr
    assert lines[-1].startswith("hint: "), done.stderr
    return lines[-2]


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(6):
        draw(sample_scene(np.random.default_rng(number))).save(folder / f"a red house {number}.png")
    (folder / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 and nothing more")
    (folder / "page.jpg").write_text("<html>not found</html>")
    return folder


@pytest.mark.parametrize(("words", "said"), [
    (["run", "--recipe", "nowhere.toml"], "no recipe nowhere.toml"),
    (["run", "--source", "nowhere"], "nowhere is not a folder"),
    (["run", "--set", "filter.resolution.min_sid=3"], "unknown key 'filter.resolution.min_sid'"),
    (["run", "--set", "filter.resolution.min_side=tall"], "filter.resolution.min_side"),
    (["run", "--set", "score.model=ViT-B-33"], "ViT-B-33"),
    (["run", "--from", "fliter"], "no stage 'fliter'"),
    (["explain", "blury"], "blury"),
    (["show", "123"], "manifests"),
    (["report"], "manifests"),
    (["demo-check"], "manifest"),
    (["demo-judge", "nowhere"], "nowhere"),
    (["filter"], "has not finished"),
])
def test_bad_words_are_refused_before_any_work(words: list[str], said: str, tmp_path: Path) -> None:
    if words[0] in ("run", "show", "report", "filter", "demo-check"):
        words = [*words, "--workdir", str(tmp_path)]
    assert said in refused(curate(*words, cwd=tmp_path))
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(("words", "said", "hint"), [
    (["run", "--no-such-option"], "--no-such-option", "--help"),
    (["no-such-command"], "no-such-command", "--help"),
    (["repotr"], "repotr", "did you mean 'report'?"),
    (["show"], "ID", "show --help"),
    (["run", "--recipe", "dmo"], "no recipe dmo", "did you mean 'demo'?"),
    (["run", "--from", "mesure"], "no stage 'mesure'", "did you mean 'measure'?"),
])
def test_usage_errors_are_a_line_and_a_hint(words: list[str], said: str, hint: str) -> None:
    done = curate(*words)
    assert said in refused(done)
    assert hint in done.stderr.splitlines()[-1]


def test_a_dry_run_says_what_would_stop_the_run(pictures: Path, tmp_path: Path) -> None:
    done = curate("run", "--source", pictures, "--workdir", tmp_path / "work", "--dry-run", "--set",
                  "score.model=ViT-B-33")
    assert "ViT-B-33" in refused(done)
    assert "never ran" in done.stdout, "the plan comes first"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_asked_to_stop_says_so(number: signal.Signals, pictures: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    # A background process of a shell without job control ignores ctrl-C; the test's may be one.
    words = ["-c", "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from pipeline.cli import "
             "main; main()", "run", "--source", str(pictures), "--workdir", str(work), "--set", "score.model=none"]
    with subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}) as process:
        assert process.stderr is not None
        first = process.stderr.readline()  # ingest has finished
        process.send_signal(number)
        rest = process.stderr.read()
    assert process.returncode == 130, first + rest
    assert "Traceback" not in rest
    assert rest.splitlines()[-1] == "stopped; finished work is kept, the same command goes on"


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    done = subprocess.run(f"{sys.executable} -m pipeline.cli schema | head -n 1", shell=True, capture_output=True,
                          text=True, check=False, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])})
    assert done.stdout.strip()
    assert done.stderr == ""


def test_a_folder_runs_to_shards_and_a_damaged_manifest_is_said_plainly(pictures: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    done = curate("run", "--source", pictures, "--workdir", work)
    assert done.returncode == 0, done.stderr
    assert "no CLIP scores" in done.stdout
    assert (work / "data" / "pictures" / "shards" / "index.json").exists()
    part = next((work / "manifests" / "pictures" / "measure").glob("part-*.parquet"))
    good = part.read_bytes()
    part.write_bytes(good[: len(good) // 2])
    line = refused(curate("show", "0", "--source", pictures, "--workdir", work))
    assert part.name in line
    again = curate("run", "--source", pictures, "--workdir", work)  # heals: the stage sees that a part is cut
    assert again.returncode == 0, again.stderr
    assert part.read_bytes() == good


def test_a_second_writer_is_refused(pictures: Path, tmp_path: Path) -> None:
    hold = ("import sys, time; from pipeline.lease import Lease\n"
            "with Lease(sys.argv[1]):\n    print('held', flush=True); time.sleep(60)")
    held = tmp_path / "work" / "manifests" / "pictures"
    holder = subprocess.Popen([sys.executable, "-c", hold, str(held)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert "is being written by" in refused(curate("run", "--source", pictures, "--workdir", tmp_path / "work"))
    finally:
        holder.kill()
        holder.wait()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 300 kB: needs the right to mount, which .ci/run has."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def test_a_full_disk_is_said_and_the_run_goes_on_when_there_is_room(pictures: Path, small_disk: Path) -> None:
    words = ["run", "--source", pictures, "--workdir", small_disk]
    assert "disk is full" in refused(curate(*words))
    assert not [path for path in small_disk.rglob("*partial*") if path.is_file()]
    subprocess.run(["mount", "-o", "remount,size=64m", small_disk], check=True)
    done = curate(*words)
    assert done.returncode == 0, done.stderr
    assert (small_disk / "data" / "pictures" / "shards" / "index.json").exists()
