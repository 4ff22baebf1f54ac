"""What has to go: the rows that a run's rules keep out, their pictures, the words that only they said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import storage
from pipeline.ingest.ban import FORGOTTEN, Ban
from pipeline.ingest.guarded import refused
from pipeline.ingest.listing import FOLDER
from pipeline.ingest.rules import Refusal
from pipeline.manifest import Manifests, located, read_part

if TYPE_CHECKING:
    from pipeline.run import Run

_FETCHED = ("id", "url", "page_url", "final_url", "captions", "sha256", "container", "offset", "length", "value_key")


@dataclass
class Gone:
    """`rows` by id, each with its outcome and detail; `sha256` of pictures that no other row holds; `places` of theirs
    (container, offset, length) that no other row shares; `keys` their fetched values were kept under; `words` that
    went from a gone row to one that stays, by the latter's id; `texts` that no other row says; `listed` rows known from
    a listing alone, as `value_keys` reads them."""

    rows: dict[str, Refusal] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    sha256: set[bytes] = field(default_factory=set)
    places: set[tuple[str, int, int]] = field(default_factory=set)
    keys: set[bytes] = field(default_factory=set)
    words: dict[str, set[str]] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)
    listed: list[pa.Table] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        return not (self.rows or self.listed or self.sha256)

    def outcome(self, row_id: str) -> str:
        return self.rows[row_id][0]


def find(run: Run, ban: Ban) -> Gone:
    """All of a run that its rules keep out and that is, or may be, still there."""
    gone = Gone(listed=list(_listed(run, ban)))
    if run.manifests.receipt("ingest") is None:
        return gone
    looks = _looks(run, ban) if ban.perceptual else {}
    leaving: list[dict[str, Any]] = []
    for row in _rows(run.manifests):
        refusal = _refusal(row, ban) or looks.get(row["id"])
        if refusal is not None:
            gone.rows[row["id"]], gone.addresses[row["id"]] = refusal, row["url"]
            leaving.append(row)
    gone.sha256 = {row["sha256"] for row in leaving} - {None}
    gone.places = {_place(row) for row in leaving if row["container"] is not None}
    gone.keys = {row["value_key"] for row in leaving if row["value_key"] is not None}
    forgotten = [row for row in leaving if gone.outcome(row["id"]) == FORGOTTEN]
    gone.texts = {text for row in forgotten for text in row["captions"] or ()}
    gone.texts |= _written(run.manifests, {row["id"] for row in forgotten})
    keepers = _keepers(run.manifests, gone.rows)
    gone.words = _by_keeper(leaving, keepers)
    for row in _rows(run.manifests):  # what a row that stays has, or says, is not gone
        if row["id"] not in gone.rows:
            gone.sha256.discard(row["sha256"])
            gone.places.discard(_place(row))
            for texts in filter(None, [gone.words.get(keepers.get(row["id"], row["id"]))]):
                texts -= set(row["captions"] or ())
    gone.words = {keeper: texts for keeper, texts in gone.words.items() if texts and keeper not in gone.rows}
    return gone


def _rows(manifests: Manifests) -> Iterator[dict[str, Any]]:
    for part in manifests.need("ingest").tables[""]:
        yield from read_part(manifests.folder("ingest"), part, _FETCHED).to_pylist()


def _refusal(row: dict[str, Any], ban: Ban) -> Refusal | None:
    refusal = ban.row(row["id"], row["url"], row["page_url"])
    if refusal is None and row["final_url"] is not None:
        refusal = ban.address(row["final_url"])
    if refusal is None and row["sha256"] is not None:
        refusal = ban.content(row["sha256"])
    return refusal


def _looks(run: Run, ban: Ban) -> dict[str, Refusal]:
    """Rows kept out by their perceptual hash: as `measure` took it, or taken now where it has not been yet, as of rows
    known by their header alone."""
    receipt, found, measured = run.manifests.receipt("measure"), dict[str, Refusal](), set[str]()
    for part in [] if receipt is None else receipt.tables[""]:
        table = read_part(run.manifests.folder("measure"), part, ["id", "phash", "decode_outcome"])
        for row_id, phash, outcome in zip(*(column.to_pylist() for column in table.columns), strict=True):
            if outcome not in (None, "header_only"):
                measured.add(row_id)
            if phash is not None and (refusal := ban.looks(phash)) is not None:
                found[row_id] = refusal
    rows = [row for row in _rows(run.manifests) if row["container"] is not None and row["id"] not in measured]
    seen = ban.all_seen([partial(read_picture, row, run.data) for row in rows])
    return found | {row["id"]: refusal for row, refusal in zip(rows, seen, strict=True) if refusal is not None}


def read_picture(row: Mapping[str, Any], data: str) -> bytes:
    """The bytes of fetched values. Raises StorageError when they are not there any more."""
    url = located(row["container"], data) or ""
    return storage.read_range(url, row["offset"], row["length"], sha256=row["sha256"])


def _place(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["container"], row["offset"], row["length"]


def _written(manifests: Manifests, ids: set[str]) -> set[str]:
    """Captions written for these rows, or chosen for them."""
    texts: set[str] = set()
    for stage, column in (("caption", "candidates"), ("select", "choices")):
        receipt = manifests.receipt(stage)
        for part in [] if receipt is None else receipt.tables[""]:
            table = read_part(manifests.folder(stage), part)
            if column in table.column_names:
                rows = table.select(["id", column]).to_pylist()
                texts |= {item["text"] for row in rows if row["id"] in ids for item in row[column] or ()}
    return texts


def _keepers(manifests: Manifests, gone: Mapping[str, Refusal]) -> dict[str, str]:
    """Row → the row kept in its place, for rows that go and all that share their keeper."""
    receipt = manifests.receipt("dedupe")

    def rows() -> Iterator[tuple[str, str]]:
        for part in [] if receipt is None else receipt.tables[""]:
            table = read_part(manifests.folder("dedupe"), part, ["id", "duplicate_of"])
            ids, keepers = (column.to_pylist() for column in table.columns)
            yield from ((row_id, keeper or row_id) for row_id, keeper in zip(ids, keepers, strict=True))

    concerned = {keeper for row_id, keeper in rows() if row_id in gone}
    return {row_id: keeper for row_id, keeper in rows() if keeper in concerned}


def _by_keeper(rows: Iterable[dict[str, Any]], keepers: Mapping[str, str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for row in rows:
        found.setdefault(keepers.get(row["id"], row["id"]), set()).update(row["captions"] or ())
    return found


def _listed(run: Run, ban: Ban) -> Iterator[pa.Table]:
    """Rows of the listings that a rule keeps out: a killed run may have fetched them and not say so anywhere else."""
    folder = storage.join(run.manifests.folder("ingest"), FOLDER)
    for name in storage.names(folder):
        if name.endswith(".parquet"):
            with storage.open_read(storage.join(folder, name)) as file:
                parquet = pq.ParquetFile(file)
                for number in range(parquet.num_row_groups):
                    table = parquet.read_row_group(number, ["id", "url", "page_url", "state", "refused"])
                    rows = list(refused(table, ban))
                    if rows:
                        yield table.take(pa.array(rows, pa.int64()))
