"""The listing under the run's rules: what they keep out is refused before any request, what was forgotten is mute."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import storage
from pipeline.ingest.ban import FORGOTTEN, Ban
from pipeline.ingest.listing import Frozen, Listing
from pipeline.ingest.rules import Refusal
from pipeline.ingest.tombstones import hidden_address

_ASKED = ("id", "url", "page_url")
_REFUSED = ("refused", "refused_detail")
LASTING = frozenset({"id", "source", "kind", "url", "occurrence", "state", *_REFUSED})
"""What a forgotten row keeps, so that the question why it is not in the set has an answer."""


class Guarded:
    """Rows in numbered parts (see `rowstage.Growing`), those of the listing."""

    def __init__(self, listing: Listing, ban: Ban) -> None:
        self._listing, self._ban = listing, ban
        self.numbers, self.close = listing.numbers, listing.close

    @property
    def expected(self) -> int | None:
        return self._listing.expected

    @property
    def layout(self) -> str:
        return self._listing.layout

    def part(self, number: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Rows of one part, as the listing has them but for those that a rule keeps out."""
        if self._ban.empty:
            return self._listing.part(number, columns)
        table = self._listing.part(number, None if columns is None else list(dict.fromkeys((*columns, *_ASKED))))
        refusals = refused(table, self._ban)
        if refusals:
            table = silent(_marked(table, refusals), refusals, self._ban)
        return table if columns is None else table.select(list(columns))


def refused(table: pa.Table, ban: Ban) -> dict[int, Refusal]:
    """Rows (with `id`, `url` and `page_url`) that a rule keeps out."""
    asked = zip(*(table.column(name).to_pylist() for name in _ASKED), strict=True)
    found = ((row, ban.row(*each)) for row, each in enumerate(asked))
    return {row: refusal for row, refusal in found if refusal is not None}


def _marked(table: pa.Table, refusals: dict[int, Refusal]) -> pa.Table:
    for place, name in enumerate(_REFUSED):
        if name in table.column_names:
            values = table.column(name).to_pylist()
            for row, refusal in refusals.items():
                values[row] = refusal[place]
            at = table.column_names.index(name)
            table = table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type))
    return table


def muted(table: pa.Table, rows: Sequence[int], lasting: frozenset[str] = LASTING) -> pa.Table:
    """The table without what these rows say besides `lasting`: lists become empty, everything else null."""
    if not rows:
        return table
    for at, field in enumerate(table.schema):
        if field.name in lasting:
            continue
        nothing: Any = [] if pa.types.is_list(field.type) else None
        values = table.column(at).to_pylist()
        for row in rows:
            values[row] = nothing
        table = table.set_column(at, field, pa.array(values, field.type))
    return table


def silent(table: pa.Table, refusals: Mapping[int, Refusal], ban: Ban) -> pa.Table:
    """The table with forgotten rows mute, and their addresses hidden where that was asked for."""
    forgotten = [row for row, (outcome, _) in refusals.items() if outcome == FORGOTTEN]
    ids = table.column("id").to_pylist() if forgotten else []
    return masked(muted(table, forgotten), [row for row in forgotten if ban.hides(ids[row])])


def masked(table: pa.Table, rows: Collection[int]) -> pa.Table:
    """The table with these rows' addresses hidden: their SHA-256 takes their place."""
    if not rows or "url" not in table.column_names:
        return table
    urls = table.column("url").to_pylist()
    for row in rows:
        urls[row] = hidden_address(urls[row])
    at = table.column_names.index("url")
    return table.set_column(at, table.schema.field(at), pa.array(urls, pa.string()))


def without_words(frozen: Frozen, ban: Ban) -> Frozen:
    """A frozen listing whose forgotten rows say nothing, also on disk; itself where that is so."""
    if not ban.forgets:
        return frozen
    with storage.open_read(frozen.url) as file:
        parquet = pq.ParquetFile(file)
        if all(after is before for before, after in _cleaned(parquet, ban)):
            return frozen
        with storage.atomic_writer(frozen.url) as new, pq.ParquetWriter(
                new, parquet.schema_arrow, compression="zstd") as out:
            for _, table in _cleaned(parquet, ban):
                out.write_table(table, row_group_size=max(table.num_rows, 1))
    return Frozen(frozen.url, frozen.rows, storage.sha256(frozen.url))


def _cleaned(parquet: pq.ParquetFile, ban: Ban) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Each group of rows as it is, and without the words of forgotten ones: the same table where it has none."""
    for number in range(parquet.num_row_groups):
        table = parquet.read_row_group(number)
        after = silent(table, refused(table, ban), ban)
        yield table, table if after.equals(table) else after
