"""Content codings: packed bodies → plain bytes, a piece at a time and never more than asked for (RFC 9110, 8.4.1)."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

_PLAIN = ("", "identity")
_GZIP = ("gzip", "x-gzip")


def codings(values: Iterable[str]) -> list[str]:
    """The codings that Content-Encoding headers name, lower case, in the order in which they were applied."""
    names = (name.strip().lower() for value in values for name in value.split(","))
    return [name for name in names if name not in _PLAIN]


def unpacker(names: list[str]) -> Unpacker | None:
    """For one coding that we ask servers for, None for anything else."""
    return Unpacker(names[0] == "deflate") if len(names) == 1 and names[0] in (*_GZIP, "deflate") else None


class Unpacker:
    """gzip, of several members too, and deflate with or, as many servers send it, without zlib's header.

    What follows the last member of a gzip body is left unread, as `gzip` does it.
    """

    def __init__(self, may_be_bare: bool) -> None:
        self._may_be_bare = may_be_bare
        self._inner: Any = None
        self._begin = b""
        self._ended = False
        self.over = False
        """Nothing that may still come belongs to the body."""

    @property
    def complete(self) -> bool:
        """Whether the body may end here."""
        return self._inner is None and (self._ended or not self._begin)

    def feed(self, piece: bytes, most: int) -> bytes:
        """At most `most` plain bytes; once that many come, the rest is lost. Raises zlib.error."""
        plain, packed = b"", self._begin + piece
        self._begin = b""
        while packed and not self.over and len(plain) < most:
            if self._inner is None:
                if len(packed) < 2:
                    self._begin = packed
                    break
                if self._ended and packed[:2] != b"\x1f\x8b":
                    self.over = True
                    break
                self._inner = zlib.decompressobj(self._window(packed))
            plain += self._inner.decompress(packed, most - len(plain))
            packed = self._inner.unused_data
            if self._inner.eof:
                self._inner, self._ended = None, True
        return plain

    def _window(self, packed: bytes) -> int:
        """zlib's wbits for what begins so: gzip and zlib tell themselves apart, bare deflate has no header."""
        headed = packed[:2] == b"\x1f\x8b" or (packed[0] & 15 == 8 and int.from_bytes(packed[:2], "big") % 31 == 0)
        return zlib.MAX_WBITS | 32 if headed or not self._may_be_bare else -zlib.MAX_WBITS
