"""fsspec's drivers behind plain errors: which file system a URL means, and remote files under way."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, unquote

from pipeline.errors import AwayError, GristmillError, StorageError

_PASSING = frozenset({
    errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN,
    errno.ENETUNREACH, errno.ENODEV, errno.ENXIO, errno.EAGAIN, errno.EINTR, errno.EMFILE, errno.ENFILE,
})
"""Errors of a local or mounted disk that say nothing lasting about the file."""


def passing(error: OSError) -> bool:
    """Whether a local file's error may be gone at another time."""
    return error.errno in _PASSING


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


def filesystem(url: str) -> tuple[Any, str]:
    """fsspec's file system for a URL, and the path there. Raises StorageError."""
    import fsspec  # what lies on this machine does not need it

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
def explained(url: str, doing: str) -> Iterator[None]:
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
        kind = AwayError if local(url) is None or passing(error) else StorageError
        raise kind(f"cannot {doing} {url}: {error}", hint="check the path and the disk") from error
    except GristmillError:
        raise
    except Exception as error:  # drivers have errors of their own for a server that is away or says no
        if local(url) is not None:
            raise
        raise AwayError(f"cannot {doing} {url}: {type(error).__name__}: {error}",
                        hint="check the address, your keys, and whether the server answers") from error


class Remote:
    """A remote file being read: errors on the way are those of this module, too."""

    def __init__(self, file: Any, url: str) -> None:
        self._file, self._url = file, url

    def read(self, size: int = -1) -> bytes:
        with explained(self._url, "read"):
            return bytes(self._file.read(size))

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[:len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        with explained(self._url, "read"):
            return int(self._file.seek(offset, whence))

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._file)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class Upload:
    """A remote file under way. Parts of a large one leave from within `write`, and may fail there."""

    def __init__(self, file: Any, url: str) -> None:
        self._file, self._url = file, url

    def write(self, data: bytes | memoryview) -> int:
        with explained(self._url, "write"):
            return int(self._file.write(data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
