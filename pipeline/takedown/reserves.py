"""Values that stages keep in reserve (spares, chunks of a killed run), without those of gone pictures.

They are known by the hash of what they were computed from, so the keys of gone pictures are computed as the stages do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline import storage
from pipeline.ingest.ban import Ban
from pipeline.ingest.freshness import RAW
from pipeline.manifest import WORK, read_part, write_part
from pipeline.memo import value_keys
from pipeline.receipt import PartFile, Receipt
from pipeline.takedown.gone import Gone, read_picture

if TYPE_CHECKING:
    from pipeline.run import Run

_ASKED = ("url", "state", "refused")
_WORDS = ("caption", "main")
"""Captions written for pictures, kept by what they were scored from: all are dropped, scoring them again is quick."""


def without_values(folder: str, stage: str, receipt: Receipt | None, gone: Gone) -> dict[str, list[PartFile]]:
    """Drop gone pictures' values from a stage's reserves; returns the spares for its receipt, by table."""
    spares = {} if receipt is None else {table: list(parts) for table, parts in receipt.spares.items()}
    for name in storage.names(storage.join(folder, WORK)):
        table, work = "" if name == "main" else name, storage.join(folder, WORK, name)
        for place in storage.names(work):
            if not place.endswith(".parquet"):
                _chunks(storage.join(work, place), stage, name, place, gone)
        namespace = "" if receipt is None else receipt.namespaces.get(table, "")
        named = spares.get(table, [])
        if named:
            spares[table] = [left for part in named if (left := _spare(work, stage, name, namespace, part, gone))]
        kept = {part.file for part in spares.get(table, [])}
        for place in storage.names(work):
            if place.endswith(".parquet") and place not in kept:
                storage.remove(storage.join(work, place))
    return spares


def _spare(work: str, stage: str, table: str, namespace: str, part: PartFile, gone: Gone) -> PartFile | None:
    if not storage.exists(storage.join(work, part.file)):
        return part
    before = read_part(work, part)
    after = _left(before, stage, table, namespace, gone)
    if after.num_rows == before.num_rows:
        return part
    return write_part(work, part.file.rsplit("-", 1)[0], after) if after.num_rows else None


def _chunks(work: str, stage: str, table: str, namespace: str, gone: Gone) -> None:
    for name, before in _readable(work):
        after = _left(before, stage, table, namespace, gone)
        if after.num_rows < before.num_rows:
            if after.num_rows:
                write_part(work, name.rsplit("-", 1)[0], after)
            storage.remove(storage.join(work, name))
    for name in storage.leftovers(work):
        storage.remove(storage.join(work, name))


def _readable(work: str) -> Iterator[tuple[str, pa.Table]]:
    for name in storage.names(work):
        if name.endswith(".parquet"):
            try:
                with storage.open_read(storage.join(work, name)) as file:
                    yield name, pq.read_table(file)
            except (pa.ArrowInvalid, OSError):
                storage.remove(storage.join(work, name))  # damaged: nobody takes anything from it


def _left(values: pa.Table, stage: str, table: str, namespace: str, gone: Gone) -> pa.Table:
    if (stage, table) == _WORDS and gone.sha256:
        return values.slice(0, 0)
    keys = gone_keys(stage, namespace, gone)
    leaves = pc.is_in(values.column("value_key"), pa.array(sorted(keys), pa.binary(16)))
    if "sha256" in values.column_names:
        by_content = pc.is_in(values.column("sha256"), pa.array(sorted(gone.sha256), pa.binary(32)))
        leaves = pc.or_(leaves, by_content)
    return values.filter(pc.invert(leaves))


def gone_keys(stage: str, namespace: str, gone: Gone) -> set[bytes]:
    """Keys under which a stage keeps values of gone pictures."""
    if stage == "ingest":
        return gone.keys | {key for table in gone.listed for key in _all_keys(namespace, table, _ASKED)}
    pictures = pa.table({"sha256": pa.array(sorted(gone.sha256), pa.binary(32))})
    return _all_keys(namespace, pictures, ("sha256",))


def _all_keys(namespace: str, table: pa.Table, columns: Iterable[str]) -> set[bytes]:
    found = value_keys(namespace, table, tuple(columns), np.ones(table.num_rows, bool))
    return {key for key in found if key is not None}


def fetched(folder: str, receipt: Receipt | None) -> Iterator[tuple[str, pa.Table]]:
    """(namespace, values) of ingest's reserves."""
    work = storage.join(folder, WORK, "main")
    for part in [] if receipt is None else receipt.spares.get("", []):
        if receipt is not None and storage.exists(storage.join(work, part.file)):
            yield receipt.namespaces.get("", ""), read_part(work, part)
    for name in storage.names(work):
        if not name.endswith(".parquet"):
            yield from ((name, values) for _, values in _readable(storage.join(work, name)))


def add_fetched(run: Run, receipt: Receipt | None, gone: Gone, ban: Ban) -> set[str]:
    """Complete `gone` by what only ingest's reserves know; returns the raw tars that they name."""
    containers: set[str] = set()
    for namespace, values in fetched(run.manifests.folder("ingest"), receipt):
        rows = [row for row in values.select(["sha256", "container", "offset", "length"]).to_pylist()
                if row["sha256"] is not None]
        gone.sha256 |= {row["sha256"] for row in rows if ban.content(row["sha256"]) is not None}
        if ban.perceptual:  # no stage has measured these
            seen = ban.all_seen([partial(read_picture, row, run.data) for row in rows])
            gone.sha256 |= {row["sha256"] for row, refusal in zip(rows, seen, strict=True) if refusal is not None}
        kept = _left(values, "ingest", "main", namespace, gone)
        gone.places |= _places(values) - _places(kept)
        containers |= {place[0] for place in _places(values)}
    return containers


def _places(values: pa.Table) -> set[tuple[str, int, int]]:
    rows = values.select(["container", "offset", "length"]).to_pylist()
    return {(row["container"], row["offset"], row["length"]) for row in rows
            if row["container"] is not None and row["container"].startswith(f"{RAW}/")}
