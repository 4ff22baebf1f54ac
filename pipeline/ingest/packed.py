"""Pictures that lie packed inside files: taken out one after another, never more than one file open.

`packing` of a listed row says how: `parquet COLUMN`, where the place's offset is the row's number.
"""

from __future__ import annotations

import asyncio
import threading

from pipeline.errors import AwayError, StorageError
from pipeline.ingest.body import Body
from pipeline.ingest.failures import ATTEMPTS, PAUSE_S
from pipeline.ingest.magic import sniff
from pipeline.ingest.outcomes import AWAY, OK
from pipeline.ingest.sources._cells import Cells, Damaged

PARQUET = "parquet"


class Unpacker:
    """Takes turns in the order of asking, so that files are read forward."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._turn = asyncio.Lock()
        self._lock = threading.Lock()  # an interrupted turn's thread may still be at work
        self._cells: Cells | None = None

    async def picture(self, container: str, packing: str, position: int) -> tuple[str, str, Body | None]:
        """(outcome, detail, body); the caller closes the body of an `ok` picture."""
        async with self._turn:
            for attempt in range(ATTEMPTS):
                try:
                    return await asyncio.to_thread(self._take, container, packing, position)
                except AwayError as error:
                    said = str(error)
                except StorageError as error:
                    return "unreadable_file", str(error), None
                except Damaged as error:
                    return "unreadable_file", f"damaged: {error}"[:500], None
                if attempt + 1 < ATTEMPTS:
                    await asyncio.sleep(PAUSE_S * 2**attempt)
        return AWAY, said, None

    def _take(self, container: str, packing: str, position: int) -> tuple[str, str, Body | None]:
        with self._lock:
            how, _, detail = packing.partition(" ")
            assert how == PARQUET, how
            return self._judged(self._cell(container, detail, position))

    def _cell(self, url: str, column: str, row: int) -> bytes | None:
        if self._cells is None or (self._cells.url, self._cells.column) != (url, column):
            if self._cells is not None:
                self._cells.close()
                self._cells = None
            self._cells = Cells(url, column)
        return self._cells.cell(row)

    def _judged(self, data: bytes | None) -> tuple[str, str, Body | None]:
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
