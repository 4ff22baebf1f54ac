"""Folders: order, sidecars, classes, metadata files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import SourceError
from pipeline.ingest.sources.base import Found, Log, Page
from pipeline.ingest.sources.folder import FolderSource
from tests.pipeline.ingest.hostile import PICTURE
from tests.pipeline.ingest.test_ingest_stage import ingest


class NoWeb:
    def pages(self, urls: Sequence[str]) -> list[Page]:
        raise AssertionError("a folder asks nothing of the network")


def source(folder: Path, **settings: Any) -> FolderSource:
    return FolderSource(FolderSource.Settings.model_validate({"name": "f", "path": str(folder), **settings}))


def rows(folder: Path, **settings: Any) -> list[Found]:
    made = source(folder, **settings)
    made.columns()
    return list(made.rows(NoWeb(), Log()))


def fill(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def captions(found: list[Found]) -> dict[str, dict[str, str]]:
    return {str(row.address): dict(zip(row.captions, row.origins, strict=True)) for row in found}


def test_order_ids_and_places(tmp_path: Path) -> None:
    fill(tmp_path, {"b/2.png": PICTURE, "a.JPG": PICTURE, "b/10.svg": "<svg/>", "notes.doc": "",
                    ".hidden/x.png": PICTURE, ".x.png": PICTURE, "ä.webp": PICTURE})
    found = rows(tmp_path)
    assert [row.address for row in found] == ["a.JPG", "b/10.svg", "b/2.png", "ä.webp"]
    assert [row.path for row in found] == [str(tmp_path / str(row.address)) for row in found]


def test_sidecars_and_names(tmp_path: Path) -> None:
    fill(tmp_path, {
        "both.png": PICTURE, "both.txt": "\ufeffA red barn\n\nA barn in a field\n",
        "both.json": json.dumps({"caption": "A barn", "text": ["A red barn", "Barn"], "license": "https://l.example/"}),
        "only_a-name.png": PICTURE, "broken.png": PICTURE, "broken.json": "{", "list.png": PICTURE, "list.json": "[1]",
        "empty.png": PICTURE, "empty.txt": " \n",
    })
    found = rows(tmp_path)
    assert captions(found) == {
        "both.png": {"A red barn": "txt", "A barn in a field": "txt", "A barn": "json", "Barn": "json"},
        "broken.png": {"broken": "name"}, "empty.png": {"empty": "name"}, "list.png": {"list": "name"},
        "only_a-name.png": {"only a name": "name"},
    }
    assert [row.license_url for row in found if row.address == "both.png"] == ["https://l.example/"]
    assert captions(rows(tmp_path, caption_from=["json", "txt"]))["both.png"] == {
        "A barn": "json", "A red barn": "json", "Barn": "json", "A barn in a field": "txt"}
    assert captions(rows(tmp_path, caption_from=["json", "txt"]))["empty.png"] == {}


def test_class_from_the_parent_folder(tmp_path: Path) -> None:
    fill(tmp_path, {"cats/1.png": PICTURE, "dogs/big/2.png": PICTURE, "3.png": PICTURE, "4.png": PICTURE,
                    "4.json": '{"label": "bird"}'})
    by_parent = {row.address: row.label for row in rows(tmp_path, label_from="parent")}
    assert by_parent == {"3.png": tmp_path.name, "4.png": tmp_path.name, "cats/1.png": "cats", "dogs/big/2.png": "big"}
    assert [row.label for row in rows(tmp_path, label_from="json")] == [None, "bird", None, None]
    assert {row.label for row in rows(tmp_path)} == {None}


OPENMOJI = [
    {"emoji": "😀", "hexcode": "1F600", "group": "smileys-emotion", "annotation": "grinning face",
     "tags": "face, grin"},
    {"emoji": "😃", "hexcode": "1F603", "group": "smileys-emotion", "annotation": "big eyes", "tags": ""},
]


def test_metadata_like_openmoji(tmp_path: Path) -> None:
    fill(tmp_path, {"color/svg/1F600.svg": "<svg/>", "color/svg/1F603.svg": "<svg/>", "color/svg/1F999.svg": "<svg/>",
                    "black/svg/1F600.svg": "<svg/>", "data/openmoji.json": json.dumps(OPENMOJI)})
    found = rows(tmp_path, include=["color/svg/*.svg"], metadata="data/openmoji.json", metadata_key="hexcode",
                 metadata_captions=["annotation", "tags"], metadata_label="group", label_from="metadata",
                 metadata_keep=["emoji"], caption_from=["metadata"])
    assert captions(found) == {
        "color/svg/1F600.svg": {"grinning face": "metadata", "face, grin": "metadata"},
        "color/svg/1F603.svg": {"big eyes": "metadata"}, "color/svg/1F999.svg": {},
    }
    assert [row.label for row in found] == ["smileys-emotion", "smileys-emotion", None]
    assert [row.extra["emoji"] for row in found] == ["😀", "😃", None]


@pytest.mark.parametrize(("name", "text"), [
    ("metadata.jsonl", '{"file_name": "sub/a.png", "text": "one"}\n{"file_name": "sub/a.png", "text": "two"}\n'),
    ("metadata.csv", "file_name,text\nsub/a.png,one\nsub/a.png,two\n"),
    ("m.tsv", "file_name\ttext\na.png\tone\na.png\ttwo\n"),
    ("m.json", '{"a": {"text": "one"}, "a.png": {"text": ["one", "two"]}}'),
])
def test_metadata_formats(tmp_path: Path, name: str, text: str) -> None:
    fill(tmp_path, {"sub/a.png": PICTURE, name: text})
    found = rows(tmp_path, metadata=name)
    assert captions(found) == {"sub/a.png": {"one": "metadata", "two": "metadata"}}


@pytest.mark.parametrize(("settings", "message", "hint"), [
    ({"metadata": "none.json"}, "No such file", "relative"), ({"metadata": "bad.json"}, "cannot be read", "JSON"),
    ({"metadata": "m.json", "metadata_key": "file"}, "'file'", "hexcode"),
    ({"metadata": "m.json", "metadata_key": "hexcod"}, "'hexcod'", "'hexcode'"),
    ({"metadata": "m.json", "metadata_key": "hexcode", "metadata_captions": ["anotation"]}, "anotation", "annotation"),
    ({"include": ["*.webp"]}, "no pictures", r"\*\.webp"), ({"path": "/no/such/folder"}, "not a folder", "folder"),
])
def test_faults_are_said_in_one_line(tmp_path: Path, settings: dict[str, Any], message: str, hint: str) -> None:
    fill(tmp_path, {"a.png": PICTURE, "bad.json": "[1", "m.json": json.dumps(OPENMOJI)})
    with pytest.raises(SourceError, match=message) as caught:
        rows(tmp_path, **settings)
    assert re.search(hint, caught.value.hint)


def test_fingerprint_follows_path_size_and_mtime(tmp_path: Path) -> None:
    fill(tmp_path, {"a.png": PICTURE, "a.txt": "x", "unrelated.log": "1"})
    seen = {source(tmp_path).fingerprint()}
    assert source(tmp_path).fingerprint() in seen
    fill(tmp_path, {"unrelated.log": "22"})
    assert source(tmp_path).fingerprint() in seen

    steps = [lambda: fill(tmp_path, {"a.txt": "xy"}), lambda: os.utime(tmp_path / "a.png", (1, 1)),
             lambda: (tmp_path / "a.png").rename(tmp_path / "b.png"), lambda: fill(tmp_path, {"c.png": PICTURE})]
    for number, step in enumerate(steps):
        step()
        seen.add(source(tmp_path).fingerprint())
        assert len(seen) == number + 2


@pytest.mark.parametrize(("name", "text"), [
    ("metadata.jsonl", '{"file_name": "a.png", "text": "of the root", "kind": "x"}\n'
                       '{"file_name": "sub/a.png", "caption": ["one", "two"]}\n'
                       '{"file_name": "sub/b.png", "text": "no"}\n'),
    ("metadata.csv", "file_name,text,caption,kind\na.png,of the root,,x\nsub/a.png,one,two,\nsub/b.png,no,,\n"),
])
def test_metadata_of_an_imagefolder_is_found_by_its_name(tmp_path: Path, name: str, text: str) -> None:
    """https://huggingface.co/docs/datasets/image_dataset: file_name counts from the file's own folder."""
    fill(tmp_path, {"a.png": PICTURE, "sub/a.png": PICTURE, "sub/b.png": PICTURE, "c.png": PICTURE, "c.txt": "own",
                    name: text, "sub/metadata.csv": "file_name,text\nb.png,nearer\n"})
    assert captions(rows(tmp_path)) == {
        "a.png": {"of the root": "metadata"}, "sub/a.png": {"one": "metadata", "two": "metadata"},
        "sub/b.png": {"nearer": "metadata"}, "c.png": {"own": "txt"}}
    assert captions(rows(tmp_path, caption_from=["txt"]))["a.png"] == {}
    (tmp_path / "sub" / "metadata.csv").unlink()
    assert [row.extra["kind"] for row in rows(tmp_path, metadata_keep=["kind"])] == ["x", None, None, None]


def test_other_files_of_that_name_are_left_alone(tmp_path: Path) -> None:
    fill(tmp_path, {"a.png": PICTURE, "metadata.jsonl": '{"id": 7}\n'})
    assert captions(rows(tmp_path)) == {"a.png": {"a": "name"}}
    with pytest.raises(SourceError, match="holds none"):
        rows(tmp_path, metadata_label="kind")


def test_classes_of_kohyas_folders(tmp_path: Path) -> None:
    fill(tmp_path, {"10_cat/1.png": PICTURE, "2_sks dog/2.png": PICTURE, "bird/3.png": PICTURE, "7_/4.png": PICTURE})
    assert {row.address: row.label for row in rows(tmp_path, label_from="kohya")} == {
        "10_cat/1.png": "cat", "2_sks dog/2.png": "sks dog", "bird/3.png": "bird", "7_/4.png": "7_"}


def test_licences_in_words_are_no_links(tmp_path: Path) -> None:
    fill(tmp_path, {"a.png": PICTURE, "a.json": '{"license": "CC BY 4.0"}', "b.png": PICTURE,
                    "b.json": '{"license": "https://l.example/by"}', "c.png": PICTURE, "c.json": '{"license": ["x"]}'})
    found, _ = ingest(tmp_path / "run", {"sources": [{"kind": "folder", "name": "f", "path": str(tmp_path)}]})
    assert [(row["license_url"], row["license"]) for row in found] == [
        (None, "CC BY 4.0"), ("https://l.example/by", None), (None, None)]


def test_a_dangling_link_is_a_row(tmp_path: Path) -> None:
    (tmp_path / "gone.png").symlink_to(tmp_path / "nowhere.png")
    [found] = rows(tmp_path)
    assert found.state == "gone"
