"""Bytes under way: small ones stay in memory, big ones go to disk, so that memory is bounded by neither."""

from __future__ import annotations

import hashlib
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from pipeline.errors import StorageError
from pipeline.ingest.magic import HEAD

IN_MEMORY = 1 << 20
"""Bytes of one body kept in memory; a bigger one lies in a temporary file."""

SPOOLS_IN_MEMORY = 128 << 20
"""Bytes of finished bodies kept in memory until their chunks are stored, over all chunks under way."""


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
    """One body as it arrives: appended to, hashed on the way, then read."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._file: IO[bytes] | None = None
        self._at, self._own = 0, True
        self._digest = hashlib.sha256()
        self.length = 0
        self.head = b""
        """The first `magic.HEAD` bytes, or fewer while there are no more."""

    def append(self, piece: bytes) -> None:
        if len(self.head) < HEAD:
            self.head += piece[:HEAD - len(self.head)]
        self.length += len(piece)
        self._digest.update(piece)
        if self._file is not None:
            with _disk():
                self._file.write(piece)
            return
        self._data += piece
        if self.length > IN_MEMORY:
            with _disk():
                self._move(tempfile.TemporaryFile(), own=True)  # noqa: SIM115 - closed by close()

    @property
    def in_memory(self) -> bool:
        return self._file is None

    @property
    def sha256(self) -> bytes:
        return self._digest.digest()

    def read(self) -> bytes:
        """All of it."""
        return bytes(self.view())

    def view(self) -> memoryview:
        """All of it, not copied where it lies in memory; the body must not grow meanwhile."""
        if self._file is None:
            return memoryview(self._data)
        self._file.seek(self._at)
        return memoryview(self._file.read(self.length))

    def move(self, file: IO[bytes]) -> None:
        """Lie at the end of `file`, which somebody else closes, from now on."""
        with _disk():
            self._move(file, own=False)

    def _move(self, file: IO[bytes], *, own: bool) -> None:
        data = self.view()
        at = file.seek(0, 2)
        file.write(data)
        self.close()
        self._file, self._at, self._own, self._data = file, at, own, bytearray()

    def close(self) -> None:
        if self._file is not None and self._own:
            self._file.close()


class Room:
    """Memory that several spools share; any thread may take and give back."""

    def __init__(self, size: int = SPOOLS_IN_MEMORY) -> None:
        self._left, self._lock = size, threading.Lock()

    def take(self, size: int) -> bool:
        """Whether there was that much left."""
        with self._lock:
            fits = size <= self._left
            self._left -= size if fits else 0
        return fits

    def give_back(self, size: int) -> None:
        with self._lock:
            self._left += size


class Spool:
    """A chunk's finished bodies until they are stored: in memory, or one after another in a temporary file."""

    def __init__(self, room: Room) -> None:
        self._room, self._taken = room, 0
        self._file: IO[bytes] | None = None
        self.on_disk = 0
        """Bytes that did not go into memory."""

    def keep(self, body: Body) -> Body:
        """Take a body over: it may be read until the spool is closed."""
        if body.in_memory and self._room.take(body.length):
            self._taken += body.length
            return body
        if self._file is None:
            with _disk():
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        body.move(self._file)
        self.on_disk += body.length
        return body

    def close(self) -> None:
        self._room.give_back(self._taken)
        self._taken = 0
        if self._file is not None:
            self._file.close()
