"""Bodies under way: in memory while there is room, on disk beyond, the same bytes either way."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from pipeline.ingest.body import IN_MEMORY, Body, Room, Spool


def body_of(data: bytes, piece: int) -> Body:
    body = Body()
    for start in range(0, len(data), piece):
        body.append(data[start:start + piece])
    return body


@pytest.mark.parametrize("size", [0, 1, 70_000, IN_MEMORY, IN_MEMORY + 1, 3 * IN_MEMORY])
def test_a_body_is_what_arrived_wherever_it_lies(size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    body = body_of(data, 65_536)
    assert body.in_memory == (size <= IN_MEMORY)
    assert (body.length, body.read(), body.sha256) == (size, data, hashlib.sha256(data).digest())
    body.close()


def test_spools_share_what_memory_there_is() -> None:
    room = Room(250_000)
    one, other = Spool(room), Spool(room)
    pieces = [np.random.default_rng(number).bytes(100_000) for number in range(4)]
    kept = [spool.keep(body_of(data, 30_000)) for spool, data in zip((one, other, one, other), pieces, strict=True)]
    assert [body.in_memory for body in kept] == [True, True, False, False]
    assert (one.on_disk, other.on_disk) == (100_000, 100_000)
    assert [body.read() for body in kept] == pieces
    one.close()
    third = Spool(room)
    assert third.keep(body_of(pieces[0], 30_000)).in_memory, "what a stored chunk held is free again"
    other.close()
    third.close()
