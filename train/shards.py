"""The shard folder: `index.json`, `samples.parquet` and tars, read by range. Nothing else of curation is needed.

A picture's bytes are found by shard, offset and length, are checked against their SHA-256, and from remote
folders are kept in a size-bounded local cache. A failed remote read is tried again a bounded number of times.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline import schema, storage
from pipeline.errors import StorageError, TrainingError

_log = logging.getLogger(__name__)

INDEX = "index.json"
INDEX_VERSION = 1
FIRST_PAUSE_SECONDS = 0.1

Ints = NDArray[np.int64]


class ByteCache:
    """Bytes by SHA-256 in a local folder of at most `limit` bytes; the least recently used files go first.

    Several processes may share the folder: files appear whole, and a file that another process removed is
    simply read again from its source. A folder that cannot be used (full, not to be written) costs only speed:
    that is said once, and reading goes on without it.
    """

    def __init__(self, folder: str, limit: int) -> None:
        self._folder, self._limit = Path(folder), limit
        self._lock = threading.Lock()
        self._given_up = False
        self._used = sum(size for _, size, _ in self._files())

    def get(self, digest: bytes) -> bytes | None:
        path = self._path(digest)
        try:
            data = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        return data

    def put(self, digest: bytes, data: bytes) -> None:
        if len(data) > self._limit or self._given_up:
            return
        try:
            self._put(digest, data)
        except OSError as error:
            self._given_up = True
            _log.warning("the cache %s cannot be written (%s): going on without it", self._folder, error)

    def _put(self, digest: bytes, data: bytes) -> None:
        path = self._path(digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}-{os.getpid()}-{threading.get_ident()}")
        try:
            partial.write_bytes(data)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
        with self._lock:
            self._used += len(data)
            if self._used > self._limit:
                self._evict()

    def _evict(self) -> None:
        """Down to nine tenths of the limit, counting what is really there."""
        files = sorted(self._files())
        self._used = sum(size for _, size, _ in files)
        for _, size, path in files:
            if self._used <= 0.9 * self._limit:
                break
            path.unlink(missing_ok=True)
            self._used -= size

    def _path(self, digest: bytes) -> Path:
        name = digest.hex()
        return self._folder / name[:2] / name

    def _files(self) -> list[tuple[float, int, Path]]:
        found = []
        for path in self._folder.glob("??/*"):
            try:
                state = path.stat()
            except FileNotFoundError:
                continue
            found.append((state.st_mtime, state.st_size, path))
        return found


class DamagedError(StorageError):
    """One picture's bytes are not those that were put into the shard; its neighbours may be whole."""


@dataclass(frozen=True)
class Row:
    """What one sample's caption and place are."""

    id: str
    sha256: bytes
    caption: str
    captions: tuple[str, ...]
    bucket: str


class Shards:
    """An opened shard folder. `table` holds `samples.parquet` (schema.SAMPLES), one row per picture."""

    def __init__(self, url: str, table: pa.Table, *, fingerprint: str, cache: ByteCache | None = None,
                 retries: int = 4) -> None:
        self.url, self.table, self.fingerprint = url, table, fingerprint
        self._remote = storage.local(url) is None
        self._cache = cache if self._remote else None
        self._tries = 1 + (retries if self._remote else 0)
        self.weights: NDArray[np.float32] = np.nan_to_num(_numbers(table, "weight").astype(np.float32))
        names = table["shard"].combine_chunks().dictionary_encode()
        self.shard_numbers: Ints = names.indices.to_numpy().astype(np.int64)
        self._shard_names: list[str] = names.dictionary.to_pylist()
        self._offsets, self._lengths = _numbers(table, "offset"), _numbers(table, "length")
        self.buckets: list[str] = table["bucket"].to_pylist()
        self.digests: list[bytes] = table["sha256"].to_pylist()

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def rows(self, split: str) -> Ints:
        """Positions of the selected rows of a split (train or validation), in file order."""
        splits = np.asarray(self.table["split"].to_pylist(), dtype=object)
        selected = np.asarray(self.table["selected"].to_pylist(), dtype=bool)
        return np.flatnonzero((splits == split) & selected)

    def row(self, position: int) -> Row:
        place = {name: self.table[name][position].as_py() for name in ("id", "caption", "captions", "bucket")}
        caption = place["caption"] or ""
        others = tuple(text for text in place["captions"] or () if text)
        return Row(place["id"], self.digests[position], caption, others or (caption,), place["bucket"])

    def read(self, position: int) -> bytes:
        """The picture's own bytes, checked. Raises DamagedError when they are other bytes, StorageError without any."""
        digest = self.digests[position]
        if self._cache is not None and (kept := self._cache.get(digest)) is not None and _matches(kept, digest):
            return kept
        data = self._fetch(position, digest)
        if self._cache is not None:
            self._cache.put(digest, data)
        return data

    def _fetch(self, position: int, digest: bytes) -> bytes:
        name = self._shard_names[self.shard_numbers[position]]
        url = storage.join(self.url, name)
        offset, length = int(self._offsets[position]), int(self._lengths[position])
        failure: StorageError
        for attempt in range(self._tries):
            try:
                data = storage.read_range(url, offset, length)
                if _matches(data, digest):
                    return data
                failure = DamagedError(
                    f"{url} at {offset}: the bytes do not match samples.parquet",
                    hint="the shard was replaced or damaged; run `curate shard --force`")
            except StorageError as error:
                failure = error
            if attempt + 1 < self._tries:
                time.sleep(FIRST_PAUSE_SECONDS * 2**attempt)
        raise failure


def open_shards(url: str, *, cache: ByteCache | None = None, retries: int = 4) -> Shards:
    """Read a shard folder's index and sample table. Raises TrainingError when they are missing or damaged."""
    index = _index(url)
    samples = index["samples"]
    place = storage.join(url, samples["file"])
    data = storage.read_bytes(place)
    if hashlib.sha256(data).hexdigest() != samples["sha256"]:
        raise TrainingError(f"{place} does not match {INDEX}", hint="run `curate shard` again")
    table = pq.read_table(pa.BufferReader(data))
    missing = [name for name in schema.SAMPLES.names if name not in table.column_names]
    if missing:
        raise TrainingError(f"{place} has no column {missing[0]!r}", hint="run `curate shard` again")
    if table.num_rows != samples["rows"]:
        raise TrainingError(f"{place} has {table.num_rows} rows, {INDEX} says {samples['rows']}",
                            hint="run `curate shard` again")
    unknown = set(table["shard"].unique().to_pylist()) - {shard["file"] for shard in index["shards"]}
    if unknown:
        raise TrainingError(f"{place} names {min(unknown)}, which {INDEX} does not know",
                            hint="run `curate shard` again")
    return Shards(url, table, fingerprint=samples["sha256"], cache=cache, retries=retries)


def _index(url: str) -> dict[str, Any]:
    place = storage.join(url, INDEX)
    if not storage.exists(place):
        raise TrainingError(f"there are no shards at {url}",
                            hint="run `make curate` (or `curate run`) first, or set train.data.shards")
    try:
        index: dict[str, Any] = json.loads(storage.read_bytes(place))
        version = index["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise TrainingError(f"{place} is not a shard index: {error}", hint="run `curate shard` again") from error
    if version > INDEX_VERSION:
        raise TrainingError(f"{place} has version {version}, this program reads up to {INDEX_VERSION}",
                            hint="update gristmill")
    return index


def _matches(data: bytes, digest: bytes) -> bool:
    return hashlib.sha256(data).digest() == digest


def _numbers(table: pa.Table, name: str) -> NDArray[Any]:
    values: NDArray[Any] = table[name].to_numpy()
    return values
