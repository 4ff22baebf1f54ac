"""The same promises on a real S3 server: SeaweedFS on loopback."""

from __future__ import annotations

import json
import time

import pyarrow as pa
import pytest
import s3fs  # type: ignore[import-untyped]

from pipeline import storage
from pipeline.errors import BusyError, StorageError
from pipeline.lease import LEASE, Lease
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


def test_a_damaged_lease_holds_nobody_up(s3: str) -> None:
    folder = storage.join(s3, "manifests", "damaged")
    for content in (b"", b"{", b"{}", b"[1]", b'{"owner": "x", "expires": "soon"}'):
        storage.write_bytes(storage.join(folder, LEASE), content)
        with Lease(folder):
            pass


def test_a_lease_outlives_a_renewal_that_fails(
        s3: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("pipeline.lease.EXPIRES_AFTER", 2.0)
    folder, failures = storage.join(s3, "manifests", "flaky"), iter([True])
    with Lease(folder) as lease:
        renew = lease._renew
        monkeypatch.setattr(lease, "_renew", lambda: _fail() if next(failures, False) else renew())
        time.sleep(3.0)  # longer than one lease: only renewals keep it
        lease.check()
        with pytest.raises(BusyError), Lease(folder):
            pass
    assert "could not be renewed" in caplog.text
    assert not storage.exists(storage.join(folder, LEASE))


def _fail() -> None:
    raise OSError("no route to host")


def test_who_was_overtaken_hears_of_it_and_leaves_the_lease_to_the_other(
        s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.lease.EXPIRES_AFTER", 1.0)
    folder = storage.join(s3, "manifests", "overtaken")
    other = json.dumps({"owner": "another", "expires": time.time() + 60}).encode()
    with Lease(folder) as lease:
        storage.write_bytes(storage.join(folder, LEASE), other)
        time.sleep(1.0)
        with pytest.raises(BusyError, match="taken over"):
            lease.check()
    assert storage.read_bytes(storage.join(folder, LEASE)) == other


def test_a_server_that_is_away_is_one_line_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # nothing listens there
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    s3fs.S3FileSystem.clear_instance_cache()
    try:
        for doing in (storage.exists, storage.names, storage.read_bytes, storage.size, storage.remove):
            with pytest.raises(StorageError, match="s3://away/key"):
                doing("s3://away/key")
        with pytest.raises(StorageError, match="s3://away/key"):
            storage.write_bytes("s3://away/key", b"bytes")
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
