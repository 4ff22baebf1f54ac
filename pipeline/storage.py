"""Open, ranged read and atomic write on any fsspec URL. A plain path is a local URL.

Nothing relies on rename on object storage: there, an object appears whole when its upload is completed.
Locally, a file is written beside its place, flushed to disk and renamed, so a reader never sees half of one.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, BinaryIO, cast
from urllib.parse import quote, unquote

import fsspec

from pipeline.errors import GristmillError, StorageError

_PARTIAL = ".partial-"


def local(url: str) -> str | None:
    """The plain path of a local URL, or None for remote ones."""
    if url.startswith("file://"):
        return unquote(url.removeprefix("file://"), errors="surrogateescape")
    return None if "://" in url else url


def as_text(path: str) -> str:
    """A local path as text that any file can hold: itself, or, for a name that is no UTF-8, its escaped URL."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return "file://" + quote(os.fsencode(path))
    return path


def join(base: str, *names: str) -> str:
    """`base/name/name`; works for paths and URLs alike."""
    return "/".join([base.rstrip("/") or "/", *(name.strip("/") for name in names)])


def _filesystem(url: str) -> tuple[Any, str]:
    try:
        filesystem, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        scheme = url.split("://", 1)[0]
        raise StorageError(
            f"{url}: no driver for {scheme}:// is installed ({error})",
            hint=f'install it, e.g. pip install "gristmill[{scheme}]"',
        ) from error
    except ValueError as error:
        raise StorageError(f"{url}: {error}", hint="use a path, or s3://, gs://, … as fsspec names them") from error
    return filesystem, path


@contextmanager
def _explained(url: str, doing: str) -> Iterator[None]:
    """Turn the operating system's and drivers' errors into one line with a hint."""
    try:
        yield
    except FileNotFoundError as error:
        if doing in ("create", "write"):
            raise StorageError(f"cannot {doing} {url}: no such place", hint="check the path; some folders, such as "
                               "those in /proc, cannot hold others") from error
        raise StorageError(f"{url} does not exist", hint="check the path, or run the stage that writes it") from error
    except PermissionError as error:
        raise StorageError(f"no permission to {doing} {url}", hint="check the owner and mode, or your keys") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(
                f"the disk is full while trying to {doing} {url}",
                hint="free some space and run the same command again: it goes on where it stopped",
            ) from error
        raise StorageError(f"cannot {doing} {url}: {error}", hint="check the path and the disk") from error
    except GristmillError:
        raise
    except Exception as error:  # drivers have errors of their own for a server that is away or says no
        if local(url) is not None:
            raise
        raise StorageError(f"cannot {doing} {url}: {type(error).__name__}: {error}",
                           hint="check the address, your keys, and whether the server answers") from error


def read_bytes(url: str) -> bytes:
    """The whole content. Raises StorageError."""
    with _explained(url, "read"):
        path = local(url)
        if path is not None:
            with open(path, "rb") as file:
                return file.read()
        filesystem, key = _filesystem(url)
        return cast(bytes, filesystem.cat_file(key))


def read_range(url: str, offset: int, length: int, *, sha256: bytes | None = None) -> bytes:
    """`length` bytes from `offset`. Raises StorageError when the object is shorter, or has not the given SHA-256."""
    with _explained(url, "read"):
        path = local(url)
        if path is not None:
            with open(path, "rb") as file:
                data = os.pread(file.fileno(), length, offset)
        else:
            filesystem, key = _filesystem(url)
            data = cast(bytes, filesystem.cat_file(key, start=offset, end=offset + length))
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
    with _explained(url, "read"):
        path = local(url)
        if path is not None:
            return open(path, "rb")
        filesystem, key = _filesystem(url)
        return cast(BinaryIO, filesystem.open(key, "rb"))


@contextmanager
def atomic_writer(url: str) -> Iterator[BinaryIO]:
    """A binary file that appears at `url` only when the block ends without an error."""
    path = local(url)
    if path is None:
        with _explained(url, "write"):
            filesystem, key = _filesystem(url)
            file = filesystem.open(key, "wb")
        try:
            yield cast(BinaryIO, _Upload(file, url))
        except BaseException:
            with suppress(Exception):  # it asks the server, which may be what is away
                file.discard()
            file.closed = True  # or its finaliser would try to upload the rest
            raise
        with _explained(url, "write"):
            file.close()
        return
    with _explained(url, "write"):
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
    with _explained(path, "write"):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "a", encoding="utf-8") as file:
            file.write(line + "\n")


class _Upload:
    """A remote file under way. Parts of a large one leave from within `write`, and may fail there."""

    def __init__(self, file: Any, url: str) -> None:
        self._file, self._url = file, url

    def write(self, data: bytes) -> int:
        with _explained(self._url, "write"):
            return int(self._file.write(data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def write_bytes(url: str, data: bytes) -> None:
    """Put `data` at `url` in one piece. Raises StorageError."""
    with atomic_writer(url) as file:
        file.write(data)


def exists(url: str) -> bool:
    path = local(url)
    if path is not None:
        return os.path.exists(path)
    with _explained(url, "look for"):
        filesystem, key = _filesystem(url)
        return bool(filesystem.exists(key))


def size(url: str) -> int:
    """Bytes. Raises StorageError when there is no such file."""
    with _explained(url, "read"):
        path = local(url)
        if path is not None:
            return os.path.getsize(path)
        filesystem, key = _filesystem(url)
        return int(filesystem.size(key))


def state(url: str) -> str:
    """Changes when the file may have changed: size and modification time, or what the object store knows it by."""
    with _explained(url, "look at"):
        path = local(url)
        if path is not None:
            found = os.stat(path)
            return f"{found.st_size}-{found.st_mtime_ns}"
        filesystem, key = _filesystem(url)
        return str(filesystem.ukey(key))


def names(url: str) -> list[str]:
    """Sorted names directly under a folder; empty when it does not exist."""
    path = local(url)
    if path is not None:
        return sorted(os.listdir(path)) if os.path.isdir(path) else []
    with _explained(url, "list"):
        filesystem, key = _filesystem(url)
        if not filesystem.exists(key):
            return []
        return sorted(entry.rstrip("/").rsplit("/", 1)[-1] for entry in filesystem.ls(key, detail=False))


def make_folder(url: str) -> None:
    """Create a local folder and its parents; object storage has no folders."""
    path = local(url)
    if path is not None:
        with _explained(url, "create"):
            os.makedirs(path, exist_ok=True)


def remove(url: str) -> None:
    """Remove a file or a folder with its content; nothing happens when it does not exist."""
    with _explained(url, "remove"):
        path = local(url)
        if path is not None:
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            elif os.path.lexists(path):
                os.remove(path)
            return
        filesystem, key = _filesystem(url)
        if filesystem.exists(key):
            filesystem.rm(key, recursive=True)


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

    def write(self, data: bytes) -> int:
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
    with _explained(join(folder, stem + suffix), "write"), tempfile.NamedTemporaryFile(
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
                filesystem, key = _filesystem(join(folder, writer.name))
                filesystem.put_file(file.name, key)
        finally:
            if os.path.exists(file.name):
                os.remove(file.name)
