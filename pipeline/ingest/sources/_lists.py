"""Reading one list file as a stream of records, whatever its format."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import storage
from pipeline.errors import SourceError
from pipeline.ingest.sources.base import Log

FORMATS = ("parquet", "csv", "tsv", "jsonl", "ndjson", "txt")
_PACKED = ("gz", "zst")
_BATCH = 4096
_BUFFER = 1 << 16
"""Bytes read at a time per column of a local Parquet file; whole row groups may be gigabytes."""
_LONGEST_FIELD = 1 << 24
_LINES_FOR_COLUMNS = 1000

Record = dict[str, Any]


@dataclass(frozen=True)
class ListFile:
    """One list; `packed` is its compression's ending or empty. `names` are the columns of a table without a header row,
    whose quotation marks are plain text; a header row that was added all the same is left out."""

    url: str
    format: str
    packed: str = ""
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, url: str, names: tuple[str, ...] = ()) -> ListFile | None:
        """By the file's ending, None when it is no list."""
        place = url.split("?", 1)[0] if url.startswith(("http://", "https://")) else url
        parts = place.rsplit("/", 1)[-1].lower().split(".")
        packed = parts.pop() if parts[-1] in _PACKED else ""
        known = len(parts) > 1 and parts[-1] in FORMATS and not (packed and parts[-1] == "parquet")
        return cls(url, parts[-1], packed, names) if known else None

    def length(self) -> int | None:
        """How many records there are, where the file says so."""
        if self.format != "parquet":
            return None
        with self._explained(), storage.open_read(self.url) as file:
            return int(pq.read_metadata(file).num_rows)

    def columns(self, url_column: str) -> dict[str, pa.DataType]:
        """Name → type: as stored in Parquet, text elsewhere; JSONL's are those of its first 1,000 lines."""
        with self._explained():
            if self.format == "parquet":
                with storage.open_read(self.url) as file:
                    schema = pq.read_schema(file)
                return {field.name: _plain(field.type) for field in schema}
            if self.format == "txt":
                return {url_column: pa.string()}
            with self._text() as text:
                if self.format in ("csv", "tsv"):
                    return dict.fromkeys(self.names or self._csv(text).fieldnames or (), pa.string())
                records = islice(_json_lines(text, Log()), _LINES_FOR_COLUMNS)
                return dict.fromkeys((key for record in records for key in record), pa.string())

    def records(self, url_column: str, log: Log) -> Iterator[Record]:
        """Every record in order. A line that cannot be read becomes an empty record, and is counted."""
        with self._explained():
            if self.format == "parquet":
                with storage.open_read(self.url) as file:
                    for batch in self._parquet(file).iter_batches(_BATCH, use_threads=False):
                        yield from batch.to_pylist()
                return
            with self._text() as text:
                if self.format in ("csv", "tsv"):
                    header = dict(zip(self.names, self.names, strict=True))
                    yield from (row for row in self._csv(text) if not header or row != header)
                elif self.format == "txt":
                    yield from ({url_column: line.strip()} for line in text
                                if line.strip() and not line.startswith("#"))
                else:
                    yield from _json_lines(text, log)

    def _parquet(self, file: IO[bytes]) -> pq.ParquetFile:
        """Read in small pieces from a disk, and by whole row groups from a server, where each piece is a request."""
        on_disk = storage.local(self.url) is not None
        return pq.ParquetFile(file, buffer_size=_BUFFER if on_disk else 0, pre_buffer=not on_disk)

    def _csv(self, text: IO[str]) -> csv.DictReader[str]:
        csv.field_size_limit(_LONGEST_FIELD)
        delimiter = "\t" if self.format == "tsv" else ","
        if self.names:
            return csv.DictReader(text, self.names, delimiter=delimiter, restkey="", quoting=csv.QUOTE_NONE)
        return csv.DictReader(text, delimiter=delimiter, restkey="")

    @contextmanager
    def _text(self) -> Iterator[IO[str]]:
        with storage.open_read(self.url) as file:
            if self.packed == "gz":
                stream = cast(IO[bytes], gzip.GzipFile(fileobj=file))
            elif self.packed == "zst":
                stream = cast(IO[bytes], pa.CompressedInputStream(file, "zstd"))
            else:
                stream = file
            yield io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline="")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError, EOFError, csv.Error) as error:
            raise SourceError(f"{self.url} cannot be read as {self.format}: {error}",
                              hint="the file is damaged or not what its ending says") from error


def _json_lines(text: IO[str], log: Log) -> Iterator[Record]:
    for line in text:
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict):
            log.count("lines that are no JSON object")
            record = {}
        yield record


def _plain(kind: pa.DataType) -> pa.DataType:
    """Types that every manifest can hold; nested and large ones become text."""
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return kind
    return pa.float64() if pa.types.is_floating(kind) else pa.string()
