"""Taking rows down in manifests: parts written anew without what they said, receipts that name them, old parts gone.

No stage runs for it, so neither sources nor models need be there; later stages find their input changed and run when
`curate run` comes next. `ingest` goes last: as long as it stands, a takedown that was killed is found again whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline import storage
from pipeline.ingest.ban import FORGOTTEN, Ban
from pipeline.ingest.guarded import LASTING, masked, muted
from pipeline.ingest.listing import CARRIED, FOLDER
from pipeline.ingest.rules import Refusal
from pipeline.manifest import WORK, read_part, write_part
from pipeline.receipt import RECEIPT, PartFile, Receipt
from pipeline.schema import SHARD
from pipeline.takedown.gone import Gone
from pipeline.takedown.reserves import without_values

if TYPE_CHECKING:
    from pipeline.run import Run

ShardPlace = tuple[str, int]
"""A picture's tar and the offset of its bytes there."""

_FOUND = LASTING | {column.name for column in CARRIED}
_PAIRED = ("pooled_captions", "pooled_origins", "caption_scores")
_SHARD_COLUMNS = ("shard", "shard_offset")
_OF_PLACE = tuple(column.name for column in SHARD.columns if column.name not in ("id", *_SHARD_COLUMNS))


def take_down(run: Run, gone: Gone, ban: Ban, shards: Mapping[str, ShardPlace]) -> None:
    """Rewrite all stages' manifests, last stage first. `shards`: where each picture in a tar lies now."""
    from pipeline.stages import STAGES

    for stage in reversed(STAGES):
        receipt = run.manifests.receipt(stage)
        if receipt is not None:
            changed = _without(run, stage, receipt, gone, ban, shards)
            if changed != receipt:
                if run.lease is not None:
                    run.lease.check()
                storage.write_bytes(storage.join(run.manifests.folder(stage), RECEIPT), changed.to_json())
            receipt = changed
        _remove_unnamed(run.manifests.folder(stage), receipt)
    run.manifests.reload()


def _without(run: Run, stage: str, receipt: Receipt, gone: Gone, ban: Ban, shards: Mapping[str, ShardPlace]) -> Receipt:
    from pipeline.stages import STAGES

    counted: str | None = getattr(STAGES[stage], "counted", None)
    counts, tables = Counter(receipt.counts), {}
    for name, parts in receipt.tables.items():
        folder, tables[name] = run.manifests.folder(stage, name), list[PartFile]()
        for number, part in enumerate(parts):
            before = read_part(folder, part)
            after = _part(before, gone, ban, shards) if "id" in before.column_names else before
            if after is before:
                tables[name].append(part)
                continue
            tables[name].append(write_part(folder, f"part-{number:05d}", after))
            if not name and counted is not None:
                counts.subtract(_counted(before, counted))
                counts.update(_counted(after, counted))
    spares = without_values(run.manifests.folder(stage), stage, receipt, gone)
    return replace(receipt, tables=tables, spares=spares, counts={name: n for name, n in counts.items() if n})


def _counted(table: pa.Table, column: str) -> dict[str, int]:
    entries = pc.value_counts(table.column(column)).to_pylist()
    return {str(entry["values"]): entry["counts"] for entry in entries if entry["values"] is not None}


def _part(table: pa.Table, gone: Gone, ban: Ban, shards: Mapping[str, ShardPlace]) -> pa.Table:
    """The part without gone rows' values and words; the very same where nothing has to change."""
    ids = table.column("id").to_pylist()
    leaving = {row: gone.rows[row_id] for row, row_id in enumerate(ids) if row_id in gone.rows}
    after = taken_down(table, leaving, {row for row in leaving if ban.hides(ids[row])})
    after = _without_words(after, {row: gone.words[row_id] for row, row_id in enumerate(ids) if row_id in gone.words})
    if "shard" in table.column_names:
        after = _moved(after, ids, shards)
    return table if after.equals(table) else after


def taken_down(table: pa.Table, rows: Mapping[int, Refusal], hides: set[int]) -> pa.Table:
    """Rows that were forgotten keep what lasts, blocked ones also what their source says of them."""
    forgotten = [row for row, (outcome, _) in rows.items() if outcome == FORGOTTEN]
    blocked = [row for row in rows if row not in set(forgotten)]
    given = frozenset(name for name in table.column_names if name.startswith("source_"))
    if "fetch_outcome" in table.column_names:
        given |= {"value_key"}  # so that a picture blocked by its content is not fetched again to learn that it is
    table = muted(muted(table, forgotten), blocked, _FOUND | given)
    said = {row: {"fetch_outcome": outcome, "fetch_detail": detail, "kept": False, "dropped_by": "ingest",
                  "reason": outcome} for row, (outcome, detail) in rows.items()}
    return masked(_put(table, said), hides)


def _put(table: pa.Table, values: Mapping[int, Mapping[str, Any]]) -> pa.Table:
    """Row → column → value, where the table has such columns."""
    names = {name for row in values.values() for name in row}
    for at, field in enumerate(table.schema):
        if field.name in names:
            column = table.column(at).to_pylist()
            for row, put in values.items():
                column[row] = put.get(field.name, column[row])
            table = table.set_column(at, field, pa.array(column, field.type))
    return table


def _without_words(table: pa.Table, words: Mapping[int, set[str]]) -> pa.Table:
    """Captions that came from gone rows leave the rows that stay, with their scores; the best of what is left is
    the caption until `select` runs again."""
    names = [name for name in (*_PAIRED, "choices", "caption", "caption_origin", "caption_score")
             if name in table.column_names]
    if not words or not names:
        return table
    changes: dict[int, dict[str, Any]] = {}
    for row, gone in words.items():
        values = table.select(names).slice(row, 1).to_pylist()[0]
        texts = values.get("pooled_captions")
        changes[row] = {name: [item for item, text in zip(values[name], texts, strict=False) if text not in gone]
                        for name in _PAIRED if texts is not None and values.get(name) is not None}
        if values.get("choices") is not None:
            changes[row]["choices"] = [choice for choice in values["choices"] if choice["text"] not in gone]
        if values.get("caption") in gone:
            best: dict[str, Any] = next(iter(changes[row].get("choices") or []), {})
            changes[row] |= {"caption": best.get("text"), "caption_origin": best.get("origin"),
                             "caption_score": best.get("score")}
    return _put(table, changes)


def _moved(table: pa.Table, ids: list[str], shards: Mapping[str, ShardPlace]) -> pa.Table:
    """Where pictures lie in the tars that stand now; those that left them lie nowhere."""
    named = zip(ids, *(table.column(name).to_pylist() for name in _SHARD_COLUMNS), strict=True)
    changes: dict[int, dict[str, Any]] = {}
    for row, (row_id, *place) in enumerate(named):
        if place[0] is not None and shards.get(row_id) != tuple(place):
            now = shards.get(row_id, (None, None))
            changes[row] = dict(zip(_SHARD_COLUMNS, now, strict=True))
            if row_id not in shards:
                changes[row] |= dict.fromkeys(_OF_PLACE)
    return _put(table, changes) if changes else table


def _remove_unnamed(folder: str, receipt: Receipt | None) -> None:
    """Parts of earlier generations, and what killed runs left half-written."""
    for name in storage.names(folder):
        if name in (WORK, FOLDER) or name.endswith((".json", ".lease")):
            continue
        if name.endswith(".parquet") or name in storage.leftovers(folder):
            if receipt is None or name not in {part.file for part in receipt.tables.get("", [])}:
                storage.remove(storage.join(folder, name))
            continue
        place = storage.join(folder, name)
        named = set() if receipt is None else {part.file for part in receipt.tables.get(name, [])}
        for inner in storage.names(place):
            if inner not in named and (inner.endswith(".parquet") or inner in storage.leftovers(place)):
                storage.remove(storage.join(place, inner))
