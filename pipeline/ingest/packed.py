"""Pictures that lie packed inside files: taken out one after another, with no more of a file in memory than needed.

`packing` of a listed row says how: `parquet COLUMN`, where the place's offset is the row's number, or `warc`, where
offset and length are those of the whole record, compressed or not.
"""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Callable

from pipeline import storage
from pipeline.errors import AwayError, StorageError
from pipeline.ingest.body import Body
from pipeline.ingest.failures import ATTEMPTS, PAUSE_S
from pipeline.ingest.magic import sniff
from pipeline.ingest.outcomes import AWAY, OK
from pipeline.ingest.sources._archive import TooLong, records
from pipeline.ingest.sources._cells import Cells, Damaged

WARC = "warc"
_HEADERS = 1 << 20
"""Bytes that a record may be longer than its picture."""

Unpacked = tuple[str, str, Body | None]


class Unpacker:
    """Cells of Parquet files are read in the order of asking, so that files are read forward."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._turn = asyncio.Lock()
        self._lock = threading.Lock()  # an interrupted turn's thread may still be at work
        self._cells: Cells | None = None

    async def picture(self, container: str, packing: str, offset: int, length: int) -> Unpacked:
        """(outcome, detail, body); the caller closes the body of an `ok` picture."""
        how, _, detail = packing.partition(" ")
        if how == WARC:
            return await _persist(lambda: self._judged(self._record(container, offset, length)))
        async with self._turn:
            return await _persist(lambda: self._judged(self._cell(container, detail, offset)))

    def _cell(self, url: str, column: str, row: int) -> bytes | None:
        with self._lock:
            if self._cells is None or (self._cells.url, self._cells.column) != (url, column):
                if self._cells is not None:
                    self._cells.close()
                    self._cells = None
                self._cells = Cells(url, column)
            return self._cells.cell(row)

    def _record(self, url: str, offset: int, length: int) -> bytes:
        if length > self._max_bytes + self._max_bytes // 8 + _HEADERS:
            raise TooLong(f"a record of {length} bytes")
        data = storage.read_range(url, offset, length)
        try:
            for record in records(io.BytesIO(data)):
                body = record.body(self._max_bytes)
                if record.truncated:
                    raise Damaged(record.truncated)
                return body
        except OSError as error:
            raise Damaged(f"no record at byte {offset} ({error}): is the file compressed as a whole?") from None
        raise Damaged(f"no record at byte {offset}: is the file compressed as a whole?")

    def _judged(self, data: bytes | None) -> Unpacked:
        if data is None:
            return "no_picture", "the cell is null", None
        if not data:
            return "empty", "no bytes", None
        if len(data) > self._max_bytes:
            return "too_large", f"{len(data)} bytes", None
        body = Body()
        body.append(data)
        if sniff(body.head) is None:
            body.close()
            return "not_an_image", f"begins with {data[:16]!r}", None
        return OK, "", body


async def _persist(take: Callable[[], Unpacked]) -> Unpacked:
    """Try again while the file's disk or server does not answer."""
    for attempt in range(ATTEMPTS):
        try:
            return await asyncio.to_thread(take)
        except AwayError as error:
            said = str(error)
        except StorageError as error:
            return "unreadable_file", str(error), None
        except Damaged as error:
            return "unreadable_file", f"damaged: {error}"[:500], None
        except TooLong as error:
            return "too_large", str(error), None
        if attempt + 1 < ATTEMPTS:
            await asyncio.sleep(PAUSE_S * 2**attempt)
    return AWAY, said, None
