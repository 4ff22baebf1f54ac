"""What makes ingest stale: generations of the web, manners, limits, bytes that are gone."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline import storage
from pipeline.errors import ManifestError
from pipeline.ingest.outcomes import OK
from pipeline.ingest.settings import FetchSettings
from pipeline.receipt import JsonObject

_MANNERS = ("respect_robots", "opt_outs", "respect_tdm")
_LIMITS = ("deadline_s", "connect_s", "idle_s", "max_bytes", "max_redirects", "retries", "max_wait_s", "allow_hosts")
_BOUND_BY_LIMITS = frozenset({
    "timeout", "connect", "dns", "disconnected", "too_large", "too_many_redirects", "private_address", "http_error",
})
_FILE = "generations.json"


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


def lost_containers(values: pa.Table) -> list[str]:
    """Raw tars that hold bytes of these rows and are gone, or end too early."""
    ends: dict[str, int] = {}
    columns = values.select(["container", "offset", "length"]).to_pydict()
    for container, offset, length in zip(columns["container"], columns["offset"], columns["length"], strict=True):
        if container is not None:
            ends[container] = max(ends.get(container, 0), offset + length)
    return [url for url, end in ends.items() if not storage.exists(url) or storage.size(url) < end]


def still_good(values: pa.Table, before: Any, now: JsonObject) -> np.ndarray:
    """Which fetched rows need not be fetched again: bytes at hand, or failures that no changed limit explains."""
    outcomes = values.column("fetch_outcome").to_pylist()
    lost = set(lost_containers(values))
    same = before is None or before == now
    failed_anew = frozenset() if same else _BOUND_BY_LIMITS
    containers = values.column("container").to_pylist()
    return np.array([
        container not in lost if outcome == OK else outcome not in failed_anew
        for outcome, container in zip(outcomes, containers, strict=True)
    ], bool)
