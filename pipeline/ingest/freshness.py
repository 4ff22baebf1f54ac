"""What makes ingest stale: generations of the web, manners, limits, bytes that are gone."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline import storage
from pipeline.errors import ManifestError, StorageError
from pipeline.ingest.outcomes import AWAY, OK
from pipeline.ingest.settings import FetchSettings
from pipeline.manifest import located
from pipeline.receipt import JsonObject

_MANNERS = ("respect_robots", "opt_outs", "respect_tdm")
_LIMITS = ("deadline_s", "connect_s", "idle_s", "max_bytes", "max_redirects", "retries", "max_wait_s", "allow_hosts")
BOUND_BY_LIMITS = frozenset({
    "timeout", "connect", "dns", "disconnected", "too_large", "too_many_redirects", "private_address", "http_error",
})
_FILE = "generations.json"

RAW = "raw"
"""Sub-folder of the run's data that holds the raw tars."""


def manners(settings: FetchSettings) -> JsonObject:
    """Settings that decide what may be looked at: when they change, everything on the web is asked anew."""
    return settings.model_dump(mode="json", include=set(_MANNERS))


def limits(settings: FetchSettings) -> JsonObject:
    """Settings that only decide which rows fail: when they change, failed rows are tried again."""
    return settings.model_dump(mode="json", include=set(_LIMITS))


class Generations:
    """How often each source on the web has been refreshed: part of its listing's key and its rows' state.

    A number moves on only when the new listing is frozen, so a killed refresh leaves the old one standing.
    """

    def __init__(self, folder: str) -> None:
        self._url = storage.join(folder, _FILE)
        self._numbers: dict[str, int] = self._read()

    def _read(self) -> dict[str, int]:
        if not storage.exists(self._url):
            return {}
        try:
            numbers: dict[str, int] = json.loads(storage.read_bytes(self._url))
        except ValueError as error:
            raise ManifestError(f"{self._url} is damaged ({error})", hint="delete it and run with --refresh") from error
        return numbers

    def of(self, source: str) -> int:
        return self._numbers.get(source, 0)

    def settle(self, source: str, generation: int) -> None:
        """Remember that the source's listing of this generation stands."""
        if self.of(source) != generation:
            self._numbers[source] = generation
            text = json.dumps(self._numbers, indent=1, sort_keys=True) + "\n"
            storage.write_bytes(self._url, text.encode())


class RawTars:
    """The run's raw tars as they are now; their folder is listed once, however many rows are asked about."""

    def __init__(self, data: str) -> None:
        self.data = data
        self._there = set(storage.names(storage.join(data, RAW)))
        self._on_disk = storage.local(data) is not None

    def lost(self, values: pa.Table) -> list[str]:
        """Raw tars, as `container` names them, that hold bytes of these rows and are gone or, on a local disk, cut.

        Pictures in place are not looked at: their source's fingerprint covers them. An object in object storage
        is there whole or not at all, so one listing of its names is enough.
        """
        inside = pc.fill_null(pc.starts_with(values.column("container"), f"{RAW}/"), False)
        held = values.select(["container", "offset", "length"]).filter(inside)
        held = held.append_column("end", pc.add(held.column("offset"), held.column("length")))
        ends = held.group_by("container").aggregate([("end", "max")]).to_pylist()
        return [
            each["container"] for each in ends
            if each["container"].rsplit("/", 1)[-1] not in self._there
            or (self._on_disk and storage.size(storage.join(self.data, each["container"])) < each["end_max"])
        ]


def still_good(values: pa.Table, tars: RawTars, before: JsonObject | None, now: JsonObject,
               retry: frozenset[str] = frozenset()) -> np.ndarray:
    """Which fetched rows need not be fetched again: bytes at hand, or failures that no changed limit explains and
    that are none of `retry`."""
    outcomes, containers = values.column("fetch_outcome"), values.column("container")
    lost = pa.array(tars.lost(values), pa.string())
    at_hand = pc.fill_null(pc.invert(pc.is_in(containers, lost)), True)
    unchanged = before is None or before == now
    again = retry | {AWAY}
    explained = pa.array(sorted(again if unchanged else again | BOUND_BY_LIMITS), pa.string())
    settled = pc.invert(pc.is_in(outcomes, explained))
    good = pc.if_else(pc.equal(outcomes, OK), at_hand, settled)
    return np.asarray(good.to_numpy(zero_copy_only=False) if isinstance(good, pa.Array) else good.to_numpy(), bool)


def whole(values: pa.Table, data: str, wanted: np.ndarray) -> np.ndarray:
    """Which rows are without bytes, or have bytes that still are those of their SHA-256; only `wanted` are read."""
    names = ("container", "offset", "length", "sha256")
    places = zip(*(values.column(name).to_pylist() for name in names), strict=True)
    return np.array([not want or place[0] is None or _same(*place, data=data)
                     for want, place in zip(wanted.tolist(), places, strict=True)], bool)


def _same(container: str, offset: int, length: int, sha256: bytes, *, data: str) -> bool:
    try:
        storage.read_range(located(container, data) or "", offset, length, sha256=sha256)
    except StorageError:
        return False
    return True
