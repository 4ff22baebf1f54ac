"""A list is listed while its rows are fetched, and ends in the same frozen listing."""

from __future__ import annotations

import socket
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.errors import SourceError
from pipeline.ingest.listing import CARRIED, HIDDEN, PART_ROWS, Frozen, Listing, Opening, opened, source_columns
from pipeline.ingest.sources.urls import UrlsSource
from tests.pipeline.ingest import hostile
from tests.pipeline.ingest.hostile import Hostile, reply
from tests.pipeline.ingest.test_folder_source import NoWeb
from tests.pipeline.ingest.test_ingest_stage import ingest

ROWS = 2 * PART_ROWS + 10


def a_list(folder: Path) -> UrlsSource:
    """Three parts; every address comes once more after 3,000 rows, so across parts."""
    lines = [f"http://h.example/{n % 3000}.png,picture {n}" for n in range(ROWS)]
    (folder / "l.csv").write_text("url,caption\n" + "\n".join(lines) + "\n")
    return UrlsSource(UrlsSource.Settings.model_validate({
        "name": "u", "path": str(folder / "l.csv"), "captions": ["caption"]}))


def listing(source: UrlsSource, folder: Path) -> Listing:
    one = opened(source, str(folder / "listing"), "key", 0, NoWeb(), lambda frozen, log: frozen)
    return Listing([one], (*CARRIED, *source_columns([source]), *HIDDEN))


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "listing").iterdir())


def test_parts_are_there_as_they_are_listed_and_the_same_once_frozen(tmp_path: Path) -> None:
    rows = listing(a_list(tmp_path), tmp_path)
    assert rows.expected is None  # a CSV does not say how long it is
    early = []
    for number in rows.numbers():
        assert "u-key.parquet" not in files(tmp_path)
        early.append(rows.part(number))
    assert [part.num_rows for part in early] == [PART_ROWS, PART_ROWS, 10]
    assert files(tmp_path) == ["u-key.json", "u-key.parquet"]
    again = listing(a_list(tmp_path), tmp_path)
    assert again.expected == ROWS
    assert [again.part(number) for number in again.numbers()] == early
    assert again.layout == rows.layout
    assert [rows.part(number) for number in (2, 0, 1)] == [early[2], early[0], early[1]]


def test_ids_are_those_of_the_documented_hash_across_parts(tmp_path: Path) -> None:
    rows = listing(a_list(tmp_path), tmp_path)
    table = pa.concat_tables([rows.part(number) for number in rows.numbers()])
    assert table.column("id").to_pylist() == [
        blake2b(f"u\0urls\0http://h.example/{n % 3000}.png\0{n // 3000}\0".encode(), digest_size=16).hexdigest()
        for n in range(ROWS)]
    assert table.column("occurrence").to_pylist() == [n // 3000 for n in range(ROWS)]


def test_a_listing_that_is_broken_off_leaves_nothing(tmp_path: Path) -> None:
    rows = listing(a_list(tmp_path), tmp_path)
    assert next(rows.numbers()) == 0
    rows.close()
    assert files(tmp_path) == []


def test_a_list_that_changes_while_it_is_read_is_not_frozen(tmp_path: Path) -> None:
    rows = listing(a_list(tmp_path), tmp_path)
    with pytest.raises(SourceError, match="changed while it was read"):
        for number in rows.numbers():
            with (tmp_path / "l.csv").open("a") as file:
                file.write(f"http://h.example/more{number}.png,\n")
    assert files(tmp_path) == []


def test_a_parquet_list_says_how_long_it_is(tmp_path: Path) -> None:
    pq.write_table(pa.table({"url": ["http://h.example/1", "http://h.example/2"]}), tmp_path / "l.parquet")
    source = UrlsSource(UrlsSource.Settings.model_validate({"name": "u", "path": str(tmp_path / "l.parquet")}))
    one = opened(source, str(tmp_path / "listing"), "key", 0, NoWeb(), lambda frozen, log: frozen)
    assert isinstance(one, Opening)
    assert one.rows == 2
    assert isinstance(one.whole(), Frozen)


def test_the_first_picture_is_asked_for_before_the_list_is_read(tmp_path: Path) -> None:
    """Two parts: when the picture in the first is asked for, the second has not been listed."""
    there: list[bool] = []

    def look(server: Hostile, connection: socket.socket, path: str) -> None:
        there.append(bool(list((tmp_path / "run/manifests/ingest/listing").glob("list-*.parquet"))))
        connection.sendall(reply(hostile.png(3)))

    with hostile.serve({"/1.png": look, "/2.png": look}) as server:
        lines = [f"{server.base}/1.png", *["nonsense"] * (PART_ROWS + 2000), f"{server.base}/2.png"]
        (tmp_path / "l.txt").write_text("\n".join(lines) + "\n")
        settings: dict[str, Any] = {
            "sources": [{"kind": "urls", "name": "list", "path": str(tmp_path / "l.txt")}],
            "fetch": {"contact": "t@example.org", "allow_hosts": ["127.0.0.1"], "retries": 0}}
        rows, _ = ingest(tmp_path / "run", settings)
    assert there[0] is False
    assert [row["fetch_outcome"] for row in (rows[0], rows[1], rows[-1])] == ["ok", "bad_url", "ok"]
    assert len(rows) == len(lines)


def test_lists_in_another_order_and_longer_ones_are_asked_only_for_what_is_new(tmp_path: Path) -> None:
    with hostile.serve({f"/{name}.png": reply(hostile.png(ord(name))) for name in "abcd"}) as server:
        for name, pictures in (("one", "ab"), ("two", "bc")):
            (tmp_path / f"{name}.txt").write_text("".join(f"{server.base}/{each}.png\n" for each in pictures))
        sources = [{"kind": "urls", "name": name, "path": str(tmp_path / f"{name}.txt")} for name in ("one", "two")]
        fetch = {"contact": "t@example.org", "allow_hosts": ["127.0.0.1"], "respect_robots": False,
                 "respect_tdm": False}
        first, _ = ingest(tmp_path / "run", {"sources": sources, "fetch": fetch})
        asked = {f"/{name}.png": 1 for name in "abc"}
        assert server.hits == asked  # b is in both lists
        turned, computed = ingest(tmp_path / "run", {"sources": sources[::-1], "fetch": fetch})
        assert computed
        assert turned == first[2:] + first[:2]
        assert server.hits == asked
        with (tmp_path / "one.txt").open("a") as file:
            file.write(f"{server.base}/d.png\n")
        longer, _ = ingest(tmp_path / "run", {"sources": sources[::-1], "fetch": fetch})
        assert longer[:-1] == turned
        assert server.hits == {**asked, "/d.png": 1}
