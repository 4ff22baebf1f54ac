"""Content codings, cut anywhere."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib

import pytest

from pipeline.ingest.coding import codings, unpacker

PLAIN = bytes(range(256)) * 8
PACKED = {
    "gzip": gzip.compress(PLAIN), "x-gzip": gzip.compress(PLAIN[:9]) + gzip.compress(PLAIN[9:]) + b"\0" * 40,
    "deflate": zlib.compress(PLAIN), "deflate bare": zlib.compress(PLAIN, wbits=-15),
}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
@pytest.mark.parametrize("name", PACKED)
def test_pieces_of_any_size(name: str, size: int) -> None:
    unpack, packed, plain = unpacker([name.split()[0]]), PACKED[name], b""
    assert unpack is not None
    for at in range(0, len(packed), size):
        plain += unpack.feed(packed[at:at + size], 10_000)
    assert plain == PLAIN
    assert unpack.complete


@pytest.mark.parametrize("name", PACKED)
def test_a_body_cut_anywhere_is_not_complete(name: str) -> None:
    ends = set(range(1, len(PACKED[name])))
    if name == "x-gzip":  # two members, then padding: it may end after either, and one byte more is padding
        first = len(gzip.compress(PLAIN[:9]))
        ends -= {first, first + 1, *range(len(PACKED[name]) - 40, len(PACKED[name]))}
    for end in ends:
        unpack = unpacker([name.split()[0]])
        assert unpack is not None
        unpack.feed(PACKED[name][:end], 10_000)
        assert not unpack.complete, end


def test_no_more_is_unpacked_than_asked_for() -> None:
    bomb = gzip.compress(b"\0" * 50_000_000)
    unpack = unpacker(["gzip"])
    assert unpack is not None
    tracemalloc.start()
    assert len(unpack.feed(bomb, 1000)) == 1000
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_names() -> None:
    assert codings(["GZIP, identity", "", "br"]) == ["gzip", "br"]
    assert codings([]) == []
    for names in ([], ["br"], ["gzip", "gzip"]):
        assert unpacker(names) is None
