"""How the search for pairs of near hashes grows with their number, and that it misses none.

    python tests/benchmarks/duplicates.py [--most 1000000] [--distance 8]

Random 64-bit hashes, of which one in twenty is another one with 0 to `distance` bits turned over, in sets of 10,000,
100,000 and so on up to `most`. Of 50,000 all pairs are compared with those found by comparing all with all. Every set
is searched in a process of its own, whose resident memory is printed at its peak.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time

import numpy as np
from numpy.typing import NDArray

from pipeline.nearby import near_pairs
from pipeline.phash import hamming

CHECKED = 50_000


def planted(count: int, distance: int) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]:
    """(hashes, rows that are copies, the row each is a copy of)."""
    rng = np.random.default_rng(count)
    hashes = rng.integers(0, 2**64, count, np.uint64)
    rows = rng.permutation(count)
    copies, originals = rows[:count // 20], rows[count // 20:2 * (count // 20)]
    turned = np.zeros(len(copies), np.uint64)
    bits = rng.integers(0, distance + 1, len(copies))
    for number in range(distance):  # places may repeat: then fewer bits are turned over
        turned ^= np.where(number < bits, np.uint64(1) << rng.integers(0, 64, len(copies), np.uint64), np.uint64(0))
    hashes[copies] = hashes[originals] ^ turned
    return hashes, copies, originals


def brute(hashes: NDArray[np.uint64], distance: int) -> set[tuple[int, int, int]]:
    """Every pair within the distance, by comparing all with all."""
    found: set[tuple[int, int, int]] = set()
    for row in range(len(hashes) - 1):
        bits = hamming(hashes[row + 1:], hashes[row:row + 1])
        found.update((row, row + 1 + other, int(bits[other])) for other in np.flatnonzero(bits <= distance).tolist())
    return found


def searched(count: int, distance: int) -> None:
    hashes, copies, originals = planted(count, distance)
    begun, used = time.perf_counter(), time.process_time()
    a, b, bits = near_pairs(hashes, distance)
    wall, cpu = time.perf_counter() - begun, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    found = np.sort(np.minimum(a, b) * count + np.maximum(a, b))
    wanted = np.minimum(copies, originals) * count + np.maximum(copies, originals)
    at = np.minimum(np.searchsorted(found, wanted), max(0, len(found) - 1))
    missed = int((found[at] != wanted).sum()) if len(found) else len(wanted)
    print(f"{count:>12,} {wall:9.2f} s {cpu:9.2f} s {1e6 * wall / count:8.1f} µs   {peak:5.2f} GB "
          f"{len(a):>10,} pairs, {missed} of {len(wanted):,} planted ones missed", flush=True)
    if count == CHECKED:
        same = set(zip(a.tolist(), b.tolist(), bits.tolist(), strict=True)) == brute(hashes, distance)
        print(f"{'':12} compared all with all: {'the same pairs' if same else 'OTHER PAIRS'}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--most", type=int, default=1_000_000)
    parser.add_argument("--distance", type=int, default=8)
    given = parser.parse_args()
    sizes = sorted({CHECKED, *(10**power for power in range(4, 9) if 10**power <= given.most)})
    print(f"{'hashes':>12} {'wall':>11} {'processor':>11} {'each':>11}")
    for count in sizes:
        process = multiprocessing.get_context("spawn").Process(target=searched, args=(count, given.distance))
        process.start()
        process.join()
        if process.exitcode:
            raise SystemExit(f"searching {count:,} hashes ended with {process.exitcode}")


if __name__ == "__main__":
    main()
