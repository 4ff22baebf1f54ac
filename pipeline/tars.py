"""Tars whose bytes follow from their content alone: fixed owner, mode and time, plain USTAR headers."""

from __future__ import annotations

import os
import tarfile
from typing import BinaryIO, Protocol

BLOCK = tarfile.BLOCKSIZE
END = b"\0" * (2 * BLOCK)
_MOST_PIECES = 1000  # Linux takes 1,024


class Sink(Protocol):
    def write(self, data: bytes | memoryview, /) -> int: ...


def header(name: str, size: int) -> bytes:
    """A member's header. Names are at most 100 ASCII characters, sizes in bytes."""
    member = tarfile.TarInfo(name)
    member.size = size
    member.mode = 0o644
    return member.tobuf(tarfile.USTAR_FORMAT)


class Gathered:
    """A sink in front of a file that writes many pieces in one call of the system, without copying them.

    Written one by one, each piece is a moment at which the threads of this process wait for one another.
    """

    def __init__(self, file: BinaryIO, most_bytes: int = 32 << 20) -> None:
        self._file, self._most = file, most_bytes
        self._pieces: list[bytes | memoryview] = []
        self._bytes = 0
        try:
            self._number: int | None = file.fileno()
        except (OSError, AttributeError):
            self._number = None

    def write(self, data: bytes | memoryview, /) -> int:
        self._pieces.append(data)
        self._bytes += len(data)
        if len(self._pieces) >= _MOST_PIECES or self._bytes >= self._most:
            self.flush()
        return len(data)

    def flush(self) -> None:
        """Write what has been gathered."""
        pieces, self._pieces, self._bytes = self._pieces, [], 0
        if self._number is None:
            for piece in pieces:
                self._file.write(piece)
            return
        self._file.flush()
        while pieces:
            written = os.writev(self._number, pieces)
            while pieces and written >= len(pieces[0]):
                written -= len(pieces.pop(0))
            if written:
                pieces[0] = memoryview(pieces[0])[written:]


class TarWriter:
    """Appends members to a write-only file and knows where each member's bytes start."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.position = 0

    def add(self, name: str, data: bytes | memoryview) -> int:
        """Write one member; returns the offset of its bytes. Names are at most 100 ASCII characters."""
        self._put(header(name, len(data)))
        offset = self.position
        self._put(data)
        if rest := -len(data) % BLOCK:
            self._put(b"\0" * rest)
        return offset

    def close(self) -> None:
        """Write the end-of-archive blocks."""
        self._put(END)

    def _put(self, data: bytes | memoryview) -> None:
        self._sink.write(data)
        self.position += len(data)
