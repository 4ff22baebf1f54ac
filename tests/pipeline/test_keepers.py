"""The election of keepers over whole tables, from hashes to decisions: what holds for whatever rows there are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pipeline.dedupe import DedupeSettings, edge_reads, elect, preference
from pipeline.pairs import Neighbours, copies
from pipeline.schema import INGEST, MEASURE

TYPES = {c.name: c.type for schema in (INGEST, MEASURE) for c in schema.columns}
MOST = 3
SETTINGS = DedupeSettings(max_distance=MOST)
THUMBS = [np.random.default_rng(seed).integers(0, 256, 384, np.uint8).tobytes() for seed in range(2)]

ROW = st.fixed_dictionaries({
    "url": st.sampled_from("abcdefgh"), "picture": st.integers(0, 7), "phash": st.integers(0, 255),
    "thumb": st.sampled_from(THUMBS), "width": st.sampled_from([200, 400]), "length": st.sampled_from([10, 20]),
    "captions": st.sampled_from([[], [" "], ["a boat"]]), "fails": st.booleans(),
})
"""Few values of everything, so that ties and chains are common. Equal `picture`: equal bytes, and so all else alike."""


@st.composite
def tables(draw: st.DrawFn) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = draw(st.lists(ROW, min_size=1, max_size=12))
    names = draw(st.permutations(range(len(rows))))
    first: dict[int, dict[str, Any]] = {}
    made = []
    for name, row in zip(names, rows, strict=True):
        seen = first.setdefault(row["picture"], row)
        same = {column: seen[column] for column in ("phash", "thumb", "width", "length")}
        key = bytes([row["picture"]])
        made.append({**row, **same, "id": f"{name:032x}", "kind": "site", "sha256": key * 32, "pixel_digest": key * 16,
                     "decode_outcome": "ok", "height": 300})
    return made


def elected(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Id → id of the row kept in its place, of rows in this order."""
    names = [*edge_reads(SETTINGS), "width", "height", "length", "captions"]
    table = pa.table({name: pa.array([row[name] for row in rows], TYPES[name]) for name in names})
    neighbours = Neighbours(table.column("id"), copies(table.select(edge_reads(SETTINGS)), SETTINGS))
    keeper = elect(neighbours, preference(table, np.array([row["fails"] for row in rows], bool)))
    return {row["id"]: rows[kept]["id"] for row, kept in zip(rows, keeper.tolist(), strict=True)}


def alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two rows are copies by themselves: one address, one picture, or hash and thumbnail within the limits."""
    near = (one["phash"] ^ other["phash"]).bit_count() <= MOST and one["thumb"] == other["thumb"]
    return bool(one["url"] == other["url"] or one["picture"] == other["picture"] or near)


def reached(rows: list[dict[str, Any]], start: dict[str, Any]) -> set[str]:
    """Ids of the rows that are the same as `start`, by one address or picture or several in turn."""
    found, waiting = {start["id"]}, [start]
    while waiting:
        each = waiting.pop()
        for other in rows:
            if other["id"] not in found and (other["url"] == each["url"] or other["picture"] == each["picture"]):
                found.add(other["id"])
                waiting.append(other)
    return found


@given(tables())
def test_every_dropped_row_is_within_the_threshold_of_its_keeper(rows: list[dict[str, Any]]) -> None:
    """Equality carries on from row to row, likeness does not: at most one step of it lies between the two."""
    by_id = {row["id"]: row for row in rows}
    for row_id, kept in elected(rows).items():
        mine, theirs = (reached(rows, by_id[each]) for each in (row_id, kept))
        assert mine == theirs or any(alike(by_id[a], by_id[b]) for a in mine for b in theirs)


@given(tables())
def test_nobody_is_kept_twice_and_who_is_kept_for_another_is_kept(rows: list[dict[str, Any]]) -> None:
    keeper = elected(rows)
    kept = [row for row in rows if keeper[row["id"]] == row["id"]]
    assert set(keeper.values()) == {row["id"] for row in kept}
    assert not [(a["id"], b["id"]) for a in kept for b in kept if a["id"] < b["id"] and alike(a, b)]


@given(tables())
def test_a_keeper_passes_the_checks_when_any_row_that_it_stands_for_does(rows: list[dict[str, Any]]) -> None:
    by_id, keeper = {row["id"]: row for row in rows}, elected(rows)
    for row_id, kept in keeper.items():
        assert by_id[row_id]["fails"] or not by_id[kept]["fails"]


@given(tables(), st.randoms(use_true_random=False))
def test_the_order_of_rows_plays_no_part(rows: list[dict[str, Any]], random: Any) -> None:
    mixed = list(rows)
    random.shuffle(mixed)
    assert elected(mixed) == elected(rows)
