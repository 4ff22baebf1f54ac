"""Our tars as other readers see them."""

from __future__ import annotations

import hashlib
import io
import tarfile
import tempfile
from pathlib import Path

import pyarrow as pa
import webdataset
from hypothesis import given
from hypothesis import strategies as st

from pipeline.shard import nearest_bucket
from pipeline.shardfile import Member, ShardJob, write_shard
from pipeline.tars import Gathered, TarWriter


@given(st.lists(st.binary(max_size=2000), max_size=6))
def test_members_lie_where_the_writer_says(bodies: list[bytes]) -> None:
    sink = io.BytesIO()
    tar = TarWriter(sink)
    offsets = [tar.add(f"{i:04d}.bin", body) for i, body in enumerate(bodies)]
    tar.close()
    data = sink.getvalue()
    assert [data[o:o + len(b)] for o, b in zip(offsets, bodies, strict=True)] == bodies
    with tarfile.open(fileobj=io.BytesIO(data)) as read:
        members = read.getmembers()
        assert [m.offset_data for m in members] == offsets
        assert [read.extractfile(m).read() for m in members] == bodies  # type: ignore[union-attr]
        assert all(m.mtime == 0 for m in members)


@given(st.lists(st.binary(max_size=300), max_size=40), st.integers(1, 500))
def test_pieces_gathered_for_a_file_are_the_same_bytes(pieces: list[bytes], most: int) -> None:
    with tempfile.TemporaryFile() as file:
        for sink in (Gathered(file, most), Gathered(io.BytesIO(), most)):  # the latter as remote files are
            for piece in pieces:
                assert sink.write(memoryview(piece)) == len(piece)
            sink.flush()
            sink._file.seek(0)
            assert sink._file.read() == b"".join(pieces)


def test_more_pieces_than_the_system_takes_at_once(tmp_path: Path) -> None:
    pieces = [b"%d," % number for number in range(5000)]
    with open(tmp_path / "file", "wb") as file:
        sink = Gathered(file)
        for piece in pieces:
            sink.write(piece)
        sink.flush()
    assert (tmp_path / "file").read_bytes() == b"".join(pieces)


def _job(folder: Path, text: str = "a house") -> ShardJob:
    members = []
    for i in range(5):
        picture = folder / f"{i}.jpg"
        picture.write_bytes(bytes([i]) * (100 + i))
        digest = hashlib.sha256(picture.read_bytes()).hexdigest()
        members.append(Member(f"{i:032x}", digest, str(picture), 0, 100 + i, "jpg", text, '{"class": "x"}'))
    return ShardJob(3, tuple(members))


def test_webdataset_reads_a_shard_as_whole_samples(tmp_path: Path) -> None:
    entry = write_shard(str(tmp_path / "shards"), _job(tmp_path))
    url = str(tmp_path / "shards" / entry["file"])
    samples = list(webdataset.WebDataset(url, shardshuffle=False))
    assert [sample["__key__"] for sample in samples] == [f"{i:032x}" for i in range(5)]
    assert all({"jpg", "txt", "json"} <= set(sample) for sample in samples)
    assert samples[4]["jpg"] == bytes([4]) * 104
    assert samples[4]["txt"] == b"a house"


def test_the_same_members_give_the_same_file(tmp_path: Path) -> None:
    job = _job(tmp_path)
    entries = [write_shard(str(tmp_path / name), job) for name in ("a", "b")]
    assert entries[0] == entries[1]
    assert len(pa.array(entries)) == 2


def test_new_words_do_not_move_pictures() -> None:
    members = (Member("0" * 32, "1" * 64, "x", 0, 1, "jpg", "old", "{}"),)
    renamed = (Member("0" * 32, "1" * 64, "x", 0, 1, "jpg", "new", "{}"),)
    assert ShardJob(0, members).pictures == ShardJob(0, renamed).pictures
    assert ShardJob(0, members).texts != ShardJob(0, renamed).texts


def test_the_nearest_bucket_is_nearest_in_log_ratio() -> None:
    buckets = ("1:1", "4:3", "3:4", "2:1")
    assert nearest_bucket(400, 300, buckets) == "4:3"
    assert nearest_bucket(300, 400, buckets) == "3:4"
    assert nearest_bucket(100, 104, buckets) == "1:1"
    # sqrt(4/3 * 2) = 1.633 is the border between 4:3 and 2:1
    assert nearest_bucket(1632, 1000, buckets) == "4:3"
    assert nearest_bucket(1634, 1000, buckets) == "2:1"
