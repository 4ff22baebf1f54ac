"""Lists in every format give the same rows."""

from __future__ import annotations

import csv
import gzip
import io
import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline import storage
from pipeline.errors import SourceError
from pipeline.ingest.sources.base import Found, Log
from pipeline.ingest.sources.urls import UrlsSource
from tests.pipeline.ingest import hostile
from tests.pipeline.ingest.hostile import reply
from tests.pipeline.ingest.test_folder_source import NoWeb

RECORDS: list[dict[str, Any]] = [
    {"URL": "http://h/1.png", "TEXT": "a cat", "WIDTH": 640, "similarity": 0.25, "LICENSE": "https://l.example/"},
    {"URL": "http://h/2.png", "TEXT": "", "WIDTH": 1, "similarity": 0.5, "LICENSE": ""},
    {"URL": "nonsense", "TEXT": 'with "quotes", commas\nand lines', "WIDTH": 0, "similarity": 1.0, "LICENSE": ""},
]
COLUMNS = {"url": "URL", "captions": ["TEXT"], "license": "LICENSE"}


def source(path: Path | str, **settings: Any) -> UrlsSource:
    return UrlsSource(UrlsSource.Settings.model_validate({"name": "u", "path": str(path), **settings}))


def rows(path: Path | str, **settings: Any) -> list[Found]:
    return list(source(path, **settings).rows(NoWeb(), Log()))


def write(path: Path, records: list[dict[str, Any]] = RECORDS) -> Path:
    kind = path.name.removesuffix(".gz").removesuffix(".zst").rsplit(".", 1)[-1]
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(records), path)
        return path
    text = io.StringIO()
    if kind in ("csv", "tsv"):
        writer = csv.DictWriter(text, list(records[0]), delimiter="\t" if kind == "tsv" else ",")
        writer.writeheader()
        writer.writerows(records)
    else:
        text.writelines(json.dumps(record) + "\n" for record in records)
    data = text.getvalue().encode()
    if path.suffix == ".gz":
        data = gzip.compress(data)
    if path.suffix == ".zst":
        data = pa.Codec("zstd").compress(data, asbytes=True)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("name", ["l.parquet", "l.csv", "l.tsv", "l.jsonl", "l.csv.gz", "l.jsonl.zst", "l.tsv.zst"])
def test_same_rows_from_every_format(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name)
    found = rows(path, **COLUMNS)
    assert [(row.url, row.captions, row.license_url) for row in found] == [
        ("http://h/1.png", ("a cat",), "https://l.example/"), ("http://h/2.png", (), None),
        ("nonsense", ('with "quotes", commas\nand lines',), None),
    ]
    assert found[0].origins == ("TEXT",)
    typed = {"WIDTH": pa.int64(), "similarity": pa.float64()} if name == "l.parquet" else dict.fromkeys(
        ("WIDTH", "similarity"), pa.string())
    assert source(path, **COLUMNS).columns() == typed
    assert str(found[0].extra["WIDTH"]) == "640"


def test_plain_text(tmp_path: Path) -> None:
    (tmp_path / "l.txt").write_text("# my list\nhttp://h/1.png\n\n  http://h/2.png  \r\nhttp://h/1.png")
    assert [row.url for row in rows(tmp_path / "l.txt")] == ["http://h/1.png", "http://h/2.png", "http://h/1.png"]


def test_folders_and_wildcards_go_by_name(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "c.md", "d.txt"):
        (tmp_path / name).write_text(f"http://h/{name}\n")
    expected = ["http://h/a.txt", "http://h/b.txt", "http://h/d.txt"]
    assert [row.url for row in rows(tmp_path)] == expected
    assert [row.url for row in rows(tmp_path / "[ab].txt")] == expected[:2]


def test_several_captions_and_lists_of_them(tmp_path: Path) -> None:
    pq.write_table(pa.table({"url": ["http://h/1"], "all": [["one", None, "two"]], "best": ["zero"]}),
                   tmp_path / "l.parquet")
    [found] = rows(tmp_path / "l.parquet", captions=["best", "all"])
    assert found.captions == ("zero", "one", "two")
    assert found.origins == ("best", "all", "all")


def test_a_broken_line_is_a_row_too(tmp_path: Path) -> None:
    (tmp_path / "l.jsonl").write_text('{"url": "http://h/1"}\n{"url": \n["http://h/3"]\n{"url": "http://h/4"}\n')
    log = Log()
    found = list(source(tmp_path / "l.jsonl").rows(NoWeb(), log))
    assert [row.url for row in found] == ["http://h/1", "", "", "http://h/4"]
    assert log.counts["lines that are no JSON object"] == 2


@pytest.mark.parametrize(("name", "settings", "message", "hint"), [
    ("none.csv", {}, "no list", "relative"), ("l.csv", {"url": "url"}, "no column 'url'", "'URL'"),
    ("l.csv", {"url": "href"}, "no column 'href'", "TEXT"), ("l.doc", {}, "no list by its ending", "parquet"),
    ("bad.parquet", {}, "cannot be read", "damaged"), ("bad.csv.gz", {}, "cannot be read", "damaged"),
    ("l.csv", {**COLUMNS, "captions": ["TXT"]}, "no column 'TXT'", "'TEXT'"),
])
def test_faults_are_said_in_one_line(tmp_path: Path, name: str, settings: dict[str, Any], message: str, hint: str,
                                     ) -> None:
    write(tmp_path / "l.csv")
    for bad in ("l.doc", "bad.parquet", "bad.csv.gz"):
        (tmp_path / bad).write_bytes(b"nonsense" * 9)
    with pytest.raises(SourceError, match=message) as caught:
        source(tmp_path / name, **settings).columns()
    assert hint in caught.value.hint


def test_fingerprint_follows_content_only(tmp_path: Path) -> None:
    one = source(write(tmp_path / "l.csv")).fingerprint()
    write(tmp_path / "l.csv")
    assert source(tmp_path / "l.csv").fingerprint() == one
    write(tmp_path / "l.csv", RECORDS[:2])
    assert source(tmp_path / "l.csv").fingerprint() != one


CAPTIONED = [("http://h/1.jpg", 'a "quoted start'), ("http://h/2.jpg", "two, dogs")]
LAYOUT_FILES: dict[str, tuple[str, list[dict[str, Any]] | str]] = {
    "laion": ("part-00000.parquet", [
        {"SAMPLE_ID": 1, "URL": url, "TEXT": text, "HEIGHT": 300, "WIDTH": 400, "LICENSE": "?", "NSFW": "UNLIKELY",
         "similarity": 0.33} for url, text in CAPTIONED]),
    "cc3m": ("Train_GCC-training.tsv", "".join(f"{text}\t{url}\n" for url, text in CAPTIONED)),
    "cc12m": ("cc12m.tsv", "".join(f"{url}\t{text}\n" for url, text in CAPTIONED)),
    "coyo": ("part-00000.parquet", [
        {"id": 4896263451343, "url": url, "text": text, "width": 1, "height": 1, "image_phash": "e2c2", "num_faces": 0,
         "clip_similarity_vitb32": 0.3, "nsfw_score_opennsfw2": 0.1, "watermark_score": 0.2}
        for url, text in CAPTIONED]),
    "datacomp": ("0a.parquet", [
        {"uid": "00ff", "url": url, "text": text, "original_width": 4, "original_height": 3, "sha256": "ab",
         "clip_b32_similarity_score": 0.2, "face_bboxes": [[0.1, 0.2, 0.3, 0.4]]} for url, text in CAPTIONED]),
}


@pytest.mark.parametrize("layout", LAYOUT_FILES)
def test_naming_a_well_known_layout_is_enough(tmp_path: Path, layout: str) -> None:
    name, content = LAYOUT_FILES[layout]
    if isinstance(content, str):
        (tmp_path / name).write_text(content)
    else:
        pq.write_table(pa.Table.from_pylist(content), tmp_path / name)
    found = rows(tmp_path, layout=layout)
    assert [(row.url, row.captions) for row in found] == [(url, (text,)) for url, text in CAPTIONED]
    others = {} if isinstance(content, str) else {
        key: value for key, value in content[0].items() if key.lower() not in ("url", "text")}
    assert found[0].extra == others
    assert set(source(tmp_path, layout=layout).columns()) == set(others)


@pytest.mark.parametrize("layout", ["cc3m", "cc12m"])
def test_a_header_row_added_to_a_list_without_one_is_no_picture(tmp_path: Path, layout: str) -> None:
    name, content = LAYOUT_FILES[layout]
    assert isinstance(content, str)
    header = "caption\turl\n" if layout == "cc3m" else "url\tcaption\n"
    (tmp_path / name).write_text(header + content)
    assert [row.url for row in rows(tmp_path, layout=layout)] == [url for url, _ in CAPTIONED]


def test_lower_case_names_of_later_laion_lists(tmp_path: Path) -> None:
    pq.write_table(pa.table({"url": ["http://h/1"], "caption": ["one"], "punsafe": [0.1]}), tmp_path / "l.parquet")
    [found] = rows(tmp_path, layout="laion")
    assert (found.url, found.captions, found.extra) == ("http://h/1", ("one",), {"punsafe": 0.1})


def test_what_is_said_goes_before_the_layout(tmp_path: Path) -> None:
    pq.write_table(pa.table({"url": ["http://h/1"], "text": ["one"], "better": ["uno"]}), tmp_path / "l.parquet")
    [found] = rows(tmp_path, layout="coyo", captions=["better", "text"])
    assert found.captions == ("uno", "one")


@pytest.mark.parametrize("given", ["", "/lists", "/lists/*.csv.gz", "/lists/b.csv.gz"])
def test_lists_in_object_storage_by_prefix_and_wildcard(s3: str, tmp_path: Path, given: str) -> None:
    base = f"{s3}/urls-{uuid.uuid4().hex}"
    for name in ("a", "b"):
        data = gzip.compress(f"url,caption\nhttp://h/{name}.png,{name}\n".encode())
        storage.write_bytes(f"{base}/lists/{name}.csv.gz", data)
    storage.write_bytes(f"{base}/lists/readme.md", b"no list")
    before = source(base + given).fingerprint()
    assert [row.url for row in rows(base + given)] == [
        f"http://h/{name}.png" for name in "ab" if given[-8:-7] not in ("a", "b") or name == given[-8:-7]]
    storage.write_bytes(f"{base}/lists/b.csv.gz", gzip.compress(b"url,caption\nhttp://h/c.png,c\n"))
    assert source(base + given).fingerprint() != before
    assert rows(base + given)[-1].url == "http://h/c.png"


def test_a_list_on_a_web_server_is_known_by_its_content(tmp_path: Path) -> None:
    def csv_with(last: str) -> bytes:
        return reply(f"url,caption\nhttp://h/1.png,one\nhttp://h/{last}.png,two\n".encode(), kind="text/csv")

    with hostile.serve({"/l.csv?key=x": csv_with("2")}) as server:
        url = f"{server.base}/l.csv?key=x"
        before = source(url).fingerprint()
        assert [row.url for row in rows(url)] == ["http://h/1.png", "http://h/2.png"]
        assert source(url).fingerprint() == before
        server.paths["/l.csv?key=x"] = csv_with("3")  # as long as before, and nothing says how old it is
        assert source(url).fingerprint() != before
        assert rows(url)[-1].url == "http://h/3.png"
