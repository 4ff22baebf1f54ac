"""Parquet with the pictures' bytes: Hugging Face's layout, plain columns, broken files, reruns and bounded memory."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline import storage
from pipeline.errors import SourceError
from pipeline.ingest.addresses import row_id
from pipeline.ingest.sources.base import Found, Log
from pipeline.ingest.sources.parquet import ParquetSource
from tests.pipeline.ingest import hostile
from tests.pipeline.ingest.test_ingest_stage import ingest

png = hostile.png
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
# what `datasets` writes into the schema's metadata (datasets.Features.to_dict under info.features)
FEATURES = {"image": {"_type": "Image"}, "label": {"names": ["cat", "dog"], "_type": "ClassLabel"},
            "text": {"dtype": "string", "_type": "Value"}}


def write(path: Path, columns: dict[str, pa.Array], features: dict[str, Any] | None = None, **how: Any) -> Path:
    table = pa.table(columns)
    if features is not None:
        said = json.dumps({"info": {"features": features}})
        table = table.replace_schema_metadata({"huggingface": said})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **how)
    return path


def images(*data: bytes | None) -> pa.Array:
    return pa.array([None if each is None else {"bytes": each, "path": "p.png"} for each in data], IMAGE)


def settings(path: Path | str, **more: Any) -> dict[str, Any]:
    return {"sources": [{"kind": "parquet", "name": "p", "path": str(path), **more}]}


def listed(path: Path | str, **more: Any) -> list[Found]:
    source = ParquetSource(ParquetSource.Settings(name="p", path=str(path), **more))
    source.columns()
    return list(source.rows(None, Log()))  # type: ignore[arg-type]


def test_a_hugging_face_dataset_becomes_rows(tmp_path: Path) -> None:
    data = tmp_path / "set" / "data"
    write(data / "train-00000-of-00002.parquet", {
        "image": images(png(1), png(2)), "label": pa.array([1, -1]), "text": pa.array(["one", None]),
        "seen": pa.array([7, 8]), "boxes": pa.array([[[1, 2]], None]), "mask": images(png(8), png(9)),
    }, {**FEATURES, "mask": {"dtype": "binary", "_type": "Value"}}, row_group_size=1)
    write(data / "train-00001-of-00002.parquet", {
        "image": images(png(3)), "label": pa.array([0]), "text": pa.array(["three"]), "seen": pa.array([9])}, FEATURES)
    rows, _ = ingest(tmp_path / "run", settings(tmp_path / "set", label="label"))
    assert [(row["captions"], row["caption_origins"], row["label"], row["source_seen"]) for row in rows] == [
        (["one"], ["text"], "dog", 7), ([], [], None, 8), (["three"], ["text"], "cat", 9)]
    assert [row["source_boxes"] for row in rows] == ["[[1, 2]]", None, None]
    assert "source_mask" not in rows[0]
    assert [row["fetch_outcome"] for row in rows] == ["ok"] * 3
    for row, whole in zip(rows, (png(1), png(2), png(3)), strict=True):
        place = storage.join(str(tmp_path / "run" / "data"), row["container"])
        assert storage.read_range(place, row["offset"], row["length"]) == whole
        assert row["sha256"] == hashlib.sha256(whole).digest()
    assert rows[1]["url"] == f"file://{data}/train-00000-of-00002.parquet#1"
    assert rows[1]["id"] == row_id("p", "parquet", "data/train-00000-of-00002.parquet/1", 0)
    assert ingest(tmp_path / "run", settings(tmp_path / "set", label="label")) == (rows, False)


@pytest.mark.parametrize("kind", [
    pa.binary(), pa.large_binary(), pa.dictionary(pa.int32(), pa.binary()), pa.struct([("bytes", pa.large_binary())]),
])
@pytest.mark.parametrize("how", [{"compression": "zstd"}, {"compression": "none", "use_dictionary": False}])
def test_bytes_in_any_binary_column(tmp_path: Path, kind: pa.DataType, how: dict[str, Any]) -> None:
    values: list[Any] = [png(1), None, b"", b"no picture", png(1)]
    if pa.types.is_struct(kind):
        values = [{"bytes": value} for value in values]
    column = pa.array(values, pa.binary()).cast(kind) if pa.types.is_dictionary(kind) else pa.array(values, kind)
    write(tmp_path / "a.parquet", {"pic": column, "n": pa.array(range(5))}, **how)
    rows, _ = ingest(tmp_path / "run", settings(tmp_path / "a.parquet"))
    assert [row["fetch_outcome"] for row in rows] == ["ok", "no_picture", "empty", "not_an_image", "ok"]
    assert rows[0]["sha256"] == rows[4]["sha256"] == hashlib.sha256(png(1)).digest()


def test_captions_of_several_columns_and_lists(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {
        "image": images(png(1)), "short": pa.array(["a"]), "caption": pa.array([["b", "a", "c"]]),
        "where": pa.array(["https://l.example/"])})
    [row] = listed(tmp_path / "a.parquet")
    assert (row.captions, row.origins) == (("b", "a", "c"), ("caption",) * 3)
    [row] = listed(tmp_path / "a.parquet", captions=("short", "caption"), license="where")
    assert (row.captions, row.origins) == (("a", "b", "c"), ("short", "caption", "caption"))
    assert row.license_url == "https://l.example/"


def test_folders_wildcards_and_ids(tmp_path: Path) -> None:
    for name in ("a/0.parquet", "b/0.parquet"):
        write(tmp_path / name, {"image": images(png(1))})
    whole = [row.address for row in listed(tmp_path)]
    assert whole == ["a/0.parquet/0", "b/0.parquet/0"]
    assert [row.address for row in listed(f"{tmp_path}/*/0.parquet")] == whole
    assert [row.address for row in listed(tmp_path / "b")] == ["0.parquet/0"]


@pytest.mark.parametrize(("given", "message", "hint"), [
    ({"image": "imag"}, "no column 'imag'", "image"), ({"captions": ["txt"]}, "no column 'txt'", "text"),
    ({"image": "text"}, "holds no bytes", "struct"), ({}, "2 columns with pictures", "image, other"),
])
def test_faults_of_settings(tmp_path: Path, given: dict[str, Any], message: str, hint: str) -> None:
    write(tmp_path / "a.parquet", {"image": images(png(1)), "text": pa.array(["x"]), "other": pa.array([b"1"])})
    with pytest.raises(SourceError, match=message) as caught:
        listed(tmp_path, **given)
    assert hint in caught.value.hint


def test_no_files_and_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no Parquet files"):
        listed(tmp_path)
    (tmp_path / "a.parquet").write_bytes(b"PAR1 but no more")
    with pytest.raises(SourceError, match="cannot be read as Parquet"):
        listed(tmp_path)


def test_a_damaged_page_costs_its_row_group_only(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"image": pa.array([png(n) for n in range(6)])}, row_group_size=2,
                 compression="zstd", use_dictionary=False)
    chunk = pq.read_metadata(path).row_group(1).column(0)
    data = bytearray(path.read_bytes())
    frame = data.index(b"\x28\xb5\x2f\xfd", chunk.data_page_offset)  # zstd's magic number, RFC 8878
    data[frame:frame + 4] = bytes(4)
    path.write_bytes(data)
    rows, _ = ingest(tmp_path / "run", settings(path))
    assert [row["fetch_outcome"] for row in rows] == ["ok", "ok", "unreadable_file", "unreadable_file", "ok", "ok"]
    assert "damaged" in rows[2]["fetch_detail"]


def test_too_large_a_picture(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"image": pa.array([png(1), png(2) + bytes(5000)])})
    rows, _ = ingest(tmp_path / "run", {**settings(path), "fetch": {"max_bytes": 4000}})
    assert [row["fetch_outcome"] for row in rows] == ["ok", "too_large"]
    rows, _ = ingest(tmp_path / "run", {**settings(path), "fetch": {"max_bytes": 40000}})
    assert [row["fetch_outcome"] for row in rows] == ["ok", "ok"]


def test_a_changed_file_a_lost_tar_and_chunks_of_any_size(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"image": pa.array([png(n) for n in range(50)])}, row_group_size=20)
    first, _ = ingest(tmp_path / "run", {**settings(path), "chunk_rows": 7})
    hashes = [hashlib.sha256(png(n)).digest() for n in range(50)]
    assert [row["sha256"] for row in first] == hashes
    raw = sorted((tmp_path / "run" / "data" / "raw").iterdir())
    kept = [each.read_bytes() for each in raw]
    raw[3].unlink()
    again, computed = ingest(tmp_path / "run", {**settings(path), "chunk_rows": 7})
    assert computed
    assert again == first
    assert [each.read_bytes() for each in sorted((tmp_path / "run" / "data" / "raw").iterdir())] == kept
    write(path, {"image": pa.array([png(0), png(60)])})
    changed, _ = ingest(tmp_path / "run", settings(path))
    assert [row["sha256"] for row in changed] == [hashes[0], hashlib.sha256(png(60)).digest()]
    assert [row["id"] for row in changed] == [row["id"] for row in first[:2]]


def test_a_file_in_object_storage(s3: str, tmp_path: Path) -> None:
    storage.write_bytes(storage.join(s3, "set/data/a.parquet"),
                        write(tmp_path / "a.parquet", {"image": images(png(1), png(2))}).read_bytes())
    for path in (storage.join(s3, "set"), storage.join(s3, "set/*/a.parquet")):
        rows, _ = ingest(tmp_path / "run", settings(path))
        assert [row["sha256"] for row in rows] == [hashlib.sha256(png(n)).digest() for n in (1, 2)]
        assert rows[0]["id"] == row_id("p", "parquet", "data/a.parquet/0", 0)


BIG = """
import sys
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
rng = np.random.default_rng(0)
table = pa.table({"image": pa.array([rng.bytes(1_000_000) for _ in range(400)])})
pq.write_table(table, sys.argv[1], compression="none", use_dictionary=False, write_batch_size=1, row_group_size=400)
"""
READ = """
import resource, sys
from pipeline.ingest.sources._cells import Cells
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
cells = Cells(sys.argv[1], "image")
assert sum(len(cells.cell(row)) for row in range(400)) == 400_000_000
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


@pytest.mark.soak
def test_a_row_group_larger_than_memory_allows_is_read_page_by_page(tmp_path: Path) -> None:
    """A row group of 400 MB costs less than 100 MB of memory."""
    subprocess.run([sys.executable, "-c", BIG, str(tmp_path / "a.parquet")], check=True)
    said = subprocess.run([sys.executable, "-c", READ, str(tmp_path / "a.parquet")], check=True, capture_output=True)
    assert float(said.stdout) < 100
