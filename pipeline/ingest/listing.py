"""The frozen listing: which rows there are, in what order. Written once per source, then never again.

A listing is one Parquet file `<source>-<key>.parquet` in `<manifests>/ingest/listing/`, put in place whole: a crawl
killed half-way starts again, a finished one is never repeated. The key covers the source's settings and
state, so a changed folder or list gets a new listing, and the others keep theirs. Beside it lies
`<source>-<key>.json` with counts and the pages that could not be read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import storage
from pipeline.errors import ManifestError
from pipeline.ingest.addresses import canonical, member_url, path_url, row_id
from pipeline.ingest.sources.base import Found, Log, Source, Web
from pipeline.receipt import digest
from pipeline.schema import INGEST, Column

VERSION = 1
"""Rises when the same source would list other rows."""

FOLDER = "listing"
PART_ROWS = 4096
"""Rows per part of every manifest: parts begin anew at each source."""

CARRIED = tuple(
    column for column in INGEST.columns
    if column.name in ("id", "source", "kind", "url", "occurrence", "page_url", "captions", "caption_origins",
                       "label", "license_url")
)
"""Columns that go from the listing into the manifest; those of the sources follow."""

HIDDEN = (
    Column("state", pa.string(), "changes when the bytes behind the address may have changed"),
    Column("refused", pa.string(), "outcome known before fetching"),
    Column("refused_detail", pa.string(), "its reason in words"),
    Column("inside", pa.string(), "URL of the file that holds the bytes in place, for pictures inside others"),
    Column("inside_offset", pa.int64(), "where they start there", "bytes"),
    Column("inside_length", pa.int64(), "how many there are", "bytes"),
    Column("packing", pa.string(), "how they are packed there; null: not at all"),
)


def source_columns(sources: Sequence[Source]) -> tuple[Column, ...]:
    """The `source_*` columns of all sources together; where two disagree about a type, text wins."""
    types: dict[str, pa.DataType] = {}
    owners: dict[str, list[str]] = {}
    for source in sources:
        for name, kind in source.columns().items():
            column = f"source_{name}"
            types[column] = kind if types.get(column, kind) == kind else pa.string()
            owners.setdefault(column, []).append(source.settings.name)
    return tuple(
        Column(name, types[name], f"{name.removeprefix('source_')} as given by {', '.join(owners[name])}")
        for name in types
    )


@dataclass(frozen=True)
class Frozen:
    """One source's listing on disk."""

    url: str
    rows: int
    sha256: str

    @property
    def parts(self) -> int:
        return -(-self.rows // PART_ROWS)


class Listing:
    """All sources' listings one after another, as numbered parts: see `stage.Rows`."""

    def __init__(self, frozen: Sequence[Frozen], columns: Sequence[Column]) -> None:
        self._columns = columns
        self._parts = [(each, number) for each in frozen for number in range(each.parts)]
        self.part_count = len(self._parts)
        self.rows = sum(each.rows for each in frozen)
        self.layout = digest(["listing", PART_ROWS, [[each.rows, each.sha256] for each in frozen]])
        """Identifies the rows and their split into parts."""

    def part(self, number: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Rows of one part; a column that only other sources have is null."""
        frozen, group = self._parts[number]
        wanted = [c for c in self._columns if columns is None or c.name in columns]
        with storage.open_read(frozen.url) as file:
            parquet = pq.ParquetFile(file)
            there = set(parquet.schema_arrow.names)
            table = parquet.read_row_group(group, [c.name for c in wanted if c.name in there])
        arrays = {
            c.name: table.column(c.name).cast(c.type) if c.name in there else pa.nulls(table.num_rows, c.type)
            for c in wanted
        }
        names = [c.name for c in wanted] if columns is None else list(columns)
        return pa.table([arrays[name] for name in names], names=names)


def key_of(source: Source, generation: int, policy: Mapping[str, Any]) -> str:
    """What a listing hangs on; `policy` are the manners that decide what a crawl may see."""
    on_web: list[Any] = [generation, dict(policy)] if source.on_web else []
    settings = source.settings.model_dump(mode="json")
    return digest([VERSION, source.version, settings, source.fingerprint(), on_web])[:16]


def freeze(source: Source, folder: str, key: str, generation: int, web: Web) -> tuple[Frozen, Log | None]:
    """The listing of a source, made if it is not there yet; the log only when made now.

    Raises SourceError when the source cannot be read, and ManifestError for a damaged listing.
    """
    stem = storage.join(folder, f"{source.settings.name}-{key}")
    url, log = f"{stem}.parquet", Log()
    if storage.exists(url):
        return _opened(url), None
    columns = (*CARRIED, *source_columns([source]), *HIDDEN)
    schema = pa.schema([pa.field(c.name, c.type) for c in columns])
    with storage.atomic_writer(url) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in _batches(_rows(source, generation, web, log)):
            writer.write_table(_table(batch, schema), row_group_size=PART_ROWS)
        storage.write_bytes(f"{stem}.json", json.dumps(asdict(log), indent=1, sort_keys=True).encode() + b"\n")
    return _opened(url), log


def _opened(url: str) -> Frozen:
    try:
        with storage.open_read(url) as file:
            rows = int(pq.read_metadata(file).num_rows)
    except (pa.ArrowInvalid, OSError) as error:
        raise ManifestError(f"{url} is damaged ({error})", hint="delete it; the source is then listed again") from error
    return Frozen(url, rows, storage.sha256(url))


def _rows(source: Source, generation: int, web: Web, log: Log) -> Iterator[dict[str, object]]:
    """Rows of the listing; counts how often each address has come."""
    name, kind = source.settings.name, source.settings.kind
    seen: dict[str, int] = {}
    for found in source.rows(web, log):
        url, refused, detail = _address(found)
        address = found.address or url
        occurrence = seen.get(address, 0)
        if found.place is not None and occurrence:  # the same name again inside one file: other bytes
            url = f"{url}&occurrence={occurrence}"
        seen[address] = occurrence + 1
        state = found.state or ""
        log.count("rows")
        yield {
            "id": row_id(name, kind, address, occurrence), "source": name, "kind": kind, "url": url,
            "occurrence": occurrence, "page_url": found.page_url, "captions": list(found.captions),
            "caption_origins": list(found.origins), "label": found.label, "license_url": found.license_url,
            "state": state if found.path is not None or found.place is not None else f"{state}@{generation}",
            "refused": refused, **_place(found),
            "refused_detail": detail, **{f"source_{key}": value for key, value in found.extra.items()},
        }


def _place(found: Found) -> dict[str, object]:
    if found.place is None:
        return {}
    inside, _, offset, length = found.place
    return {"inside": inside, "inside_offset": offset, "inside_length": length, "packing": found.packing}


def _address(found: Found) -> tuple[str, str | None, str | None]:
    """(canonical address, refused, detail) of a find."""
    if found.path is not None:
        return path_url(found.path), found.refused, found.refused_detail
    if found.place is not None:
        return member_url(*found.place[:2]), found.refused, found.refused_detail
    url = canonical(found.url)
    if url is None:
        return found.url, "bad_url", f"no http(s) address: {found.url[:200]!r}"
    return url, found.refused, found.refused_detail


def _batches(rows: Iterator[dict[str, object]]) -> Iterator[list[dict[str, object]]]:
    batch: list[dict[str, object]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == PART_ROWS:
            yield batch
            batch = []
    if batch:
        yield batch


def _table(rows: list[dict[str, object]], schema: pa.Schema) -> pa.Table:
    arrays = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        if pa.types.is_string(field.type):
            values = [None if v is None else clean(str(v)) for v in values]
        elif field.type == pa.list_(pa.string()):
            values = [None if v is None else [clean(str(w)) for w in v] for v in values]  # type: ignore[attr-defined]
        arrays.append(pa.array(values, field.type))
    return pa.table(arrays, schema=schema)


def clean(text: str) -> str:
    """Text that Parquet can hold: lone surrogates (undecodable file names) become replacement characters."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
