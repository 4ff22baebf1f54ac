"""Hundreds of ways to answer one request badly: every row ends in the one outcome that the tables give it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest

from pipeline.ingest.fetch import FetchWorker
from pipeline.ingest.listing import HIDDEN
from pipeline.ingest.outcomes import OUTCOMES
from pipeline.ingest.settings import FetchSettings
from tests.pipeline.ingest import abuse, abuses
from tests.pipeline.ingest.abuse import Abuse
from tests.pipeline.ingest.abuses import Table

PATIENT: dict[str, Any] = {
    "contact": "tests@example.org", "deadline_s": 60.0, "idle_s": 60.0, "connect_s": 60.0, "retries": 0,
    "backoff_s": 0.0,
    "max_wait_s": 2.0, "max_bytes": abuses.MAX_BYTES, "max_redirects": 5, "concurrency": 100,
    "connections_per_host": 100,
}
"""Limits that no row of a table without slow ones comes near, however busy the machine is."""
HASTY = {**PATIENT, "deadline_s": 2.5, "idle_s": 1.0}

Rows = dict[str, dict[str, Any]]


def settings_for(limits: dict[str, Any], *servers: Abuse, **changes: Any) -> FetchSettings:
    allowed = tuple(f"127.0.0.1:{server.port}" for server in servers)
    return FetchSettings.model_validate({**limits, "allow_hosts": allowed, **changes})


def fetched(settings: FetchSettings, data: str, urls: list[str]) -> list[dict[str, Any]]:
    """One row per address, in their order."""
    count = len(urls)
    chunk = pa.table({
        "id": [f"{number:032x}" for number in range(count)], "url": urls, "state": ["@0"] * count,
        **{column.name: pa.nulls(count, column.type) for column in HIDDEN if column.name != "state"},
    })
    return FetchWorker(settings, data)(chunk).to_pylist()


def run(table: Table, limits: dict[str, Any], data: str) -> Rows:
    """What becomes of each name of a table, all served by one server and fetched at once."""
    names = {name: quote(f"/{name}") for group in table.values() for name in group}
    answers = {names[name]: what for group in table.values() for name, what in group.items()}
    with abuse.serve(answers) as server:
        rows = fetched(settings_for(limits, server), data, [server.base + path for path in names.values()])
    return dict(zip(names, rows, strict=True))


TABLES = {"framing": (abuses.FRAMING, PATIENT), "coding": (abuses.CODING, PATIENT),
    "headers": (abuses.HEADERS, PATIENT),
          "types": (abuses.TYPES, PATIENT), "slow": (abuses.SLOW, HASTY)}


@pytest.mark.parametrize("name", TABLES)
def test_every_answer_has_its_outcome(name: str, tmp_path: Path) -> None:
    table, limits = TABLES[name]
    rows = run(table, limits, str(tmp_path))
    expected = {name: outcome for outcome, group in table.items() for name in group}
    assert set(table) <= set(OUTCOMES)
    wrong = {name: (row["fetch_outcome"], row["fetch_detail"], "expected", expected[name])
             for name, row in rows.items() if row["fetch_outcome"] != expected[name]}
    assert wrong == {}
    for row in rows.values():
        assert (row["sha256"] is not None) == (row["container"] is not None) == (row["fetch_outcome"] == "ok")
        assert row["fetch_outcome"] == "ok" or row["fetch_detail"]
