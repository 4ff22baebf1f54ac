"""Bytes under way: small ones stay in memory, big ones go to disk, so that memory is bounded by neither."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.errors import StorageError
from pipeline.ingest.magic import HEAD

IN_MEMORY = 1 << 20
"""Bytes of one body kept in memory; the rest of a bigger one lies in a temporary file."""

SPOOL_IN_MEMORY = 32 << 20
"""Bytes of a chunk's finished bodies kept in memory."""


@contextmanager
def _disk() -> Iterator[None]:
    """A full disk here must not pass for a broken connection."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"cannot keep bytes under way in {tempfile.gettempdir()}: {error.strerror}",
            hint="free some space there, or point TMPDIR elsewhere; then run the same command again",
        ) from error


class Body:
    """One body as it arrives: appended to, hashed on the way, read back once."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115 - closed by close()
        self._digest = hashlib.sha256()
        self.length = 0
        self.head = b""
        """The first `magic.HEAD` bytes, or fewer while there are no more."""

    def append(self, piece: bytes) -> None:
        if len(self.head) < HEAD:
            self.head += piece[:HEAD - len(self.head)]
        with _disk():
            self._file.write(piece)
        self._digest.update(piece)
        self.length += len(piece)

    @property
    def sha256(self) -> bytes:
        return self._digest.digest()

    def read(self) -> bytes:
        self._file.seek(0)
        return self._file.read()

    def close(self) -> None:
        self._file.close()


class Spool:
    """A chunk's finished bodies in order of arrival, read back in any order."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=SPOOL_IN_MEMORY)  # noqa: SIM115 - closed by close()
        self._end = 0

    def keep(self, body: Body) -> tuple[int, int]:
        """Take a body over and close it; returns the (offset, length) to `read` it by."""
        place = (self._end, body.length)
        with _disk():
            self._file.seek(self._end)
            self._file.write(body.read())
        self._end += body.length
        body.close()
        return place

    def read(self, place: tuple[int, int]) -> bytes:
        self._file.seek(place[0])
        return self._file.read(place[1])

    def close(self) -> None:
        self._file.close()
