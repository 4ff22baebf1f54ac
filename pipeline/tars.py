"""Tars whose bytes follow from their content alone: fixed owner, mode and time, plain USTAR headers."""

from __future__ import annotations

import tarfile
from typing import Protocol

BLOCK = tarfile.BLOCKSIZE
END = b"\0" * (2 * BLOCK)


class Sink(Protocol):
    def write(self, data: bytes | memoryview, /) -> int: ...


def header(name: str, size: int) -> bytes:
    """A member's header. Names are at most 100 ASCII characters, sizes in bytes."""
    member = tarfile.TarInfo(name)
    member.size = size
    member.mode = 0o644
    return member.tobuf(tarfile.USTAR_FORMAT)


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
        self._put(b"\0" * (-len(data) % BLOCK))
        return offset

    def close(self) -> None:
        """Write the end-of-archive blocks."""
        self._put(END)

    def _put(self, data: bytes | memoryview) -> None:
        self._sink.write(data)
        self.position += len(data)
