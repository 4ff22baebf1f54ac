"""Tombstones: what `curate forget` was asked, and what must never come back. One line of JSON per request.

They lie in `manifests/<run>/tombstones.jsonl`, written whole and atomically, and go only with the run itself. Neither
picture nor caption is in them: hashes, ids, and addresses, which may be hashed too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pipeline import storage
from pipeline.errors import ManifestError
from pipeline.ingest.rules import Rule, RuleSet

FILE = "tombstones.jsonl"
OUTCOME = "forgotten"


@dataclass(frozen=True)
class Tombstone:
    """One request. `ids` are the rows that it took down, `sha256` their pictures; `phash` (hash, bits of 64) is there
    when pictures that look alike stay out too. Of `addresses` (canonical ones) and `hosts` nothing is asked any more;
    `hidden` are SHA-256 of addresses that are not to be written anywhere."""

    when: str
    asked: str
    reason: str = ""
    ids: tuple[str, ...] = ()
    sha256: tuple[str, ...] = ()
    phash: tuple[tuple[str, int], ...] = ()
    addresses: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()

    @property
    def hide(self) -> bool:
        """Whether addresses of its rows are not to be written anywhere."""
        return bool(self.hidden)

    @property
    def detail(self) -> str:
        """What a row says that it was taken down by."""
        return f"{self.when}: asked to forget {self.asked}" + (f" ({self.reason})" if self.reason else "")

    def rules(self) -> Iterable[Rule]:
        yield from (Rule("id", value) for value in self.ids)
        yield from (Rule("sha256", value) for value in self.sha256)
        yield from (Rule("phash", value, distance) for value, distance in self.phash)
        yield from (Rule("url", value) for value in self.addresses)
        yield from (Rule("host", value) for value in self.hosts)
        yield from (Rule("address_sha256", value) for value in self.hidden)


HIDDEN = "hidden:"


def hidden_address(url: str) -> str:
    """What stands for an address that is not to be written: its SHA-256, so that whoever has it can still ask."""
    return url if url.startswith(HIDDEN) else HIDDEN + hashlib.sha256(url.encode("utf-8", "surrogatepass")).hexdigest()


def read(manifests: str) -> list[Tombstone]:
    """A run's tombstones, oldest first. Raises ManifestError when the file is damaged."""
    url = storage.join(manifests, FILE)
    if not storage.exists(url):
        return []
    found = []
    for number, line in enumerate(storage.read_bytes(url).decode("utf-8", "replace").splitlines(), 1):
        try:
            raw = json.loads(line)
            phash = tuple((str(value), int(distance)) for value, distance in raw.pop("phash", ()))
            lists: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else str(value)
                                     for name, value in raw.items()}
            found.append(Tombstone(phash=phash, **lists))
        except (ValueError, TypeError, AttributeError) as error:
            raise ManifestError(f"{url}, line {number} is damaged ({error})",
                                hint="restore the file from a copy, or ask for the same pictures again after removing "
                                "that line: without it they would come back") from error
    return found


def append(manifests: str, tombstone: Tombstone) -> None:
    """Put one more in place. Raises StorageError."""
    lines = [json.dumps(asdict(each), ensure_ascii=False, sort_keys=True) for each in (*read(manifests), tombstone)]
    storage.write_bytes(storage.join(manifests, FILE), ("\n".join(lines) + "\n").encode())


def lend(manifests: str, other: str) -> None:
    """Let another run, such as a sample of this one, keep out the same."""
    if storage.exists(storage.join(manifests, FILE)):
        storage.write_bytes(storage.join(other, FILE), storage.read_bytes(storage.join(manifests, FILE)))


def rule_set(tombstones: Sequence[Tombstone]) -> RuleSet:
    """All their rules; the detail of a row kept out tells of the request."""
    rules = RuleSet(OUTCOME)
    for tombstone in tombstones:
        for rule in tombstone.rules():
            rules.add(rule, tombstone.detail)
        if tombstone.hide:
            rules.hidden_ids.update(tombstone.ids)
    return rules.close()
