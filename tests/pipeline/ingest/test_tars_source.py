"""WebDataset tars in place: grouping as webdataset does it, broken ones told, bytes where the row says."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
import webdataset
from hypothesis import given
from hypothesis import strategies as st

from pipeline import storage
from pipeline.errors import SourceError
from pipeline.ingest.sources.base import Found, Log
from pipeline.ingest.sources.tars import TarsSource
from tests.pipeline.ingest import hostile
from tests.pipeline.ingest.test_ingest_stage import ingest

Members = list[tuple[str, bytes]]


def tar_of(members: Members) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return made.getvalue()


def rows_of(path: Path | str, **settings: Any) -> tuple[list[Found], Log]:
    source = TarsSource(TarsSource.Settings(name="t", path=str(path), **settings))
    log = Log()
    return list(source.rows(None, log)), log  # type: ignore[arg-type]


def png(number: int) -> bytes:
    return hostile.png(number)


def test_samples_become_rows_with_what_lies_beside_them(tmp_path: Path) -> None:
    words = json.dumps({"caption": "from json", "label": "bird", "license": "https://l/", "width": 7, "sha": "x"})
    (tmp_path / "a.tar").write_bytes(tar_of([
        ("000.jpg", png(1)), ("000.txt", b"one\ntwo\n"), ("000.json", words.encode()), ("000.cls", b"3"),
        ("in/der.dotted.png", png(2)), ("in/der.caption", b"of der"), ("001.txt", b"words alone"),
        ("002.npy", b"\x93NUMPY"), ("002.webp", png(3)), ("002.json", b"[1]")]))
    rows, log = rows_of(tmp_path, keep=("width",))
    assert [(row.address, row.captions, row.origins, row.refused) for row in rows] == [
        ("a.tar/000", ("one", "two", "from json"), ("txt", "txt", "json"), None),
        ("a.tar/in/der", ("of der",), ("caption",), "no_picture"),  # .dotted.png is no picture's ending by itself
        ("a.tar/001", ("words alone",), ("txt",), "no_picture"), ("a.tar/002", (), (), None)]
    assert (rows[0].license_url, rows[0].label, dict(rows[0].extra)) == ("https://l/", None, {"width": "7"})
    assert log.counts == {"samples": 4, "members that are no JSON object": 1}
    assert log.failed == []
    assert [row.label for row in rows_of(tmp_path, label_from="cls")[0]] == ["3", None, None, None]
    assert rows_of(tmp_path, label_from="json")[0][0].label == "bird"
    dotted = rows_of(tmp_path, picture="dotted.png")[0]
    assert [row.refused for row in dotted] == ["no_picture", None, "no_picture", "no_picture"]


def test_pictures_are_used_where_they_lie(tmp_path: Path) -> None:
    (tmp_path / "tars").mkdir()
    tar = tmp_path / "tars" / "a.tar"
    tar.write_bytes(tar_of([("0.png", png(1)), ("0.txt", b"one"), ("1 a.png", png(2)), ("2.png", b"no picture"),
                            ("3.png", b""), ("4.txt", b"alone"), ("5.png", png(1))]))
    settings = {"sources": [{"kind": "tars", "name": "t", "path": str(tmp_path / "tars")}]}
    rows, _ = ingest(tmp_path / "run", settings)
    assert [row["fetch_outcome"] for row in rows] == ["ok", "ok", "not_an_image", "empty", "no_picture", "ok"]
    for row, data in ((rows[0], png(1)), (rows[1], png(2)), (rows[5], png(1))):
        assert row["container"] == str(tar)
        assert storage.read_range(row["container"], row["offset"], row["length"], sha256=row["sha256"]) == data
        assert row["sha256"] == hashlib.sha256(data).digest()
    assert rows[1]["url"] == f"file://{tar}#1%20a.png"
    assert not (tmp_path / "run" / "data" / "raw").exists()
    assert ingest(tmp_path / "run", settings) == (rows, False)
    (tmp_path / "tars").rename(tmp_path / "moved")
    elsewhere = {"sources": [{**settings["sources"][0], "path": str(tmp_path / "moved")}]}
    moved, computed = ingest(tmp_path / "run", elsewhere)
    assert computed
    assert [row["id"] for row in moved] == [row["id"] for row in rows]
    (tmp_path / "moved" / "b.tar").write_bytes(tar_of([("0.png", png(3))]))
    more, _ = ingest(tmp_path / "run", elsewhere)
    assert [row["id"] for row in more][:6] == [row["id"] for row in rows]
    assert len(more) == 7


@pytest.mark.parametrize(("damage", "samples", "told"), [
    (lambda data: data[:1024], 1, "no end mark"),  # between two members: header and block of the first
    (lambda data: data[:700], 1, "unexpected end of data"), (lambda data: data[:1100], 1, "no header at byte 1024"),
    (lambda data: data[:1024] + b"x" * 512 + data[1536:], 1, "no header at byte 1024"),
    (lambda data: b"no tar at all" * 100, 0, "invalid header"), (lambda data: b"", 0, "empty"),
])
def test_broken_tars_give_what_they_hold_and_are_told(tmp_path: Path, damage: Any, samples: int, told: str) -> None:
    whole = tar_of([("0.png", b"\x89PNG" + bytes(100)), ("1.png", b"\x89PNG" + bytes(100))])
    (tmp_path / "a.tar").write_bytes(damage(whole))
    (tmp_path / "b.tar").write_bytes(whole)
    rows, log = rows_of(tmp_path)
    assert [row.address for row in rows] == [*[f"a.tar/{n}" for n in range(samples)], "b.tar/0", "b.tar/1"]
    assert [(entry["url"], entry["outcome"]) for entry in log.failed] == [(str(tmp_path / "a.tar"), "broken_tar")]
    assert told in log.failed[0]["detail"]


def test_a_member_that_is_cut_is_a_row_with_a_reason(tmp_path: Path) -> None:
    whole = tar_of([("0.png", png(1)), ("1.png", png(2) + bytes(5000))])
    (tmp_path / "a.tar").write_bytes(whole[:3000])
    rows, _ = ingest(tmp_path / "run", {"sources": [{"kind": "tars", "name": "t", "path": str(tmp_path / "a.tar")}]})
    assert [row["fetch_outcome"] for row in rows] == ["ok", "unreadable_file"]
    assert "ends before byte" in rows[1]["fetch_detail"]


NAMES = st.sampled_from(["a", "b", "c.d", "x/a", "x.y/b"])
ENDINGS = st.sampled_from(["png", "txt", "json", "seg.png"])


@given(st.lists(st.tuples(NAMES, ENDINGS), max_size=12))
def test_samples_are_those_of_webdataset(
        tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[str, str]]) -> None:
    """Where webdataset accepts a tar at all: it refuses the same ending twice in a sample."""
    folder = tmp_path_factory.mktemp("tars")
    (folder / "a.tar").write_bytes(tar_of([(f"{name}.{ending}", b"1") for name, ending in parts]))
    try:
        theirs = [sample["__key__"] for sample in webdataset.WebDataset(
            str(folder / "a.tar"), shardshuffle=False, empty_check=False)]
    except ValueError:
        return
    assert [(row.address or "").removeprefix("a.tar/") for row in rows_of(folder)[0]] == theirs


@pytest.mark.parametrize("path", ["nowhere", "nowhere.tar", "*.tar", ""])
def test_no_tars_is_said(tmp_path: Path, path: str) -> None:
    (tmp_path / "a.tar.gz").write_bytes(b"")
    with pytest.raises(SourceError, match="no tars"):
        rows_of(tmp_path / path)


def test_remote_tars_are_read_in_place(s3: str, tmp_path: Path) -> None:
    storage.write_bytes(storage.join(s3, "set", "a.tar"), tar_of([("0.png", png(1)), ("0.txt", b"one")]))
    storage.write_bytes(storage.join(s3, "set", "readme.txt"), b"")
    source = {"kind": "tars", "name": "t", "path": storage.join(s3, "set")}
    [row], _ = ingest(tmp_path, {"sources": [source]})
    assert (row["fetch_outcome"], row["captions"]) == ("ok", ["one"])
    assert row["container"] == storage.join(s3, "set", "a.tar")
    assert storage.read_range(row["container"], row["offset"], row["length"], sha256=row["sha256"]) == png(1)
    assert ingest(tmp_path, {"sources": [source]})[1] is False


@pytest.mark.parametrize("size", [-512, -1])
def test_a_header_that_points_back_at_itself_ends(tmp_path: Path, size: int) -> None:
    whole = bytearray(tar_of([("0.png", b"1"), ("1.txt", b"2")]))
    header = whole[1024:1536]
    header[124:136] = b"\xff" + size.to_bytes(11, "big", signed=True)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    whole[1024:1536] = header
    (tmp_path / "a.tar").write_bytes(whole)
    rows, log = rows_of(tmp_path)
    assert [row.address for row in rows] == ["a.tar/0"]
    assert [entry["outcome"] for entry in log.failed] == ["broken_tar"]
