"""What a long blocklist costs: reading it, memory, and asking it, in seconds of processor time.

`python tests/benchmarks/blocklist.py [HASHES] [HOSTS] [PATTERNS]`, 1,000,000, 10,000 and 1,000 without more words.
"""

from __future__ import annotations

import hashlib
import resource
import sys
import tempfile
import time
from pathlib import Path

from pipeline.ingest.ban import Ban
from pipeline.ingest.blocklist import BlocklistSettings, rules
from pipeline.ingest.rules import RuleSet

ASKED = 100_000


def main(hashes: int = 1_000_000, hosts: int = 10_000, patterns: int = 1_000) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "list.txt")
        with path.open("w") as file:
            file.writelines(f"{hashlib.sha256(str(n).encode()).hexdigest()}\n" for n in range(hashes))
            file.writelines(f"host{n}.example.org\n" for n in range(hosts))
            file.writelines(f"*://cdn.example.net/{n}/*/private/*\n" for n in range(patterns))
        before, begun = _peak_mb(), time.process_time()
        blocked = RuleSet("blocked")
        for rule in rules(BlocklistSettings(files=(str(path),))):
            blocked.add(rule)
        ban = Ban((blocked.close(),))
        print(f"reading {blocked.size:,} rules: {time.process_time() - begun:.1f} s, {_peak_mb() - before:,.0f} MB")
    for name, one in (("empty", Ban()), ("long", ban)):
        urls = [f"https://images{n % 999}.example.com/a/{n}.jpg" for n in range(ASKED)]
        print(f"{name}: {_per_call(one.address, urls):.2f} µs an address, "
              f"{_per_call(one.content, [hashlib.sha256(url.encode()).digest() for url in urls]):.2f} µs a SHA-256")
    busy = [f"https://cdn.example.net/x/{n}.jpg" for n in range(ASKED // 100)]
    print(f"on the patterns' own host: {_per_call(ban.address, busy):.0f} µs an address")


def _per_call(ask: object, values: list[object] | list[str] | list[bytes]) -> float:
    begun = time.process_time()
    for value in values:
        ask(value)  # type: ignore[operator]
    return (time.process_time() - begun) / len(values) * 1e6


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
