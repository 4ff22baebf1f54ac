"""Copies: verified pairs, an election without chains, captions that go to the row that stays."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pipeline.dedupe import EDGE_READS, DedupeSettings, elect, pooled, preference
from pipeline.pairs import Neighbours, copies
from pipeline.schema import EDGES, INGEST, MEASURE

TYPES = {c.name: c.type for schema in (INGEST, MEASURE) for c in schema.columns}


def _id(number: int) -> str:
    return f"{number:032x}"


def _busy(seed: int) -> bytes:
    return np.random.default_rng(seed).integers(0, 256, 384, np.uint8).tobytes()


def _rows(*rows: dict[str, Any]) -> pa.Table:
    full = [{"id": _id(i), "kind": "site", "url": f"http://x/{i}", "sha256": bytes([i]) * 32, "decode_outcome": "ok",
             "pixel_digest": bytes([i]) * 16, "phash": i * 0x0F0F0F0F0F0F0F0F % 2**64, "thumb": _busy(i), **row}
            for i, row in enumerate(rows)]
    return pa.table({name: pa.array([row[name] for row in full], TYPES[name]) for name in EDGE_READS})


def _edges(table: pa.Table, **settings: Any) -> set[tuple[int, int, str]]:
    found = copies(table, DedupeSettings(**settings)).to_pylist()
    return {(int(e["a"], 16), int(e["b"], 16), e["relation"]) for e in found}


def test_equal_addresses_bytes_and_pixels_are_copies() -> None:
    table = _rows({}, {"url": "http://x/0"}, {"sha256": bytes([0]) * 32, "pixel_digest": bytes([0]) * 16},
                  {"pixel_digest": bytes([0]) * 16}, {})
    assert _edges(table, perceptual=False) == {(0, 1, "address"), (0, 2, "bytes"), (0, 3, "pixels")}


def test_near_hashes_are_copies_only_when_the_thumbnails_agree() -> None:
    same = _busy(0)
    close = (np.frombuffer(same, np.uint8).astype(int) + 3).clip(0, 255).astype(np.uint8).tobytes()
    table = _rows({"phash": 0, "thumb": same}, {"phash": 0b1011, "thumb": close}, {"phash": 0b1, "thumb": _busy(9)},
                  {"phash": 2**20 - 1, "thumb": same})
    assert _edges(table) == {(0, 1, "perceptual")}
    assert _edges(table, max_distance=2) == set()


def test_flat_pictures_of_different_colours_are_never_copies() -> None:
    # every flat picture that is not black has the hash 8000000000000000
    flat = [bytes([level]) * 384 for level in (30, 31, 200)]
    table = _rows(*({"phash": 0x8000000000000000, "thumb": thumb} for thumb in flat))
    assert _edges(table) == set()


def test_pictures_that_could_not_be_decoded_match_nothing_but_their_address() -> None:
    table = _rows({"decode_outcome": "truncated"}, {"decode_outcome": "truncated", "sha256": bytes([0]) * 32})
    assert _edges(table) == set()


def _graph(count: int, pairs: set[tuple[int, int]]) -> Neighbours:
    rows = [{"a": _id(a), "b": _id(b), "relation": "perceptual", "distance": 1} for a, b in sorted(pairs)]
    ids = pa.chunked_array([[_id(i) for i in range(count)]])
    return Neighbours(ids, pa.Table.from_pylist(rows, schema=EDGES.arrow))


PAIRS = st.sets(st.tuples(st.integers(0, 11), st.integers(0, 11)).filter(lambda p: p[0] < p[1]), max_size=30)


@given(PAIRS, st.permutations(range(12)))
def test_every_dropped_row_is_a_copy_of_the_row_that_stays(pairs: set[tuple[int, int]], order: list[int]) -> None:
    neighbours = _graph(12, pairs)
    keeper = elect(neighbours, order).tolist()
    for row, kept in enumerate(keeper):
        assert kept == row or (min(row, kept), max(row, kept)) in pairs
        assert keeper[kept] == kept  # the row kept in its place is itself kept
    for a, b in pairs:
        assert not (keeper[a] == a and keeper[b] == b)  # no two copies both stay


def test_a_chain_does_not_lose_its_far_end() -> None:
    neighbours = _graph(3, {(0, 1), (1, 2)})
    assert elect(neighbours, [0, 1, 2]).tolist() == [0, 0, 2]
    assert len(set(neighbours.group.to_pylist())) == 1


def test_the_better_copy_stays_whatever_the_file_order() -> None:
    table = pa.table({"id": [_id(i) for i in range(5)], "width": [900, 300, 900, 900, 900],
                      "height": [600, 200, 600, 600, 600], "length": [50, 9000, 80, 80, 80],
                      "captions": [["a"], ["a"], [], ["a"], ["a"]]})
    dropped = np.array([False, False, False, True, False])
    # 3 fails a check; 1 is small; 0 is compressed harder; 2 has no words
    assert preference(table, dropped).tolist() == [4, 2, 0, 1, 3]


ROW = st.fixed_dictionaries({
    "url": st.sampled_from(["http://x/a", "http://x/b", "http://x/c"]), "kind": st.sampled_from(["site", "urls"]),
    "sha256": st.integers(0, 3).map(lambda n: bytes([n]) * 32),
    "pixel_digest": st.integers(0, 3).map(lambda n: bytes([n]) * 16),
    "decode_outcome": st.sampled_from(["ok", "ok", "ok", "truncated", None]),
    "phash": st.integers(0, 15), "thumb": st.integers(0, 2).map(_busy),
})


@given(st.lists(ROW, max_size=12), st.permutations(range(12)))
def test_edges_are_those_of_the_definition(rows: list[dict[str, Any]], names: list[int]) -> None:
    """Row by row: each class of equal rows is a star around its smallest id; likeness is between distinct pictures."""
    named = [{**row, "id": _id(name)} for row, name in zip(rows, names, strict=False)]
    table, by_id = _rows(*named), sorted(named, key=lambda row: row["id"])
    expected: dict[tuple[str, str], tuple[str, int]] = {}
    heads: dict[Any, dict[str, Any]] = {}
    for relation, value in (("address", ("kind", "url")), ("bytes", ("sha256",)), ("pixels", ("pixel_digest",))):
        heads = {}
        for row in by_id:
            if relation == "address" or row["decode_outcome"] == "ok":
                head = heads.setdefault(tuple(row[name] for name in value), row)
                if head is not row:
                    expected.setdefault((head["id"], row["id"]), (relation, 0))
    for a, b in combinations(sorted(heads.values(), key=lambda row: row["id"]), 2):
        if (distance := (a["phash"] ^ b["phash"]).bit_count()) <= 3 and a["thumb"] == b["thumb"]:
            expected.setdefault((a["id"], b["id"]), ("perceptual", distance))
    found = copies(table, DedupeSettings(max_distance=3)).to_pylist()
    assert [((e["a"], e["b"]), (e["relation"], e["distance"])) for e in found] == sorted(expected.items())


WORDS = st.none() | st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["alt", "title"])), max_size=3)


@given(st.lists(WORDS, min_size=1, max_size=8), st.data())
def test_captions_go_to_the_row_that_stays(words: list[list[tuple[str, str]] | None], data: st.DataObject) -> None:
    keeper = [data.draw(st.integers(0, row)) for row in range(len(words))]
    keeper = [kept if keeper[kept] == kept else row for row, kept in enumerate(keeper)]
    pools = [dict(reversed(row)) if row else {} for row in words]  # the first origin of a text counts
    pools = [{text: pool[text] for text, _ in row or []} for row, pool in zip(words, pools, strict=True)]
    for row, kept in enumerate(keeper):
        if kept != row:
            for text, origin in words[row] or []:
                pools[kept].setdefault(text, origin)
    lists = [pa.chunked_array([[None if row is None else [part[at] for part in row] for row in words]],
                              pa.list_(pa.string())) for at in (0, 1)]
    dropped = np.array([row for row, kept in enumerate(keeper) if kept != row], np.int64)
    texts, origins = pooled(*lists, dropped, np.array(keeper, np.int64)[dropped])
    assert texts.to_pylist() == [list(pool) for pool in pools]
    assert origins.to_pylist() == [list(pool.values()) for pool in pools]
