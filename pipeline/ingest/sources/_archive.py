"""Records of WARC files (ISO 28500, WARC 1.0 and 1.1), read by fastwarc: the extra `warc`."""

from __future__ import annotations

import importlib.util
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from pipeline.errors import SourceError
from pipeline.ingest.addresses import canonical
from pipeline.ingest.coding import codings, unpacker

_READ = ("response", "resource", "revisit")
_SLACK = 1 << 16
"""Bytes by which a chunked body is longer than what it holds, and then some."""


class TooLong(Exception):  # noqa: N818 - says what a record is, like an outcome
    """A record's body is longer than wanted."""


@dataclass
class Record:
    """One record that may matter. `url` is its target's canonical address, empty for others; `position` its first byte
    in the file. `status` and `headers` are those of the HTTP answer; a resource has 200 and its own type."""

    kind: str
    url: str
    position: int
    status: int = 0
    headers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    refers_to: str | None = None
    digest: str | None = None
    truncated: str | None = None
    _record: Any = None

    @property
    def media_type(self) -> str:
        return (self.headers.get("content-type") or ("",))[0].split(";")[0].strip().lower()

    def body(self, most: int) -> bytes:
        """The body without codings, once and before the next record is asked for; sets `truncated` where the file ends
        first. Raises TooLong."""
        announced = int(self._record.content_length)
        if announced > most + most // 8 + _SLACK:
            raise TooLong(f"{announced} bytes")
        raw = bytes(self._record.reader.read(announced))
        if len(raw) < announced:
            self.truncated = self.truncated or "the file ends first"
        data = plain(raw, self.headers, most + 1)
        if len(data) > most:
            raise TooLong(f"more than {most} bytes")
        return data


def need_fastwarc(source: str) -> None:
    """Raise SourceError when it is not installed."""
    if importlib.util.find_spec("fastwarc") is None:
        raise SourceError(f"source {source!r}: WARC files need fastwarc, which is not installed",
                          hint='pip install "gristmill[warc]"')


def records(file: BinaryIO) -> Iterator[Record]:
    """All records of a file, compressed or not, in order; those of no interest with nothing but their position.

    Raises OSError without an errno where the file is no WARC file any more, and what reading it raises.
    """
    from fastwarc.warc import ArchiveIterator

    for record in ArchiveIterator(file, parse_http=False, auto_decode="none"):
        yield _record(record)


def _record(record: Any) -> Record:
    kind = str(record.record_type)
    position, said = int(record.stream_pos), {name.lower(): value for name, value in record.headers.items()}
    url = canonical(said.get("warc-target-uri", "").strip("<>")) if kind in _READ else None
    if url is None:
        return Record(kind, "", position)
    own_type = (said.get("content-type", ""),)
    found = Record(
        kind, url, position, 200, {"content-type": own_type}, canonical(said.get("warc-refers-to-target-uri", "")),
        said.get("warc-payload-digest"), said.get("warc-truncated"), record)
    if kind != "resource":
        found.status, found.headers = 0, {}
        if own_type[0].lower().startswith("application/http") and int(record.content_length) > 0:
            record.parse_http(auto_decode="none")
            found.status, found.headers = _http(record.http_headers)
    return found


def _http(headers: Any) -> tuple[int, Mapping[str, tuple[str, ...]]]:
    if headers is None:
        return 0, {}
    found: dict[str, tuple[str, ...]] = {}
    for name, value in headers.items():
        found[name.strip().lower()] = (*found.get(name.strip().lower(), ()), value)
    return int(headers.status_code or 0), found


def plain(raw: bytes, headers: Mapping[str, tuple[str, ...]], most: int) -> bytes:
    """A body without chunks and content codings, `most` bytes at most. Archives often keep headers of codings that the
    crawler has already undone: what is not coded after all is taken as it is."""
    if "chunked" in codings(headers.get("transfer-encoding", ())):
        raw = _joined(raw)
    names = codings(headers.get("content-encoding", ()))
    try:
        if names == ["br"]:
            import brotli

            return bytes(brotli.Decompressor().process(raw, output_buffer_limit=most))[:most]
        unpack = unpacker(names)
        return raw[:most] if unpack is None else unpack.feed(raw, most)
    except (zlib.error, ValueError):
        return raw[:most]
    except Exception as error:  # brotli's own error has no importable name in all of its versions
        if type(error).__module__.partition(".")[0] not in ("brotli", "_brotli"):
            raise
        return raw[:most]


def _joined(raw: bytes) -> bytes:
    """Chunks put together (RFC 9112, section 7.1), as far as they go; the body itself when it is not chunked."""
    pieces: list[bytes] = []
    at = 0
    while True:
        end = raw.find(b"\r\n", at, at + 1000)
        size = raw[at:end].split(b";")[0].strip() if end >= 0 else b""
        if not size or len(size) > 8 or not all(each in b"0123456789abcdefABCDEF" for each in size):
            return b"".join(pieces) if pieces else raw
        length = int(size, 16)
        if length == 0:
            return b"".join(pieces)
        pieces.append(raw[end + 2:end + 2 + length])
        at = end + 2 + length + 2
