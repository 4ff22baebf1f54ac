"""The frozen listing: which rows there are, in what order. Written once per source, then never again.

A listing is one Parquet file `<source>-<key>.parquet` in `<manifests>/ingest/listing/`, put in place whole: a crawl
killed half-way starts again, a finished one is never repeated. The key covers the source's settings and
state, so a changed folder or list gets a new listing, and the others keep theirs. Beside it lies
`<source>-<key>.json` with counts and the pages that could not be read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import storage
from pipeline.errors import ManifestError, SourceError
from pipeline.ingest.addresses import canonical, member_url, path_url, row_digest
from pipeline.ingest.sources.base import Found, Log, Source, Web
from pipeline.keyindex import UNKNOWN, KeyIndex
from pipeline.receipt import digest
from pipeline.schema import INGEST, Column

_LINK = re.compile(r"(?:https?:)?//\S", re.IGNORECASE)

VERSION = 1
"""Rises when the same source would list other rows."""

FOLDER = "listing"
PART_ROWS = 4096
"""Rows per part of every manifest: parts begin anew at each source."""

CARRIED = tuple(
    column for column in INGEST.columns
    if column.name in ("id", "source", "kind", "url", "occurrence", "page_url", "captions", "caption_origins",
                       "label", "license_url", "license")
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


Done = Callable[[Frozen, Log | None], Frozen]


class Listing:
    """All sources' listings one after another, as numbered parts: see `rowstage.Growing`.

    A source given as `Opening` is listed while its parts are asked for: until it has come to its end, only its latest
    part can be read.
    """

    def __init__(self, sources: Sequence[Frozen | Opening], columns: Sequence[Column]) -> None:
        self._columns, self._sources = columns, list(sources)
        self._parts: list[tuple[Frozen, int]] = []
        self._latest: tuple[int, pa.Table] | None = None
        self._under_way: Generator[pa.Table] | None = None

    @property
    def expected(self) -> int | None:
        """Rows of all sources, None while one of them does not know."""
        counts = [each.rows for each in self._sources]
        return None if None in counts else sum(filter(None, counts))

    def numbers(self) -> Iterator[int]:
        number = 0
        for place, source in enumerate(self._sources):
            if isinstance(source, Opening):
                self._under_way = source.parts()
                for table in self._under_way:
                    self._latest = number, table
                    yield number
                    number += 1
                self._latest, source = None, source.frozen()
                self._sources[place] = source
                self._parts += [(source, group) for group in range(source.parts)]
            else:
                self._parts += [(source, group) for group in range(source.parts)]
                for _ in range(source.parts):
                    yield number
                    number += 1

    def close(self) -> None:
        """Leave nothing half-written behind where listing has not come to its end."""
        if self._under_way is not None:
            self._under_way.close()

    @property
    def layout(self) -> str:
        """Identifies the rows and their split into parts. Known when `numbers` has ended."""
        frozen = [each for each in self._sources if isinstance(each, Frozen)]
        assert len(frozen) == len(self._sources), "the listing is not whole yet"
        return digest(["listing", PART_ROWS, [[each.rows, each.sha256] for each in frozen]])

    def part(self, number: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Rows of one part; a column that only other sources have is null."""
        wanted = [c for c in self._columns if columns is None or c.name in columns]
        if self._latest is not None and self._latest[0] == number:
            table = self._latest[1]
            there = set(table.column_names)
        else:
            frozen, group = self._parts[number]
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


class Opening:
    """A source whose listing is not there yet. `parts` writes it; it is in place, whole, when they have ended."""

    def __init__(self, source: Source, stem: str, generation: int, web: Web, done: Done) -> None:
        self._source, self._generation, self._web, self._stem, self._done = source, generation, web, stem, done
        self.log = Log()
        self.rows = source.length()

    def parts(self) -> Generator[pa.Table]:
        """Raises SourceError when the source cannot be read."""
        columns = (*CARRIED, *source_columns([self._source]), *HIDDEN)
        schema = pa.schema([pa.field(c.name, c.type) for c in columns])
        said, ids = self._source.fingerprint(), _Ids(self._source.settings.name, self._source.settings.kind)
        with storage.atomic_writer(f"{self._stem}.parquet") as file, \
                pq.ParquetWriter(file, schema, compression="zstd") as writer:
            for batch in _batches(self._source.rows(self._web, self.log)):
                table = _table(batch, ids, self._source, self._generation, schema)
                self.log.count("rows", table.num_rows)
                writer.write_table(table, row_group_size=PART_ROWS)
                yield table
            if self._source.streams and self._source.fingerprint() != said:
                raise SourceError(f"source {self._source.settings.name!r} changed while it was read",
                                  hint="run the same command again; what was fetched is taken over")
            log = json.dumps(asdict(self.log), indent=1, sort_keys=True)
            storage.write_bytes(f"{self._stem}.json", log.encode() + b"\n")

    def frozen(self) -> Frozen:
        """The listing, once `parts` have ended."""
        return self._done(_opened(f"{self._stem}.parquet"), self.log)

    def whole(self) -> Frozen:
        """The listing, made at once."""
        for _ in self.parts():
            pass
        return self.frozen()


def opened(source: Source, folder: str, key: str, generation: int, web: Web, done: Done) -> Frozen | Opening:
    """The listing of a source, or how to come by it; `done` is told when it stands. Raises ManifestError for a damaged
    one."""
    stem = storage.join(folder, f"{source.settings.name}-{key}")
    there = storage.exists(f"{stem}.parquet")
    return done(_opened(f"{stem}.parquet"), None) if there else Opening(source, stem, generation, web, done)


def _opened(url: str) -> Frozen:
    try:
        with storage.open_read(url) as file:
            rows = int(pq.read_metadata(file).num_rows)
    except (pa.ArrowInvalid, OSError) as error:
        raise ManifestError(f"{url} is damaged ({error})", hint="delete it; the source is then listed again") from error
    return Frozen(url, rows, storage.sha256(url))


class _Ids:
    """Ids of one source's rows; counts how often each address has come, in 20 bytes of memory for each."""

    def __init__(self, source: str, kind: str) -> None:
        self._digest = row_digest(source, kind)
        self._counts = KeyIndex()

    def of(self, addresses: Sequence[str]) -> tuple[list[str], list[int]]:
        """Ids and occurrences. An address is known again by the id of its first row, so equal means equal."""
        firsts = [self._digest(address, 0) for address in addresses]
        counts = [0 if count == UNKNOWN else count for count in self._counts.get(firsts).tolist()]
        now, ids, occurrences = dict(zip(firsts, counts, strict=True)), list[str](), list[int]()
        for address, first in zip(addresses, firsts, strict=True):
            occurrence = now[first]
            now[first] = occurrence + 1
            ids.append((self._digest(address, occurrence) if occurrence else first).hex())
            occurrences.append(occurrence)
        self._counts.put(list(now), list(now.values()))
        return ids, occurrences


def _table(batch: Sequence[Found], ids: _Ids, source: Source, generation: int, schema: pa.Schema) -> pa.Table:
    """Rows of the listing for some finds."""
    addressed = [_address(found) for found in batch]
    names, occurrences = ids.of([found.address or one[0] for found, one in zip(batch, addressed, strict=True)])
    # an address inside a file is its member's name, which several may share
    urls = [f"{url}&occurrence={occurrence}" if found.place is not None and not found.url and occurrence else url
            for found, (url, _, _), occurrence in zip(batch, addressed, occurrences, strict=True)]
    places, licences = [found.place for found in batch], [_licence(found.license_url) for found in batch]
    columns: dict[str, list[Any]] = {
        "id": names, "source": [source.settings.name] * len(batch), "kind": [source.settings.kind] * len(batch),
        "url": urls, "occurrence": occurrences,
        "page_url": [found.page_url for found in batch], "captions": [found.captions for found in batch],
        "caption_origins": [found.origins for found in batch], "label": [found.label for found in batch],
        "license_url": [link for link, _ in licences], "license": [words for _, words in licences],
        "state": [found.state or "" if found.path is not None or found.place is not None
                  else f"{found.state or ''}@{generation}" for found in batch],
        "refused": [refused for _, refused, _ in addressed], "refused_detail": [detail for _, _, detail in addressed],
        "inside": [place and place[0] for place in places], "inside_offset": [place and place[2] for place in places],
        "inside_length": [place and place[3] for place in places],
        "packing": [found.packing if found.place is not None else None for found in batch],
    }
    return pa.table([_array(columns[field.name] if field.name in columns else
                            [found.extra.get(field.name.removeprefix("source_")) for found in batch], field.type)
                     for field in schema], schema=schema)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind):
        values = [None if v is None else clean(v if isinstance(v, str) else str(v)) for v in values]
    elif kind == pa.list_(pa.string()):
        values = [[clean(text) for text in v] for v in values]
    return pa.array(values, kind)


def _address(found: Found) -> tuple[str, str | None, str | None]:
    """(canonical address, refused, detail) of a find."""
    if found.path is not None:
        return path_url(found.path), found.refused, found.refused_detail
    if found.place is not None and not found.url:
        return member_url(*found.place[:2]), found.refused, found.refused_detail
    url = canonical(found.url)
    if url is None:
        return found.url, "bad_url", f"no http(s) address: {found.url[:200]!r}"
    return url, found.refused, found.refused_detail


def _licence(given: str | None) -> tuple[str | None, str | None]:
    """(link, words): files give the one or the other under the same name."""
    return (given, None) if given is None or _LINK.match(given) else (None, given)


def _batches(rows: Iterator[Found]) -> Iterator[list[Found]]:
    while batch := list(islice(rows, PART_ROWS)):
        yield batch


def clean(text: str) -> str:
    """Text that Parquet can hold: lone surrogates (undecodable file names) become replacement characters."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
