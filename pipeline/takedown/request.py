"""What `curate forget` is asked: an id, an address, a hash or a host → a tombstone for what must never come back."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pipeline.errors import GristmillError
from pipeline.ingest.addresses import canonical
from pipeline.ingest.ban import Ban
from pipeline.ingest.rules import host_rule
from pipeline.ingest.tombstones import Tombstone, rule_set
from pipeline.manifest import Manifests, read_part
from pipeline.takedown.gone import Gone, find

if TYPE_CHECKING:
    from pipeline.run import Run

ID_HEX, SHA256_HEX, PHASH_HEX = 32, 64, 16
FORMS = ("give a row's id (or its beginning, at least 6 characters), an address with http:// or file://, a SHA-256 "
         "(64 hex digits), phash: and 16 hex digits, or a host such as example.org")


@dataclass(frozen=True)
class Request:
    """One thing asked for: its tombstone, and the rows that it takes down."""

    tombstone: Tombstone
    gone: Gone


def understood(run: Run, asked: str, *, when: str, reason: str, similar: int | None, hide: bool) -> Request:
    """Find what is asked for. Raises GristmillError when it is of no known form, or an id that no row has."""
    text = asked.strip()
    first = replace(_target(run.manifests, text), when=when, reason=reason)
    gone = _matches(run, first)
    if similar is not None:
        hashes = {value: max(similar, distance) for value, distance in first.phash}
        hashes |= {f"{value:016x}": similar for value in _phashes(run.manifests, gone)}
        first = replace(first, phash=tuple(sorted(hashes.items())))
        gone = _matches(run, first)
    every = _same_bytes(run, first, gone)
    gone = _matches(run, every)
    tombstone = replace(every, ids=tuple(sorted(gone.rows)))
    if hide:
        tombstone = _hidden(tombstone, text, gone)
    return Request(tombstone, gone)


def _target(manifests: Manifests, text: str) -> Tombstone:
    """What is asked for, before its copies are looked for."""
    if "://" in text:
        address = text if text.startswith("file://") else canonical(text)
        if address is None:
            raise GristmillError(f"{text[:200]!r} is no address", hint=FORMS)
        return Tombstone("", address, addresses=(address,))
    if re.fullmatch(r"[0-9a-fA-F]{64}", text):
        return Tombstone("", text.lower(), sha256=(text.lower(),))
    if re.fullmatch(r"phash:[0-9a-fA-F]{16}", text.lower()):
        value = text.lower().removeprefix("phash:")
        return Tombstone("", f"phash:{value}", phash=((value, 0),))
    if re.fullmatch(r"[0-9a-fA-F]{6,32}", text):
        return _of_row(manifests, text.lower())
    try:
        host = host_rule(text).value
    except ValueError:
        host = ""
    if "." not in host and host != "localhost":
        raise GristmillError(f"{text[:200]!r} is nothing that can be forgotten", hint=FORMS)
    return Tombstone("", host, hosts=(host,))


def _of_row(manifests: Manifests, start: str) -> Tombstone:
    """A row's own tombstone: its id and its address, of which nothing is asked any more."""
    found: list[dict[str, Any]] = []
    for part in manifests.need("ingest").tables[""]:
        table = read_part(manifests.folder("ingest"), part, ["id", "url"])
        found += [row for row in table.to_pylist() if row["id"].startswith(start)]
    if len(found) != 1:
        message = f"no row {start!r} in this run" if not found else f"{len(found):,} rows begin with {start!r}"
        raise GristmillError(message, hint=FORMS if not found else "give more of the id: " + ", ".join(
            row["id"][:len(start) + 6] for row in found[:5]))
    return Tombstone("", found[0]["id"], ids=(found[0]["id"],), addresses=(found[0]["url"],))


def _matches(run: Run, tombstone: Tombstone) -> Gone:
    return find(run, Ban([rule_set([tombstone])]))


def _same_bytes(run: Run, tombstone: Tombstone, gone: Gone) -> Tombstone:
    """The tombstone with the pictures of all its rows, so that equal ones go, and stay away, wherever they lie."""
    hashes = {*tombstone.sha256, *(value.hex() for value in _hashes(run.manifests, gone))}
    return replace(tombstone, sha256=tuple(sorted(hashes)))


def _hashes(manifests: Manifests, gone: Gone) -> set[bytes]:
    return {row["sha256"] for row in _of(manifests, "ingest", "sha256", gone)}


def _phashes(manifests: Manifests, gone: Gone) -> set[int]:
    return {row["phash"] for row in _of(manifests, "measure", "phash", gone)}


def _of(manifests: Manifests, stage: str, column: str, gone: Gone) -> list[dict[str, Any]]:
    receipt = manifests.receipt(stage)
    rows: list[dict[str, Any]] = []
    for part in [] if receipt is None else receipt.tables[""]:
        table = read_part(manifests.folder(stage), part, ["id", column])
        rows += [row for row in table.to_pylist() if row["id"] in gone.rows and row[column] is not None]
    return rows


def _hidden(tombstone: Tombstone, text: str, gone: Gone) -> Tombstone:
    """The same without any address in it. Raises GristmillError for a host, which has to be known to be avoided."""
    if tombstone.hosts:
        raise GristmillError(f"the address {text} cannot be hidden: a host that is to be avoided must be known",
                             hint="leave out --hide-address, or name the pictures by id or address")
    addresses = {*tombstone.addresses, *gone.addresses.values()}
    hidden = sorted(hashlib.sha256(url.encode("utf-8", "surrogatepass")).hexdigest() for url in addresses)
    asked = tombstone.asked if not tombstone.addresses or tombstone.asked in tombstone.ids else "an address"
    return replace(tombstone, asked=asked, addresses=(), hidden=tuple(hidden))


def several(run: Run, asked: Sequence[str], *, when: str, reason: str, similar: int | None, hide: bool,
            ) -> list[Request]:
    """All that is asked for, before anything is done."""
    return [understood(run, each, when=when, reason=reason, similar=similar, hide=hide) for each in asked]
