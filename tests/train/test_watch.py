"""Logs that survive a resume, overfitting and spikes named, grids laid out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.train.shardfolder import write_shards
from tests.train.tinytasks import Tiny, tiny_job, weights
from train.config import WatchSettings
from train.feed import Batch, Sharing, fixed_batches
from train.loop import Stopped, train
from train.watch import Spikes, Watch, overfitting, probe_loss, read_log, save_grid


def looks(held: list[float], trained: list[float]) -> list[dict[str, Any]]:
    return [{"kind": "validation", "step": 100 * (at + 1), "samples": 0, "validation_loss": a, "train_loss": b}
            for at, (a, b) in enumerate(zip(held, trained, strict=True))]


def test_overfitting_is_told_once_when_held_out_loss_rises_while_training_loss_falls() -> None:
    held = [1.0, 0.8, 0.7, 0.75, 0.8, 0.85, 0.9]
    falling = [1.0, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3]
    told = [overfitting(looks(held[:n], falling[:n])) is not None for n in range(1, 8)]
    assert told == [False] * 5 + [True, False]
    facts = overfitting(looks(held[:6], falling[:6]))
    assert facts is not None
    assert facts["best_step"] == 300


def test_both_losses_rising_is_not_overfitting_and_a_wobble_is_none() -> None:
    held = [1.0, 0.7, 0.8, 0.85, 0.9]
    assert overfitting(looks(held, held)) is None
    assert overfitting(looks([1.0, 0.7, 0.705, 0.7, 0.71], [1.0, 0.7, 0.6, 0.5, 0.4])) is None


def test_a_spike_stands_out_of_noise() -> None:
    rng, spikes = np.random.default_rng(0), Spikes()
    assert not any(spikes.is_spike(float(value)) for value in rng.normal(1, 0.1, 2000))
    assert spikes.is_spike(2.0)
    assert not spikes.is_spike(1.2)


def test_the_long_tail_of_a_small_batch_is_no_spike() -> None:
    rng, spikes = np.random.default_rng(0), Spikes()
    assert not any(spikes.is_spike(float(value)) for value in 0.1 * rng.lognormal(0, 0.4, 5000))
    assert spikes.is_spike(2.0)
    assert not spikes.is_spike(0.0)


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    return write_shards(tmp_path / "shards", rows=40)


class StopAt(Watch):
    def step(self, state: Any, result: Any) -> None:
        super().step(state, result)
        if state.step == 8:
            raise Stopped(state.position)


def test_after_a_resume_the_log_reads_like_that_of_an_undisturbed_run(shards: Path, tmp_path: Path) -> None:
    settings = WatchSettings(log_every=1, every=100, tensorboard=False)
    job, whole = tiny_job(shards, tmp_path / "a"), tiny_job(shards, tmp_path / "b")
    with pytest.raises(Stopped), StopAt(job.folder, settings, quiet=True) as watch:
        train(Tiny(), job, watch)
    with (tmp_path / "a" / "log.jsonl").open("a") as file:
        file.write('{"kind": "train", "st')  # killed while writing
    for one in (job, whole):
        with Watch(one.folder, settings, quiet=True) as watch:
            train(Tiny(), one, watch)

    def told(folder: Path) -> list[tuple[int, float]]:
        return [(line["step"], line["loss"]) for line in read_log(str(folder)) if line["kind"] == "train"]

    assert [step for step, _ in told(tmp_path / "a")] == list(range(1, 13))
    assert told(tmp_path / "a") == told(tmp_path / "b")


def test_after_a_roll_back_the_log_tells_one_story_and_still_names_the_samples(shards: Path, tmp_path: Path) -> None:
    job = tiny_job(shards, tmp_path / "a", every=3)
    bad = {5, 6, 7, 8, 9}

    class Once(Tiny):
        seen: set[int] = set()

        def forward(self, batch: Batch) -> torch.Tensor:
            step = int(batch.numbers[0]) // 4
            loss = super().forward(batch)
            if torch.is_grad_enabled():
                first = step in bad and step not in self.seen
                self.seen.add(step)
                return loss * torch.nan if first else loss
            return loss

    with Watch(job.folder, WatchSettings(log_every=1, every=100), quiet=True) as watch:
        train(Once(), job, watch)
    lines = read_log(job.folder)
    steps = [line["step"] for line in lines if line["kind"] == "train"]
    assert steps == list(range(1, 13))
    events = [(line["event"], line["step"]) for line in lines if line["kind"] == "event"]
    assert events == [*(("skipped_step", step + 1) for step in sorted(bad)), ("roll_back", 3)]
    assert all(line["ids"] for line in lines if line.get("event") == "skipped_step")
    with Watch(job.folder, WatchSettings(log_every=1, every=100), quiet=True) as watch:
        train(Tiny(), job, watch)  # finished: nothing is trained, nothing forgotten
    assert read_log(job.folder) == lines
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(tmp_path / "a" / "tensorboard"))
    board.Reload()
    assert [event.step for event in board.Scalars("train/loss")] == [4 * step for step in range(1, 13)]


def test_looking_changes_no_weight(shards: Path, tmp_path: Path) -> None:
    job, whole = tiny_job(shards, tmp_path / "a"), tiny_job(shards, tmp_path / "b")
    watched, plain = Tiny(0.1), Tiny(0.1)

    def probe() -> Any:
        return fixed_batches(job.feed, job.rows, np.zeros(len(job.rows), int), 4, Sharing())

    with Watch(job.folder, WatchSettings(every=2, tensorboard=False), probes={"validation": probe},
               quiet=True) as watch:
        train(watched, job, watch)
    with Watch(whole.folder, WatchSettings(every=1000, tensorboard=False), quiet=True) as watch:
        train(plain, whole, watch)
    assert torch.equal(weights(watched), weights(plain))


def test_the_probes_loss_is_the_mean_over_its_samples_with_the_averaged_weights(
        shards: Path, tmp_path: Path) -> None:
    job, task = tiny_job(shards, tmp_path / "a"), Tiny()
    some = job.rows[:6]

    def batches(size: int) -> Any:
        return fixed_batches(job.feed, some, np.zeros(6, int), size, Sharing())

    with Watch(job.folder, WatchSettings(every=12, tensorboard=False), probes={"validation": lambda: batches(4)},
               quiet=True) as watch:
        state = train(task, job, watch)
    assert state.ema is not None
    with state.ema.in_place(), torch.no_grad():
        task.eval()
        expected = float(torch.cat([task(batch) for batch in batches(1)]).mean())
        assert probe_loss(state, batches(2)) == pytest.approx(expected, rel=1e-5)
    assert read_log(job.folder)[-1]["validation_loss"] == pytest.approx(expected, rel=1e-5)


def test_a_grid_has_its_pictures_in_rows_with_white_between(tmp_path: Path) -> None:
    pictures = np.zeros((2, 3, 4, 5, 3), np.uint8)
    pictures[1, 2] = (255, 0, 0)
    save_grid(str(tmp_path / "grid.png"), pictures, gap=2)
    sheet = np.asarray(Image.open(tmp_path / "grid.png"))
    assert sheet.shape == (2 * 4 + 2, 3 * 5 + 2 * 2, 3)
    assert (sheet[6:, 14:] == (255, 0, 0)).all()
    assert (sheet[4:6] == 255).all()
    assert (sheet[:4, :5] == 0).all()


def test_every_log_line_is_json_with_a_kind(shards: Path, tmp_path: Path) -> None:
    job = tiny_job(shards, tmp_path / "a")
    with Watch(job.folder, WatchSettings(tensorboard=True, log_every=3), quiet=True) as watch:
        train(Tiny(), job, watch)
    lines = [json.loads(line) for line in (tmp_path / "a" / "log.jsonl").read_text().splitlines()]
    assert {line["kind"] for line in lines} == {"train"}
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(tmp_path / "a" / "tensorboard"))
    board.Reload()
    shown = board.Scalars("train/loss")
    assert [event.step for event in shown] == [12, 24, 36, 48]
    assert [event.value for event in shown] == pytest.approx([line["loss"] for line in lines], rel=1e-6)
