"""Damaged files: each is a picture or a row with one documented reason, soon and in little memory."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

import pytest

from pipeline.image import UNREADABLE, Unreadable, decode
from pipeline.measure import _facts, _numbers
from tests.pipeline.odd_files import damaged, whole

FILES = dict(whole())
_WHOLE_BEFORE_THE_END = ("GIF-frames", "WEBP-frames", "TIFF", "MPO", "PNG-frames", "ICO", "AVIF")
"""Of these the first frame, or all that is drawn, may be whole long before the file ends."""
CUT = [name for name in FILES if not name.startswith(_WHOLE_BEFORE_THE_END)]
PIXELS, SECONDS, MEGABYTES = 50_000_000, 5, 1500
"""Time and memory grow with the pixels that a file announces, so `measure.max_pixels` is what bounds them."""


@pytest.mark.parametrize("name", FILES)
def test_whole_files_are_pictures_of_their_size(name: str) -> None:
    picture = decode(FILES[name])
    assert 9 <= min(picture.width, picture.height) <= 2048
    assert "decode_outcome" not in _numbers(picture), "no check stumbles"


@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize("tenths", range(10))
def test_cut_files_are_no_half_pictures(name: str, tenths: int) -> None:
    data = FILES[name]
    with pytest.raises(Unreadable) as caught:
        decode(data[: len(data) * tenths // 10])
    assert caught.value.reason in UNREADABLE


def _look_at(seeds: range, at: Synchronized[int], memory: Synchronized[int]) -> None:
    """In a process of its own, which the system ends when one file takes too long; libtiff's complaints go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    files = list(FILES.values())
    for seed in seeds:
        at.value = seed
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        reason, numbers = None, dict[str, object]()
        try:
            picture = decode(damaged(files, seed), max_pixels=PIXELS)
            numbers = {**_facts(picture), **_numbers(picture)}
        except Unreadable as error:
            reason = error.reason
        assert reason is None or reason in UNREADABLE
        assert "decode_outcome" not in numbers, "a check stumbled"
        memory.value = _most_memory()
        if memory.value > MEGABYTES:
            return
    at.value = -1


def _most_memory() -> int:
    """MB; from here, since getrusage's figure begins with that of the process that started this one."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) // 1000


def _fuzz(seeds: range) -> None:
    context = multiprocessing.get_context("spawn")
    at, memory = context.Value("q", 0), context.Value("q", 0)
    process = context.Process(target=_look_at, args=(seeds, at, memory))
    process.start()
    process.join()
    assert memory.value <= MEGABYTES, f"seed {at.value} took {memory.value} MB"
    assert at.value == -1, f"seed {at.value} ended the process with exit code {process.exitcode}"


def test_damaged_files() -> None:
    _fuzz(range(400))


@pytest.mark.soak
def test_fifty_thousand_damaged_files() -> None:
    for start in range(1000, 51_000, 5000):
        _fuzz(range(start, start + 5000))
