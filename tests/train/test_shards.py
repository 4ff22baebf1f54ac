"""Reading a shard folder: ranges, checksums, the bounded cache and retries."""

from __future__ import annotations

import hashlib
import io
import tarfile
from dataclasses import replace
from pathlib import Path

import fsspec
import numpy as np
import pytest
from PIL import Image

from pipeline import storage
from pipeline.errors import StorageError, TrainingError
from tests.train.shardfolder import write_shards
from train.pictures import BadPicture, Pictures, Variation, bucket_shape, covering, cropped
from train.shards import ByteCache, open_shards


def test_every_picture_equals_its_tar_member(tmp_path: Path) -> None:
    shards = open_shards(str(write_shards(tmp_path / "shards", rows=20)))
    members = {}
    for file in (tmp_path / "shards").glob("*.tar"):
        with tarfile.open(file) as tar:
            for info in tar:
                if info.name.endswith(".png"):
                    members[info.name.removesuffix(".png")] = tar.extractfile(info).read()  # type: ignore[union-attr]
    assert len(shards) == 20
    for position in range(20):
        assert shards.read(position) == members[shards.row(position).id]


def test_splits_and_captions(tmp_path: Path) -> None:
    shards = open_shards(str(write_shards(tmp_path, rows=20, validation=5)))
    assert shards.rows("train").tolist() == list(range(15))
    assert shards.rows("validation").tolist() == list(range(15, 20))
    row = shards.row(0)
    assert (row.caption, row.captions) == ("a red square", ("a red square", "red box on dark ground"))


def test_a_missing_folder_and_a_replaced_table_are_one_line_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="no shards at") as error:
        open_shards(str(tmp_path / "nowhere"))
    assert "curate" in error.value.hint
    write_shards(tmp_path, rows=8)
    (tmp_path / "samples.parquet").write_bytes(b"other")
    with pytest.raises(TrainingError, match="does not match"):
        open_shards(str(tmp_path))


def test_damaged_bytes_are_noticed(tmp_path: Path) -> None:
    write_shards(tmp_path, rows=8, shards=1)
    shards = open_shards(str(tmp_path))
    tar = next(tmp_path.glob("*.tar"))
    content = bytearray(tar.read_bytes())
    content[int(shards.table["offset"][3].as_py()) + 20] ^= 1
    tar.write_bytes(content)
    with pytest.raises(StorageError, match="do not match"):
        shards.read(3)
    assert shards.read(2)


def remote(tmp_path: Path, name: str, **options: int) -> str:
    """The same folder in fsspec's memory file system, whose URLs are not local."""
    write_shards(tmp_path / "made", **options)
    memory = fsspec.filesystem("memory")
    for file in (tmp_path / "made").iterdir():
        memory.pipe_file(f"/{name}/{file.name}", file.read_bytes())
    return f"memory://{name}"


def test_remote_reads_are_cached_within_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = remote(tmp_path, tmp_path.name, rows=20)
    largest = 6000
    cache = ByteCache(str(tmp_path / "cache"), largest)
    shards = open_shards(url, cache=cache)
    first = [shards.read(position) for position in range(20)]
    assert sum(map(len, first)) > largest
    held = [path for path in (tmp_path / "cache").glob("??/*") if path.is_file()]
    assert 0 < sum(path.stat().st_size for path in held) <= largest
    reads = []
    read_range = storage.read_range
    monkeypatch.setattr(storage, "read_range", lambda *a: reads.append(a) or read_range(*a))
    assert shards.read(19) == first[19]
    assert reads == []  # the newest is still there
    assert [shards.read(position) for position in range(20)] == first
    assert reads


def test_a_cached_file_that_was_damaged_is_read_again(tmp_path: Path) -> None:
    url = remote(tmp_path, tmp_path.name, rows=4)
    shards = open_shards(url, cache=ByteCache(str(tmp_path / "cache"), 10**6))
    data = shards.read(0)
    name = hashlib.sha256(data).hexdigest()
    (tmp_path / "cache" / name[:2] / name).write_bytes(b"rubbish")
    assert shards.read(0) == data


def test_a_cache_that_cannot_be_written_costs_only_speed(
        tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "cache").write_bytes(b"a file where the folder should be")
    shards = open_shards(remote(tmp_path, tmp_path.name, rows=4), cache=ByteCache(str(tmp_path / "cache"), 10**6))
    assert [hashlib.sha256(shards.read(row)).digest() for row in range(4)] == shards.digests
    assert [record.message.split(" cannot")[0] for record in caplog.records] == [f"the cache {tmp_path / 'cache'}"]


def test_remote_failures_are_retried_a_bounded_number_of_times(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = remote(tmp_path, tmp_path.name, rows=4)
    shards = open_shards(url, retries=3)
    monkeypatch.setattr("train.shards.FIRST_PAUSE_SECONDS", 0.001)
    read_range, tries, good_after = storage.read_range, 0, 3

    def flaky(url: str, offset: int, length: int) -> bytes:
        nonlocal tries
        tries += 1
        if tries <= good_after:
            raise StorageError("connection reset", hint="")
        return read_range(url, offset, length)

    monkeypatch.setattr(storage, "read_range", flaky)
    assert shards.read(0)  # three failures, then success
    tries, good_after = 0, 4
    with pytest.raises(StorageError, match="connection reset"):
        shards.read(1)
    assert tries == 4


def test_resizing_covers_and_crops_at_the_place() -> None:
    rgb = np.zeros((40, 80, 3), np.uint8)
    rgb[:, 40:] = 255
    small = covering(rgb, (20, 20))
    assert small.shape == (20, 40, 3)
    assert np.array_equal(small, np.asarray(Image.fromarray(rgb).resize((40, 20), Image.Resampling.LANCZOS)))
    assert cropped(small, (20, 20), (0.5, 0.0)).mean() < 10
    assert cropped(small, (20, 20), (0.5, 1.0)).mean() > 245
    assert cropped(small, (20, 20)).mean() == pytest.approx(127.5, abs=3)


def test_bucket_shapes_keep_the_area_and_the_multiple() -> None:
    assert bucket_shape("1:1", 64, 8) == (64, 64)
    assert bucket_shape("16:9", 512, 64) == (384, 704)  # SDXL's bucket for 16:9 at half its area
    for bucket in ("4:3", "3:4", "3:2", "9:16"):
        height, width = bucket_shape(bucket, 256, 16)
        assert height % 16 == width % 16 == 0
        assert abs(height * width / 256**2 - 1) < 0.1


def test_random_crops_and_mirrors_depend_only_on_the_samples_number(tmp_path: Path) -> None:
    shards = open_shards(str(write_shards(tmp_path, rows=8)))
    one = Pictures(shards, seed=3, vary=Variation(crop=True, flip=True), cache_bytes=10**6)
    other = Pictures(shards, seed=3, vary=Variation(crop=True, flip=True))
    drawn = {one.pixels(0, (20, 20), number).tobytes() for number in range(30)}
    assert len(drawn) > 5
    assert np.array_equal(one.pixels(0, (20, 20), 17), other.pixels(0, (20, 20), 17))
    centre = Pictures(shards).pixels(0, (40, 40))
    decoded = np.asarray(Image.open(io.BytesIO(shards.read(0))))
    assert np.array_equal(centre.transpose(1, 2, 0), decoded[:, 4:44])  # 48 wide: four columns off each side


def test_zoomed_windows_lie_inside_and_vary_in_place_and_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a picture that is bright in proportion to x (red) and y (green), a window's borders can be read back."""
    ramp = np.linspace(0, 250, 101)
    rgb = np.zeros((101, 101, 3))
    rgb[..., 0], rgb[..., 1] = ramp[None, :], ramp[:, None]
    shards = open_shards(str(write_shards(tmp_path, rows=8)))
    pictures = Pictures(shards, seed=1, vary=Variation(crop=True, zoom=0.5))
    monkeypatch.setattr(pictures, "_covering", lambda row, shape: covering(rgb.astype(np.uint8), shape))
    spans, lefts, tops = [], [], []
    for number in range(60):
        pixels = pictures.pixels(0, (50, 50), number).astype(float) / 250
        (left, right), (top, bottom) = pixels[0, 25, [0, -1]], pixels[1, [0, -1], 25]
        assert right - left == pytest.approx(bottom - top, abs=0.03), "no distortion"
        spans.append(right - left)
        lefts.append(left)
        tops.append(top)
    assert min(spans) == pytest.approx(0.5, abs=0.06)
    assert max(spans) == pytest.approx(1.0, abs=0.06)
    assert np.std(lefts) > 0.05
    assert np.std(tops) > 0.05
    assert abs(np.corrcoef(lefts, tops)[0, 1]) < 0.9, "down and across are drawn apart"


def test_captions_that_name_a_side_keep_it(tmp_path: Path) -> None:
    shards = open_shards(str(write_shards(tmp_path, rows=8)))
    pictures = Pictures(shards, seed=3, vary=Variation(flip=True))
    assert len({pictures.pixels(0, (20, 20), number).tobytes() for number in range(30)}) == 2
    assert pictures.key(0) == shards.digests[0]
    row = shards.row(0)
    sided = replace(row, captions=(*row.captions, "a Red square, on the LEFT"))
    shards.row = lambda position: sided  # type: ignore[method-assign]
    assert len({pictures.pixels(0, (20, 20), number).tobytes() for number in range(30)}) == 1
    assert pictures.key(0) != shards.digests[0], "its cached versions are others"
    shards.row = lambda position: replace(row, captions=("a bright copyright notice",))  # type: ignore[method-assign]
    assert len({pictures.pixels(0, (20, 20), number).tobytes() for number in range(30)}) == 2


def test_a_shard_that_is_away_is_no_bad_picture(tmp_path: Path) -> None:
    shards = open_shards(str(write_shards(tmp_path, rows=8)))
    for tar in tmp_path.glob("*.tar"):
        tar.unlink()
    with pytest.raises(StorageError, match="does not exist"):
        Pictures(shards).pixels(2, (16, 16))


def test_a_bad_picture_says_why(tmp_path: Path) -> None:
    shards = open_shards(str(write_shards(tmp_path, rows=8, broken=(2,))))
    with pytest.raises(BadPicture, match="not_an_image"):
        Pictures(shards).pixels(2, (16, 16))
