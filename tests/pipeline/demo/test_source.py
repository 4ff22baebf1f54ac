"""The demo source: its session builds and serves, its rows are what a crawl of the served pages finds."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pipeline.demo.source import DemoSite
from pipeline.demo.truth import read_truth
from pipeline.errors import SourceError
from pipeline.ingest.settings import FetchSettings
from pipeline.ingest.sources.base import Log
from pipeline.ingest.web import LazyWeb


def free_port() -> int:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        return int(holder.getsockname()[1])


def test_a_crawl_of_the_session_finds_what_the_truth_lists(tmp_path: Path) -> None:
    settings = DemoSite.Settings(name="demo", scenes=60, port=free_port())
    source, run = DemoSite(settings), cast(Any, SimpleNamespace(data=str(tmp_path)))
    log = Log()
    fetch = FetchSettings(contact="https://example.org/test", allow_hosts=("127.0.0.1",), connections_per_host=8)
    with source.session(run):
        web = LazyWeb(fetch)
        try:
            found = list(source.rows(web, log))
        finally:
            web.close()
    truth = {row["url"]: row for row in read_truth(str(tmp_path / "site" / "truth.parquet")).to_pylist()}
    assert sorted(row.url for row in found) == sorted(truth)
    for row in found:
        assert (row.refused == "opt_out") == (truth[row.url]["fault"] == "opt_out_page")
        assert row.captions
        assert row.license_url == "https://creativecommons.org/publicdomain/zero/1.0/"
    assert {fail["outcome"] for fail in log.failed} == {"robots"}  # the index of the forbidden directory


def test_a_remote_workdir_is_one_clear_line() -> None:
    source = DemoSite(DemoSite.Settings(name="demo"))
    with (
        pytest.raises(SourceError, match="cannot be served"),
        source.session(cast(Any, SimpleNamespace(data="s3://a/b"))),
    ):
        pass
