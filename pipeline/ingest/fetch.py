"""The fetching half of ingest: a chunk of listed rows in, their outcomes and the place of their bytes out.

Bytes of pictures from the web go into one raw tar per chunk, in row order, whatever the order of arrival; the tar
is named by its content, so the same answers give the same file. Local pictures stay where they lie.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from pipeline import storage
from pipeline.drivers import passing
from pipeline.errors import AwayError, StorageError
from pipeline.ingest.addresses import is_local, path_of
from pipeline.ingest.ban import NOTHING, Ban
from pipeline.ingest.body import Body, Room, Spool
from pipeline.ingest.failures import ATTEMPTS, PAUSE_S
from pipeline.ingest.fetcher import Fetcher
from pipeline.ingest.freshness import RAW
from pipeline.ingest.magic import HEAD, sniff
from pipeline.ingest.outcomes import AWAY, OK
from pipeline.ingest.packed import Unpacker
from pipeline.ingest.settings import FetchSettings
from pipeline.ingest.tally import Tally
from pipeline.ingest.web import Courier
from pipeline.schema import INGEST, TableSchema
from pipeline.tars import Gathered, TarWriter

CHUNKS_AHEAD = 32
WAITING_ON_DISK = 512 << 20
"""While more bytes than this wait for the rest of their chunks, hardly any further chunk is begun."""

READS = ("id", "url", "state", "refused", "refused_detail", "inside", "inside_offset", "inside_length", "packing")
VALUES = TableSchema(tuple(
    column for column in INGEST.columns
    if column.name in (
        "fetch_outcome", "fetch_detail", "http_status", "final_url", "content_type", "sha256", "container",
        "offset", "length",
    )
))
"""The columns that fetching fills, in the manifest's order."""


@dataclass
class Fetched:
    """One row of VALUES."""

    fetch_outcome: str
    fetch_detail: str | None = None
    http_status: int | None = None
    final_url: str | None = None
    content_type: str | None = None
    sha256: bytes | None = None
    container: str | None = None
    offset: int | None = None
    length: int | None = None


@dataclass
class _Arrived:
    """A row's result, with the bytes that must still go into the tar."""

    row: Fetched
    body: Body | None = None
    member: str = ""


class FetchWorker:
    """Made once per process; called with chunks of the columns READS, returns VALUES row for row."""

    def __init__(self, settings: FetchSettings, data: str, ban: Ban = NOTHING, tally: Tally | None = None) -> None:
        self._courier = Courier(settings, ban)
        self._unpacker = Unpacker(settings.max_bytes)
        self._data = data
        self._room, self._spools = Room(), set[Spool]()
        self._tally = tally or Tally()

    @property
    def ahead(self) -> int:
        """Chunks under way at once: many, so that a slow host holds nothing up, but few while much waits on disk."""
        on_disk = sum(spool.on_disk for spool in tuple(self._spools))
        return CHUNKS_AHEAD if on_disk < WAITING_ON_DISK else 2

    def __call__(self, chunk: pa.Table) -> pa.Table:
        return self.start(chunk)()

    def start(self, chunk: pa.Table, ready: Callable[[], None] = lambda: None) -> Callable[[], pa.Table]:
        """Begin a chunk; the returned function waits for it, writes its tar and returns its rows. `ready` is called
        from another thread when there is nothing to wait for any more."""
        rows, spool = chunk.select(list(READS)).to_pylist(), Spool(self._room)
        self._spools.add(spool)
        wait = self._courier.start(lambda fetcher: _fetch_all(fetcher, self._unpacker, rows, spool, self._tally), ready)

        def finish() -> pa.Table:
            try:
                arrived = wait()
                _store(arrived, self._data)
            finally:
                spool.close()
                self._spools.discard(spool)
            columns = [[getattr(each.row, name) for each in arrived] for name in VALUES.names]
            return pa.table([pa.array(column, field.type) for column, field in zip(columns, VALUES.arrow, strict=True)],
                            schema=VALUES.arrow)

        return finish

    def close(self) -> None:
        """Give up what is under way: rows of chunks that were not finished are fetched again next time."""
        self._courier.close()
        for spool in self._spools:
            spool.close()
        self._spools.clear()


async def _fetch_all(
    fetcher: Fetcher, unpacker: Unpacker, rows: Sequence[dict[str, Any]], spool: Spool, tally: Tally
) -> list[_Arrived]:
    async def counted(row: dict[str, Any]) -> _Arrived:
        under_way = tally.begin(row["url"] if row["refused"] is None and row["inside"] is None else None)
        arrived = await _fetch(fetcher, unpacker, row, spool)
        tally.end(under_way, arrived.row.fetch_outcome, arrived.row.length or 0)
        return arrived

    return list(await asyncio.gather(*(counted(row) for row in rows)))


async def _fetch(fetcher: Fetcher, unpacker: Unpacker, row: dict[str, Any], spool: Spool) -> _Arrived:
    url = row["url"]
    if row["refused"] is not None:
        return _Arrived(Fetched(row["refused"], row["refused_detail"]))
    if row["packing"] is not None:
        outcome, detail, body = await unpacker.picture(
            row["inside"], row["packing"], row["inside_offset"], row["inside_length"])
        return await _arrived(Fetched(outcome, detail or None), body, row["id"], spool, fetcher.ban)
    if row["inside"] is not None:
        place = row["inside"], row["inside_offset"], row["inside_length"], fetcher.settings.max_bytes
        return _Arrived(await _let_in(fetcher.ban, await asyncio.to_thread(inside_file, *place)))
    if is_local(url):
        return _Arrived(await _let_in(fetcher.ban, await asyncio.to_thread(local_file, path_of(url))))
    answer = await fetcher.picture(url)
    found = Fetched(answer.outcome, answer.detail or None, answer.status, answer.url)
    return await _arrived(found, answer.body, row["id"], spool, fetcher.ban)


async def _arrived(found: Fetched, body: Body | None, member: str, spool: Spool, ban: Ban) -> _Arrived:
    """The row, with its body, if there is one and no rule keeps it out, put into the spool."""
    if body is None:
        return _Arrived(found)
    if not ban.empty and (refusal := await ban.picture(body.sha256, body.read)) is not None:
        body.close()
        return _Arrived(Fetched(*refusal, found.http_status))
    kind = sniff(body.head)
    assert kind is not None, "only pictures are let through"
    found.content_type, found.length = kind[0], body.length
    return _Arrived(found, spool.keep(body), f"{member}.{kind[1]}")


async def _let_in(ban: Ban, found: Fetched) -> Fetched:
    """A picture in place, unless a rule keeps it out."""
    if found.sha256 is None or ban.empty:
        return found
    place = found.container or "", found.offset or 0, found.length or 0
    try:
        refusal = await ban.picture(found.sha256, partial(storage.read_range, *place, sha256=found.sha256))
    except StorageError as error:
        return Fetched(AWAY, str(error))
    return found if refusal is None else Fetched(*refusal)


def local_file(path: str) -> Fetched:
    """What a picture in place amounts to: hashed and looked at, not copied."""
    try:
        with open(path, "rb") as file:
            head = file.read(HEAD)
            digest = hashlib.sha256(head)
            for piece in iter(lambda: file.read(1 << 20), b""):
                digest.update(piece)
            length = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return Fetched("not_found", "the file is gone")
    except OSError as error:
        return Fetched(AWAY if passing(error) else "unreadable_file", error.strerror or str(error))
    if length == 0:
        return Fetched("empty", "no bytes")
    kind = sniff(head)
    if kind is None:
        return Fetched("not_an_image", f"begins with {head[:16]!r}")
    return Fetched(OK, None, None, None, kind[0], digest.digest(), storage.as_text(path), 0, length)


def inside_file(container: str, offset: int, length: int, max_bytes: int) -> Fetched:
    """What a picture inside a file in place amounts to: hashed and looked at, not copied."""
    if length == 0:
        return Fetched("empty", "no bytes")
    if length > max_bytes:
        return Fetched("too_large", f"{length} bytes")
    for attempt in range(ATTEMPTS):
        try:
            data = storage.read_range(container, offset, length)
            break
        except AwayError as error:
            if attempt + 1 == ATTEMPTS:
                return Fetched(AWAY, str(error))
            time.sleep(PAUSE_S * 2**attempt)
        except StorageError as error:
            return Fetched("unreadable_file", str(error))
    kind = sniff(data[:HEAD])
    if kind is None:
        return Fetched("not_an_image", f"begins with {data[:16]!r}")
    return Fetched(OK, None, None, None, kind[0], hashlib.sha256(data).digest(), container, offset, length)


def _store(arrived: Sequence[_Arrived], data: str) -> None:
    """Write the chunk's raw tar in row order and enter where each row's bytes lie."""
    stored = [(each, each.body) for each in arrived if each.body is not None]
    if not stored:
        return
    digest = hashlib.blake2b(digest_size=16)
    for each, body in stored:
        each.row.sha256 = body.sha256
        digest.update(each.member.encode() + b"\0" + body.sha256)
    container = storage.join(RAW, f"raw-{digest.hexdigest()}.tar")
    with storage.atomic_writer(storage.join(data, container)) as file:
        sink = Gathered(file)
        tar = TarWriter(sink)
        for each, body in stored:
            each.row.container = container
            each.row.offset = tar.add(each.member, body.view())
        tar.close()
        sink.flush()
