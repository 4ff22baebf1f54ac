"""The trainer's caches without a picture: its arrays gone, all others as they were."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest

from pipeline import storage
from train.config import TrainSettings
from train.forgetting import forget
from train.latents import ArrayStore, content_key

KEYS = [bytes([number]) * 32 for number in range(6)]


def fill(folder: Path) -> ArrayStore:
    store = ArrayStore(str(folder / "latents/vae-8x8"))
    for keys in (KEYS[:4], KEYS[4:]):
        store.append(keys, {"latents": np.array([[key[0], 1.0] for key in keys], np.float16)})
    return store


def test_only_its_arrays_go(tmp_path: Path) -> None:
    fill(tmp_path)
    untouched = {path: path.read_bytes() for path in (tmp_path / "latents").rglob("part-*") if path.is_file()}
    forget(str(tmp_path), str(tmp_path / "cache"), [KEYS[1]], [], drawn=False)
    store = ArrayStore(str(tmp_path / "latents/vae-8x8"))
    assert [key in store for key in KEYS] == [True, False, True, True, True, True]
    assert store.take(KEYS[2:])["latents"].tolist() == [[key[0], 1.0] for key in KEYS[2:]]
    standing = {path: path.read_bytes() for path in untouched if path.exists()}
    assert len(standing) == 2
    assert all(untouched[path] == data for path, data in standing.items())
    forget(str(tmp_path), str(tmp_path / "cache"), KEYS, [], drawn=False)
    assert list((tmp_path / "latents/vae-8x8").iterdir()) == []


def test_captions_go_by_what_they_say(tmp_path: Path) -> None:
    store = ArrayStore(str(tmp_path / "text/clip"))
    keys = [content_key(text) for text in ("", "a name", "a tree")]
    store.append(keys, {"text": np.eye(3, dtype=np.float16), "mask": np.ones((3, 1), bool)})
    forget(str(tmp_path), str(tmp_path / "cache"), [], ["a name"], drawn=False)
    store = ArrayStore(str(tmp_path / "text/clip"))
    assert [key in store for key in keys] == [True, False, True]
    assert store.take([keys[2]])["text"].tolist() == [[0.0, 0.0, 1.0]]


def test_killed_between_any_two_changes(tmp_path: Path) -> None:
    for last in range(12):
        fill(tmp_path / str(last))
        with pytest.MonkeyPatch.context() as patch:
            left = iter(range(last))

            def change(url: str, *rest: object, whole: object, left: object = left) -> object:
                next(left)  # type: ignore[call-overload]
                return whole(url, *rest)  # type: ignore[operator]

            for name in ("write_bytes", "remove"):
                whole = getattr(storage, name)
                patch.setattr(storage, name, lambda url, *rest, whole=whole, change=change: change(
                    url, *rest, whole=whole))
            with contextlib.suppress(StopIteration):
                forget(str(tmp_path / str(last)), "", [KEYS[1]], [], drawn=False)
        store = ArrayStore(str(tmp_path / str(last) / "latents/vae-8x8"))
        assert store.take(KEYS[2:])["latents"].tolist() == [[key[0], 1.0] for key in KEYS[2:]]
        forget(str(tmp_path / str(last)), "", [KEYS[1]], [], drawn=False)
        store = ArrayStore(store.folder)
        assert [key in store for key in KEYS] == [True, False, True, True, True, True]
        assert len(list(Path(store.folder).glob("*.npy"))) == len(list(Path(store.folder).glob("*.json"))) == 2


def test_without_a_training_nothing_happens(tmp_path: Path) -> None:
    TrainSettings().forget(str(tmp_path / "runs/x"), KEYS, ["a"], drawn=True)
    assert list(tmp_path.iterdir()) == []
