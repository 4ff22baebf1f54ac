"""Receipts: what a stage made, from what, with which settings. The receipt is put in place last.

Readers follow the receipt and never a folder listing, so a half-written generation is invisible.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pipeline import storage
from pipeline.errors import ManifestError
from pipeline.schema import SCHEMA_VERSION

JsonObject = dict[str, Any]
RECEIPT = "receipt.json"


def digest(value: object) -> str:
    """32 hex characters of BLAKE2b over the canonical JSON of `value`."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class PartFile:
    """One immutable Parquet file: its name within the table's folder, rows, bytes and SHA-256."""

    file: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Receipt:
    """What one run of one stage left behind.

    `basis` is everything the output depends on (algorithm version, settings, fingerprints, inputs'
    content); `layout` identifies the rows and their split into parts, so that parts of two stages
    with one layout join row for row; `namespaces` say, per table, how its values were computed.
    """

    stage: str
    basis: JsonObject
    layout: str
    tables: dict[str, list[PartFile]]
    namespaces: dict[str, str] = field(default_factory=dict)
    spares: dict[str, list[PartFile]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    timings: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    @property
    def key(self) -> str:
        return digest(self.basis)

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.tables[""])

    @property
    def content(self) -> str:
        """Hash of the output itself: a rerun that gives the same bytes leaves later stages fresh."""
        files = {name: [part.sha256 for part in parts] for name, parts in self.tables.items()}
        return digest([self.schema_version, self.layout, files])

    def to_json(self) -> bytes:
        return (json.dumps(asdict(self), indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def read_receipt(folder: str) -> Receipt | None:
    """The receipt of a stage's folder, None when the stage never finished. Raises ManifestError."""
    url = storage.join(folder, RECEIPT)
    if not storage.exists(url):
        return None
    try:
        raw = json.loads(storage.read_bytes(url))
        if raw["schema_version"] > SCHEMA_VERSION:
            raise ManifestError(
                f"{url} was written by a newer Gristmill (schema {raw['schema_version']}, this one reads "
                f"up to {SCHEMA_VERSION})", hint='upgrade: pip install -U gristmill',
            )
        raw["tables"] = _files(raw["tables"])
        raw["spares"] = _files(raw["spares"])
        return Receipt(**raw)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ManifestError(
            f"{url} is damaged ({type(error).__name__}: {error})",
            hint=f"remove {url} and run the stage again; values already computed are taken over where possible",
        ) from error


def _files(raw: Mapping[str, list[JsonObject]]) -> dict[str, list[PartFile]]:
    return {name: [PartFile(**part) for part in parts] for name, parts in raw.items()}


def differences(old: JsonObject, new: JsonObject, path: str = "") -> list[str]:
    """What changed between two bases, one plain line each: `settings.resolution.min_side: 200 → 512`."""
    lines: list[str] = []
    for name in sorted(set(old) | set(new)):
        before, after, where = old.get(name), new.get(name), f"{path}{name}"
        if before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            lines += differences(before, after, f"{where}.")
        elif where.startswith("inputs."):
            lines.append(f"{name} changed")
        else:
            lines.append(f"{where}: {_short(before)} → {_short(after)}")
    return lines


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "…"
