"""Atomic writes and ranged reads, locally and on a real S3 server (see tests/pipeline/test_object_storage.py)."""

from __future__ import annotations

import errno
import hashlib
from pathlib import Path

import pytest

from pipeline import storage
from pipeline.drivers import explained
from pipeline.errors import StorageError


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    url = str(tmp_path / "a.bin")
    storage.write_bytes(url, b"old")
    with pytest.raises(RuntimeError), storage.atomic_writer(url) as file:
        file.write(b"half of new")
        raise RuntimeError
    assert Path(url).read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.bin"]


def test_reads_exactly_the_asked_range_and_refuses_a_short_file(tmp_path: Path) -> None:
    url = str(tmp_path / "a.bin")
    storage.write_bytes(url, bytes(range(100)))
    assert storage.read_range(url, 10, 5) == bytes(range(10, 15))
    with pytest.raises(StorageError, match="ends before byte 101") as caught:
        storage.read_range(url, 99, 2)
    assert caught.value.hint


def test_content_named_files_carry_their_hash(tmp_path: Path) -> None:
    with storage.content_named(str(tmp_path), "raw", ".tar") as file:
        file.write(b"abc")
        file.write(b"def")
    expected = hashlib.sha256(b"abcdef").hexdigest()
    assert file.sha256 == expected
    assert file.name == f"raw-{expected[:8]}.tar"
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    assert (tmp_path / file.name).read_bytes() == b"abcdef"


def test_a_killed_content_named_write_leaves_no_named_file(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), storage.content_named(str(tmp_path), "raw", ".tar") as file:
        file.write(b"abc")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_missing_files_are_said_in_one_line_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as caught:
        storage.read_bytes(str(tmp_path / "nowhere"))
    assert "\n" not in str(caught.value)
    assert caught.value.hint


def test_a_full_disk_names_the_cure() -> None:
    # /dev/full answers every write with ENOSPC, as a full disk does
    with pytest.raises(StorageError, match="disk is full"), explained("/dev/full", "write"):
        with open("/dev/full", "wb", buffering=0) as file:
            file.write(b"x")
    assert errno.ENOSPC
