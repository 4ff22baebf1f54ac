"""The same promises on a real S3 server: SeaweedFS on loopback."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pipeline import storage
from pipeline.errors import BusyError, StorageError
from pipeline.lease import Lease
from pipeline.manifest import read_part, write_part


def test_write_read_range_list_remove(s3: str) -> None:
    url = storage.join(s3, "a", "b.bin")
    storage.write_bytes(url, bytes(range(200)))
    assert storage.exists(url)
    assert storage.size(url) == 200
    assert storage.read_range(url, 50, 3) == b"234"
    assert storage.names(storage.join(s3, "a")) == ["b.bin"]
    storage.remove(url)
    assert not storage.exists(url)


def test_a_failed_write_leaves_nothing(s3: str) -> None:
    url = storage.join(s3, "half.bin")
    with pytest.raises(RuntimeError), storage.atomic_writer(url) as file:
        file.write(b"half")
        raise RuntimeError
    assert not storage.exists(url)


def test_content_named_files_and_parts(s3: str) -> None:
    with storage.content_named(storage.join(s3, "raw"), "raw", ".tar") as file:
        file.write(b"abc")
    assert storage.read_bytes(storage.join(s3, "raw", file.name)) == b"abc"
    part = write_part(storage.join(s3, "stage"), "part-00000", pa.table({"id": ["a", "b"]}))
    assert read_part(storage.join(s3, "stage"), part).column("id").to_pylist() == ["a", "b"]


def test_missing_objects_are_said_plainly(s3: str) -> None:
    with pytest.raises(StorageError, match="does not exist"):
        storage.read_bytes(storage.join(s3, "nowhere"))


def test_one_writer_per_run(s3: str) -> None:
    folder = storage.join(s3, "manifests", "x")
    with Lease(folder), pytest.raises(BusyError), Lease(folder):
        pass
    with Lease(folder):
        pass
