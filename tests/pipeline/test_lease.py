"""One writer per run, also after the holder was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.errors import BusyError
from pipeline.lease import Lease

HOLD = """
import sys, time
from pipeline.lease import Lease
with Lease(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def _holder(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_writer_is_told_who_holds_the_run(tmp_path: Path) -> None:
    process = _holder(tmp_path)
    try:
        with pytest.raises(BusyError, match=str(process.pid)), Lease(str(tmp_path)):
            pass
    finally:
        process.kill()
        process.wait()


def test_a_killed_writer_blocks_nobody(tmp_path: Path) -> None:
    process = _holder(tmp_path)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    with Lease(str(tmp_path)):
        pass


def test_a_lease_can_be_taken_again(tmp_path: Path) -> None:
    for _ in range(2):
        with Lease(str(tmp_path)):
            pass
