"""Batches: who gets which caption, fixed validation samples, and stored arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.train.shardfolder import write_shards
from tests.train.tinytasks import tiny_job
from train.distributed import Ranks
from train.feed import Sharing, chosen_caption, fixed_batches, steps
from train.latents import ArrayStore, content_key, encode_captions
from train.shards import Row


def test_half_of_the_time_the_chosen_caption_else_evenly_another() -> None:
    row = Row("x", b"", "best", ("best", "second", "third"), "1:1")
    drawn = [chosen_caption(row, at) for at in np.linspace(0, 1, 4000, endpoint=False)]
    assert [drawn.count(text) for text in ("best", "second", "third")] == [2000, 1000, 1000]
    assert chosen_caption(Row("x", b"", "only", ("only",), "1:1"), 0.9) == "only"


def test_cfg_drops_its_share_of_captions(tmp_path: Path) -> None:
    job = tiny_job(write_shards(tmp_path / "shards", rows=40), tmp_path / "run", batch=8)
    captions = [text for index in range(100) for text in job.feed.batch(job.plan.batch(index)).captions]
    dropped = captions.count("")
    assert abs(dropped / 800 - 0.2) < 5 * (0.2 * 0.8 / 800) ** 0.5


def test_two_ranks_get_together_what_one_gets(tmp_path: Path) -> None:
    job = tiny_job(write_shards(tmp_path / "shards", rows=40), tmp_path / "run", batch=8)

    def taken(rank: int, ranks: int, turns: int, workers: int) -> list[list[torch.Tensor]]:
        sharing = Sharing(rank, ranks, turns)
        upcoming = steps(job.plan, job.rows, job.feed, 2, 6, sharing, workers=workers, prefetch=2)
        return [[torch.cat([batch.images.flatten(1).float(), batch.noise.flatten(1), batch.times[:, None]], 1)  # type: ignore[union-attr]
                 for batch in micro] for micro in upcoming]

    whole = [micro[0] for micro in taken(0, 1, 1, 0)]
    shared = [taken(rank, 2, 2, 3) for rank in range(2)]
    for index, expected in enumerate(whole):
        parts = [shared[rank][index][turn] for turn in range(2) for rank in range(2)]
        assert torch.equal(torch.cat(parts), expected)


def test_fixed_samples_are_the_same_each_time_and_ranks_share_them_out(tmp_path: Path) -> None:
    job = tiny_job(write_shards(tmp_path / "shards", rows=40), tmp_path / "run")
    rows, kinds = job.rows[:10], np.zeros(10, int)
    alone = list(fixed_batches(job.feed, rows, kinds, 4, Sharing()))
    assert [len(batch.rows) for batch in alone] == [4, 4, 2]
    again = [list(fixed_batches(job.feed, rows, kinds, 4, Sharing(rank, 2))) for rank in range(2)]
    assert [len(share) for share in again] == [2, 1]
    for batch, same in zip(alone, [again[0][0], again[1][0], again[0][1]], strict=True):
        assert batch.noise is not None
        assert same.noise is not None
        assert torch.equal(batch.noise, same.noise)
        assert torch.equal(batch.times, same.times)


def test_stored_arrays_come_back_in_any_order_and_survive_reopening(tmp_path: Path) -> None:
    store = ArrayStore(str(tmp_path))
    values = np.arange(24, dtype=np.float16).reshape(6, 4)
    keys = [bytes([number]) * 4 for number in range(6)]
    store.append(keys[:4], {"latents": values[:4]})
    store.append(keys[4:], {"latents": values[4:]})
    reopened = ArrayStore(str(tmp_path))
    assert np.array_equal(reopened.take([keys[5], keys[0], keys[3]])["latents"], values[[5, 0, 3]])
    assert keys[2] in reopened
    assert b"none" not in reopened
    (tmp_path / "part-half.latents.npy").write_bytes(b"a part whose list never came")
    assert len(ArrayStore(str(tmp_path))) == 6


def test_only_new_captions_are_encoded(tmp_path: Path) -> None:
    asked: list[str] = []

    def states(captions: list[str]) -> tuple[np.ndarray, np.ndarray]:
        asked.extend(captions)
        lengths = np.array([len(text) for text in captions], np.float32)
        return np.repeat(lengths[:, None, None], 2, axis=2), np.ones((len(captions), 1), bool)

    store = ArrayStore(str(tmp_path))
    encode_captions(store, ["a", "bb", "a"], states, ranks=Ranks(), report=lambda done, total: None)
    assert [text for text in asked if text] == ["a", "bb"]
    asked.clear()
    encode_captions(store, ["bb", "ccc"], states, ranks=Ranks(), report=lambda done, total: None)
    assert [text for text in asked if text] == ["ccc"]
    kept = store.take([content_key(text) for text in ("ccc", "a")])
    assert kept["text"][:, 0, 0].tolist() == [3.0, 1.0]


def test_a_missing_key_is_a_key_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        ArrayStore(str(tmp_path)).take([b"none"])
