"""An index of 16-byte keys: 20 bytes for each, where a dictionary takes about 200.

Keys lie sorted in 256 shelves by their first byte; new ones wait in a small dictionary and are sorted in together, so
that no more than one shelf is ever copied at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Key = bytes
UNKNOWN = 2**32 - 1
"""No number: one less than this is the highest."""
WIDTH = 16
_WAITING = 1 << 16


class KeyIndex:
    """Maps keys of 16 bytes, evenly spread as hashes are, to numbers from 0."""

    def __init__(self, waiting: int = _WAITING) -> None:
        self._limit = waiting
        self._new: dict[Key, int] = {}
        self._keys = [np.empty(0, f"S{WIDTH}") for _ in range(256)]
        self._numbers = [np.empty(0, np.uint32) for _ in range(256)]

    def get(self, keys: Sequence[Key]) -> np.ndarray:
        """The number of each key (uint32), UNKNOWN for those that are not there."""
        found = np.fromiter((self._new.get(key, UNKNOWN) for key in keys), np.uint32, len(keys))
        for shelf, rows, places in self._places(keys):
            found[rows] = self._numbers[shelf][places]
        return found

    def put(self, keys: Sequence[Key], numbers: Sequence[int]) -> None:
        """Enter keys that are not there, and give those that are new numbers."""
        asked = np.asarray(numbers, np.uint32)
        there = np.zeros(len(keys), bool)
        for shelf, rows, places in self._places(keys):
            self._numbers[shelf][places] = asked[rows]
            there[rows] = True
        self._new.update((keys[row], numbers[row]) for row in np.flatnonzero(~there).tolist())
        if len(self._new) > self._limit:
            self._shelve()

    def _places(self, keys: Sequence[Key]) -> list[tuple[int, np.ndarray, np.ndarray]]:
        """(shelf, rows of `keys`, their places on it) for all keys that lie on shelves."""
        packed, shelves, order = _by_shelf(keys)
        found = []
        for shelf, rows in zip(shelves, order, strict=True):
            sorted_keys = self._keys[shelf]
            if len(sorted_keys) == 0:
                continue
            places = np.searchsorted(sorted_keys, packed[rows])
            places[places == len(sorted_keys)] = 0
            same = sorted_keys[places] == packed[rows]
            if same.any():
                found.append((shelf, rows[same], places[same]))
        return found

    def _shelve(self) -> None:
        keys = sorted(self._new)
        numbers = np.fromiter((self._new[key] for key in keys), np.uint32, len(keys))
        self._new.clear()
        packed, shelves, order = _by_shelf(keys)
        for shelf, rows in zip(shelves, order, strict=True):
            places = np.searchsorted(self._keys[shelf], packed[rows])
            self._keys[shelf] = np.insert(self._keys[shelf], places, packed[rows])
            self._numbers[shelf] = np.insert(self._numbers[shelf], places, numbers[rows])


def _by_shelf(keys: Sequence[Key]) -> tuple[np.ndarray, list[int], list[np.ndarray]]:
    """Keys as an array, the first bytes that occur, and for each of these the rows that have it, in order."""
    joined = b"".join(keys)
    assert len(joined) == WIDTH * len(keys)
    packed = np.frombuffer(joined, f"S{WIDTH}")
    first = np.frombuffer(joined, np.uint8)[::WIDTH]
    order = np.argsort(first, kind="stable")
    shelves, starts = np.unique(first[order], return_index=True)
    return packed, shelves.tolist(), np.split(order, starts[1:]) if len(keys) else []
