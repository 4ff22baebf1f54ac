"""Reading manifests: joined rows, damage said plainly, older and newer versions."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import pipeline
from pipeline.errors import ManifestError
from pipeline.manifest import Manifests, parquet_bytes, to_schema, write_part
from pipeline.receipt import Receipt, differences, read_receipt
from pipeline.schema import SCHEMA_VERSION


def _stage(root: Path, name: str, parts: list[pa.Table], layout: str = "L",
           side: dict[str, list[pa.Table]] | None = None) -> None:
    folder = root / name
    tables = {"": parts, **(side or {})}
    files = {table: [write_part(str(folder / table), f"part-{i:05d}", rows) for i, rows in enumerate(each)]
             for table, each in tables.items()}
    (folder / "receipt.json").write_bytes(Receipt(name, {}, layout, files).to_json())


def _ids(*numbers: int) -> list[str]:
    return [f"{number:032x}" for number in numbers]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    root = tmp_path / "manifests" / "demo"
    _stage(root, "ingest", [pa.table({"id": _ids(0, 1), "url": ["a", "b"]}), pa.table({"id": _ids(2), "url": ["c"]})])
    _stage(root, "filter", [pa.table({"id": _ids(0, 1), "kept": [True, False], "reason": [None, "blurry"]}),
                            pa.table({"id": _ids(2), "kept": [True], "reason": pa.array([None], pa.string())})])
    _stage(root, "select", [pa.table({"id": _ids(0, 1), "kept": [True, False], "reason": [None, "blurry"]}),
                            pa.table({"id": _ids(2), "kept": [False], "reason": ["low_clip_score"]})],
           side={"embedding": [pa.table({"id": _ids(0, 1), "vector": [b"00", b"11"]}),
                               pa.table({"id": _ids(2), "vector": [b"22"]})]})
    return root


def test_the_last_stage_that_decides_counts(run: Path) -> None:
    joined = pipeline.open(str(run)).joined().arrow()
    assert joined.column("url").to_pylist() == ["a", "b", "c"]
    assert joined.column("kept").to_pylist() == [True, False, False]
    assert joined.column("reason").to_pylist() == [None, "blurry", "low_clip_score"]
    assert "vector" not in joined.column_names


def test_side_tables_are_joined_when_asked_for(run: Path) -> None:
    rows = pipeline.open(str(run)).joined(["id", "vector"]).arrow()
    assert rows.column("vector").to_pylist() == [b"00", b"11", b"22"]


def test_the_same_rows_as_pandas_and_duckdb(run: Path) -> None:
    view = pipeline.open(str(run)).joined(["url", "kept"])
    assert view.pandas()["url"].tolist() == ["a", "b", "c"]
    assert view.duckdb().filter("kept").fetchall() == [("a", True)]


def test_a_stage_of_other_rows_is_left_out(run: Path) -> None:
    _stage(run, "weigh", [pa.table({"id": _ids(0), "class": ["x"]})], layout="another")
    assert "class" not in pipeline.open(str(run)).joined().columns


@pytest.mark.parametrize("damage", [b"", b"not parquet", b"PAR1"])
def test_a_damaged_part_is_named(run: Path, damage: bytes) -> None:
    part = next((run / "ingest").glob("part-00001-*.parquet"))
    part.write_bytes(damage)
    with pytest.raises(ManifestError, match=part.name) as caught:
        pipeline.open(str(run)).joined(["url"]).arrow()
    assert "--force" in caught.value.hint


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema_version": 1}'])
def test_a_damaged_receipt_is_named(run: Path, text: str) -> None:
    (run / "ingest" / "receipt.json").write_text(text)
    with pytest.raises(ManifestError, match=r"receipt\.json") as caught:
        pipeline.open(str(run)).joined()
    assert caught.value.hint


def test_a_newer_receipt_asks_for_an_upgrade(run: Path) -> None:
    path = run / "ingest" / "receipt.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": SCHEMA_VERSION + 1}))
    with pytest.raises(ManifestError, match="newer") as caught:
        read_receipt(str(run / "ingest"))
    assert "upgrade" in caught.value.hint


def test_no_manifests_and_no_column_are_said_plainly(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="no manifests"):
        pipeline.open(str(tmp_path))
    with pytest.raises(ManifestError, match="no column 'colour'"):
        pipeline.open(str(run)).joined(["colour"]).arrow()


def test_older_tables_are_read_with_nulls_for_what_they_lack() -> None:
    schema = pa.schema([("id", pa.string()), ("new", pa.int32()), ("n", pa.int64())])
    table = to_schema(pa.table({"n": pa.array([1], pa.int32()), "id": ["x"]}), schema)
    assert table.schema == schema
    assert table.to_pylist() == [{"id": "x", "new": None, "n": 1}]


def test_one_table_one_file(tmp_path: Path) -> None:
    table = pa.table({"id": _ids(*range(100))})
    assert parquet_bytes(table) == parquet_bytes(table)
    assert write_part(str(tmp_path), "part-00000", table) == write_part(str(tmp_path), "part-00000", table)
    assert len(list(tmp_path.iterdir())) == 1


def test_differences_name_the_setting_with_both_values() -> None:
    old = {"settings": {"blur": {"min": 1.0, "action": "drop"}}, "inputs": {"measure": "x"}}
    new = {"settings": {"blur": {"min": 2.0, "action": "drop"}}, "inputs": {"measure": "y"}}
    assert differences(old, new) == ["measure changed", "settings.blur.min: 1.0 → 2.0"]


def test_content_does_not_hang_on_timings() -> None:
    a, b = (Receipt("measure", {}, "L", {"": []}, timings={"seconds": s}) for s in (1, 2))
    assert a.content == b.content
    assert Manifests("x").url == "x"
