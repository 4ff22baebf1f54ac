"""Open, ranged read and atomic write on any fsspec URL. A plain path is a local URL.

Nothing relies on rename on object storage: there, an object appears whole when its upload is completed.
Locally, a file is written beside its place, flushed to disk and renamed, so a reader never sees half of one.
"""

from __future__ import annotations

import glob as globbing
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, BinaryIO, cast

from pipeline.drivers import Remote, Upload, explained, filesystem
from pipeline.drivers import as_text as as_text
from pipeline.drivers import local as local
from pipeline.errors import StorageError

_PARTIAL = ".partial-"


def join(base: str, *names: str) -> str:
    """`base/name/name`; works for paths and URLs alike."""
    return "/".join([base.rstrip("/") or "/", *(name.strip("/") for name in names)])


def read_bytes(url: str) -> bytes:
    """The whole content. Raises StorageError."""
    with explained(url, "read"):
        path = local(url)
        if path is not None:
            with open(path, "rb") as file:
                return file.read()
        driver, key = filesystem(url)
        return cast(bytes, driver.cat_file(key))


def read_range(url: str, offset: int, length: int, *, sha256: bytes | None = None) -> bytes:
    """`length` bytes from `offset`. Raises StorageError when the object is shorter, or has not the given SHA-256."""
    with explained(url, "read"):
        path = local(url)
        if path is not None:
            with open(path, "rb") as file:
                data = os.pread(file.fileno(), length, offset)
        else:
            driver, key = filesystem(url)
            data = cast(bytes, driver.cat_file(key, start=offset, end=offset + length))
    if len(data) > length:
        raise StorageError(f"{url} is given whole, not from byte {offset}", hint="its server cannot answer for parts "
                           "of a file; copy the file to a disk or an object store")
    if len(data) != length:
        raise StorageError(
            f"{url} ends before byte {offset + length}", hint="the file was cut or replaced; run its stage again"
        )
    if sha256 is not None and hashlib.sha256(data).digest() != sha256:
        raise StorageError(
            f"{url} holds other bytes at {offset} than before",
            hint="the file was changed or damaged; `curate ingest --force` looks at all bytes again")
    return data


def open_read(url: str) -> BinaryIO:
    """A seekable binary file. Raises StorageError."""
    with explained(url, "read"):
        path = local(url)
        if path is not None:
            return open(path, "rb")
        driver, key = filesystem(url)
        return cast(BinaryIO, Remote(driver.open(key, "rb"), url))


@contextmanager
def atomic_writer(url: str) -> Iterator[BinaryIO]:
    """A binary file that appears at `url` only when the block ends without an error."""
    path = local(url)
    if path is None:
        with explained(url, "write"):
            driver, key = filesystem(url)
            file = driver.open(key, "wb")
        try:
            yield cast(BinaryIO, Upload(file, url))
        except BaseException:
            with suppress(Exception):  # it asks the server, which may be what is away
                file.discard()
            file.closed = True  # or its finaliser would try to upload the rest
            raise
        with explained(url, "write"):
            file.close()
        return
    with explained(url, "write"):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        partial = f"{os.path.dirname(path) or '.'}/{_PARTIAL}{os.getpid()}-{os.path.basename(path)}"
        try:
            with open(partial, "wb") as plain:
                yield plain
                plain.flush()
                os.fsync(plain.fileno())
            os.replace(partial, path)
        except BaseException:
            if os.path.exists(partial):
                os.remove(partial)
            raise


def append_line(path: str, line: str) -> None:
    """Add one line to a local file, making it and its folder where needed. Raises StorageError."""
    with explained(path, "write"):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "a", encoding="utf-8") as file:
            file.write(line + "\n")


def write_bytes(url: str, data: bytes) -> None:
    """Put `data` at `url` in one piece. Raises StorageError."""
    with atomic_writer(url) as file:
        file.write(data)


def exists(url: str) -> bool:
    path = local(url)
    if path is not None:
        return os.path.exists(path)
    with explained(url, "look for"):
        driver, key = filesystem(url)
        return bool(driver.exists(key))


def size(url: str) -> int:
    """Bytes. Raises StorageError when there is no such file."""
    with explained(url, "read"):
        path = local(url)
        if path is not None:
            return os.path.getsize(path)
        driver, key = filesystem(url)
        return int(driver.size(key))


def state(url: str) -> str:
    """Changes when the file may have changed: size and modification time, or what its server knows it by.

    Over plain HTTP that is length, ETag and Last-Modified; see `ageless`.
    """
    with explained(url, "look at"):
        path = local(url)
        if path is not None:
            found = os.stat(path)
            return f"{found.st_size}-{found.st_mtime_ns}"
        driver, key = filesystem(url)
        if _over_http(url):
            said = driver.info(key)
            return "-".join(str(said.get(name, "")) for name in ("size", *_AGES))
        return str(driver.ukey(key))


_AGES = ("ETag", "Last-Modified")


def _over_http(url: str) -> bool:
    return url.startswith(("http://", "https://"))


def ageless(state: str, url: str) -> bool:
    """Whether this `state` of a file would stay the same if the file changed and kept its length."""
    return _over_http(url) and state.endswith("-" * len(_AGES))


def names(url: str) -> list[str]:
    """Sorted names directly under a folder; empty when it does not exist."""
    path = local(url)
    if path is not None:
        return sorted(os.listdir(path)) if os.path.isdir(path) else []
    with explained(url, "list"):
        driver, key = filesystem(url)
        if not driver.exists(key):
            return []
        return sorted(entry.rstrip("/").rsplit("/", 1)[-1] for entry in driver.ls(key, detail=False))


def find(url: str) -> list[str]:
    """Paths of all files below a folder, relative to it, sorted; none that is hidden or in a hidden folder."""
    path = local(url)
    if path is None:
        with explained(url, "list"):
            driver, key = filesystem(url)
            top = key.rstrip("/") + "/"
            found = [str(each).removeprefix(top) for each in driver.find(key)]
    else:
        found = [os.path.relpath(os.path.join(folder, name), path).replace(os.sep, "/")
                 for folder, _, inside in os.walk(path) for name in inside]
    return sorted(name for name in found if not any(part.startswith(".") for part in name.split("/")))


def glob(pattern: str) -> list[str]:
    """Sorted URLs of all files that a wildcard (*, ?, [], and ** across folders) fits."""
    path = local(pattern)
    if path is not None:
        return sorted(globbing.glob(path, recursive=True))
    with explained(pattern, "list"):
        driver, key = filesystem(pattern)
        return sorted(str(driver.unstrip_protocol(each)) for each in driver.glob(key))


def make_folder(url: str) -> None:
    """Create a local folder and its parents; object storage has no folders."""
    path = local(url)
    if path is not None:
        with explained(url, "create"):
            os.makedirs(path, exist_ok=True)


def remove(url: str) -> None:
    """Remove a file or a folder with its content; nothing happens when it does not exist."""
    with explained(url, "remove"):
        path = local(url)
        if path is not None:
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            elif os.path.lexists(path):
                os.remove(path)
            return
        driver, key = filesystem(url)
        if driver.exists(key):
            driver.rm(key, recursive=True)


def sha256(url: str) -> str:
    """Hex SHA-256 of the content, read in pieces of 1 MiB."""
    digest = hashlib.sha256()
    with open_read(url) as file:
        for piece in iter(lambda: file.read(1 << 20), b""):
            digest.update(piece)
    return digest.hexdigest()


def leftovers(url: str) -> list[str]:
    """Names of half-written files that a killed process left in a local folder."""
    return [name for name in names(url) if name.startswith(_PARTIAL)]


class HashingWriter:
    """A write-only file that counts and hashes what passes through."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.position = 0
        self.name = ""

    def write(self, data: bytes | memoryview) -> int:
        self._digest.update(data)
        self.position += len(data)
        return self._file.write(data)

    @property
    def sha256(self) -> str:
        """Hex SHA-256 of what was written so far."""
        return self._digest.hexdigest()


@contextmanager
def content_named(folder: str, stem: str, suffix: str) -> Iterator[HashingWriter]:
    """A file that appears as `<stem>-<8 hex of its SHA-256><suffix>` when the block ends without an error.

    Its `name` is known afterwards. Object storage cannot rename: there the bytes wait in a local temporary file.
    """
    path = local(folder)
    if path is not None:
        make_folder(folder)
    with explained(join(folder, stem + suffix), "write"), tempfile.NamedTemporaryFile(
            dir=path, prefix=f"{_PARTIAL}{os.getpid()}-", delete=False) as file:
        try:
            writer = HashingWriter(file)
            yield writer
            writer.name = f"{stem}-{writer.sha256[:8]}{suffix}"
            file.flush()
            if path is not None:
                os.fsync(file.fileno())
                os.chmod(file.name, 0o644)
                os.replace(file.name, join(path, writer.name))
            else:
                driver, key = filesystem(join(folder, writer.name))
                driver.put_file(file.name, key)
        finally:
            if os.path.exists(file.name):
                os.remove(file.name)
