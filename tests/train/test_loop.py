"""The loop's promises: the same weights however the work is shared, exact resume, and a guard that skips."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pipeline.errors import TrainingError
from tests.train.shardfolder import write_shards
from tests.train.tinytasks import Silent, Tiny, tiny_job, weights
from train import checkpoint
from train.feed import Batch
from train.loop import BAD_STEPS_BEFORE_ROLL_BACK, MOST_ROLL_BACKS, State, StepResult, Stopped, train
from train.tasks import Task


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    return write_shards(tmp_path / "shards", rows=40, weights="varied")


RANKED = """
import sys, time, torch
from pathlib import Path
from tests.train.tinytasks import *
from train.distributed import joined
from train.loop import train
torch.set_num_threads(1)
with joined("cpu") as ranks:
    time.sleep(ranks.rank)  # the second rank comes to a folder in which the first has already written
    task, watch = Tiny(), Silent()
    train(task, tiny_job(Path(sys.argv[1]), Path(sys.argv[2]), ranks=ranks, accumulate=int(sys.argv[3])), watch)
    torch.save({"weights": weights(task), "losses": watch.losses}, f"{sys.argv[2]}/result-{ranks.rank}.pt")
"""


def run_ranks(shards: Path, folder: Path, count: int, accumulate: int) -> list[dict[str, torch.Tensor]]:
    """Train in `count` gloo processes started by torchrun; every rank's weights and losses."""
    folder.mkdir()
    script = folder / "ranked.py"
    script.write_text(RANKED)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.getcwd()}
    subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}", str(script),
         str(shards), str(folder), str(accumulate)], check=True, env=environment, timeout=120, capture_output=True)
    return [torch.load(folder / f"result-{rank}.pt") for rank in range(count)]


def test_one_process_two_ranks_and_accumulation_give_the_same_weights(shards: Path, tmp_path: Path) -> None:
    task, watch = Tiny(), Silent()
    start = weights(task).clone()
    train(task, tiny_job(shards, tmp_path / "one"), watch)
    one = weights(task)
    assert (one - start).abs().max() > 1e-3  # something was learnt

    accumulated, again = Tiny(), Silent()
    train(accumulated, tiny_job(shards, tmp_path / "accumulated", accumulate=2), again)
    assert torch.allclose(weights(accumulated), one, rtol=1e-5, atol=2e-7)

    first, second = run_ranks(shards, tmp_path / "ranks", 2, 1)
    assert torch.equal(first["weights"], second["weights"])
    assert torch.allclose(first["weights"], one, rtol=1e-5, atol=2e-7)
    assert first["losses"] == pytest.approx(watch.losses, rel=1e-6)
    assert again.losses == pytest.approx(watch.losses, rel=1e-6)


def test_threads_change_nothing(shards: Path, tmp_path: Path) -> None:
    plain, threaded = Tiny(), Tiny()
    train(plain, tiny_job(shards, tmp_path / "a"), Silent())
    train(threaded, tiny_job(shards, tmp_path / "b", workers=3), Silent())
    assert torch.equal(weights(plain), weights(threaded))


class Killing(Silent):
    """Kills its own process without notice after a step."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self._at = at

    def step(self, state: State, result: StepResult) -> None:
        if state.step == self._at:
            os.kill(os.getpid(), signal.SIGKILL)


KILLED = """
import sys, torch
from pathlib import Path
from tests.train.tinytasks import *
from tests.train.test_loop import Killing
from train.loop import train
torch.set_num_threads(1)
train(Tiny(0.1), tiny_job(Path(sys.argv[1]), Path(sys.argv[2])), Killing(8))
"""


def test_kill_and_resume_end_bit_identical_to_an_undisturbed_run(shards: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.getcwd()}
    killed = subprocess.run([sys.executable, "-c", KILLED, str(shards), str(tmp_path / "killed")],
                            env=environment, timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert checkpoint.positions(str(tmp_path / "killed")) == [0, 20]

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        resumed, whole = Tiny(0.1), Tiny(0.1)
        heard = Silent()
        one = train(resumed, tiny_job(shards, tmp_path / "killed"), heard)
        other = train(whole, tiny_job(shards, tmp_path / "whole"), Silent())
    finally:
        torch.set_num_threads(threads)
    assert len(heard.losses) == 12 - 5
    assert torch.equal(weights(resumed), weights(whole))
    assert one.ema is not None
    assert other.ema is not None
    for name, average in one.ema.average.items():
        assert torch.equal(average, other.ema.average[name])


class Interrupting(Silent):
    def step(self, state: State, result: StepResult) -> None:
        super().step(state, result)
        if state.step == 3:
            os.kill(os.getpid(), signal.SIGTERM)


def test_sigterm_saves_and_the_next_run_goes_on_there(shards: Path, tmp_path: Path) -> None:
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Stopped) as stopped:
        train(Tiny(), tiny_job(shards, tmp_path / "run"), Interrupting())
    assert signal.getsignal(signal.SIGTERM) is handler
    assert stopped.value.position == 4 * 4  # the step under way is finished
    resumed, whole = Tiny(), Tiny()
    train(resumed, tiny_job(shards, tmp_path / "run"), Silent())
    train(whole, tiny_job(shards, tmp_path / "whole"), Silent())
    assert torch.equal(weights(resumed), weights(whole))


class Exploding(Tiny):
    """Loss is NaN for some global sample numbers."""

    def __init__(self, numbers: set[int]) -> None:
        super().__init__()
        self.numbers = numbers

    def forward(self, batch: Batch) -> torch.Tensor:
        loss = super().forward(batch)
        hit = torch.tensor([int(number) in self.numbers for number in batch.numbers])
        return torch.where(hit, torch.tensor(torch.nan), loss)


def test_a_non_finite_loss_skips_the_step_and_names_the_sample(shards: Path, tmp_path: Path) -> None:
    job = tiny_job(shards, tmp_path / "run", steps=3)
    task, watch = Exploding({4 * 2 + 1}), Silent()
    state = train(task, job, watch)
    row = job.rows[job.plan.batch(2).rows[1]]
    assert [(kind, facts["ids"]) for kind, facts in watch.events] == [("skipped_step", [job.feed.row(row).id])]
    assert state.position == 12
    assert torch.isfinite(weights(task)).all()
    two = Tiny()
    train(two, replace(tiny_job(shards, tmp_path / "two", steps=3), rows=job.rows), Silent())
    assert not torch.equal(weights(task), weights(two))


def test_several_bad_steps_roll_back_with_half_the_rate_and_then_give_up(shards: Path, tmp_path: Path) -> None:
    bad = set(range(6 * 4, (6 + BAD_STEPS_BEFORE_ROLL_BACK) * 4))
    watch = Silent()
    with pytest.raises(TrainingError, match="non-finite") as error:
        train(Exploding(bad), tiny_job(shards, tmp_path / "run"), watch)
    assert "log.jsonl" in error.value.hint
    returns = [facts for kind, facts in watch.events if kind == "roll_back"]
    assert [facts["roll_backs"] for facts in returns] == list(range(1, MOST_ROLL_BACKS + 2))
    rates = [facts["lr"] for facts in returns]
    assert rates[1] == pytest.approx(rates[0] / 2)
    assert checkpoint.positions(str(tmp_path / "run"))[-1] == 20


def test_other_settings_refuse_the_checkpoint_and_name_the_key(shards: Path, tmp_path: Path) -> None:
    train(Tiny(), tiny_job(shards, tmp_path / "run", steps=5), Silent())
    with pytest.raises(TrainingError, match=r"trained with lr = 0\.003, now it is 0\.001"):
        train(Tiny(), tiny_job(shards, tmp_path / "run", lr=1e-3), Silent())


def test_a_batch_that_ranks_cannot_share_is_refused(shards: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="batch of 4"):
        train(Tiny(), tiny_job(shards, tmp_path / "run", accumulate=3), Silent())


def test_unreadable_pictures_count_nothing_and_do_not_stop(tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "shards", rows=24, broken=(3, 4, 5))
    job = tiny_job(folder, tmp_path / "run")
    task = Tiny()
    train(task, job, Silent())
    assert torch.isfinite(weights(task)).all()
    assert set(job.feed.images.bad) <= {3, 4, 5}
    assert job.feed.images.bad


class Line(Task):
    """One weight, so that AdamW's first step is known: −lr·sign(gradient)."""

    name = "line"

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([1.0]))

    def forward(self, batch: Batch) -> torch.Tensor:
        return self.weight * torch.ones(len(batch.rows))


def test_the_average_of_weights_follows_its_formula(shards: Path, tmp_path: Path) -> None:
    job = tiny_job(shards, tmp_path / "run", steps=2)
    job = replace(job, settings=job.settings.model_copy(update={
        "warmup_steps": 0, "clip_norm": 1e9, "ema_ramp": 0.0, "ema_half_life": 4, "lr": 0.1}))
    state = train(Line(), job, Silent())
    # Cosine over 8 samples, taken at the middle of each step (2 and 6): factors (1 + cos π/4)/2, (1 + cos 3π/4)/2.
    # Half-life = one batch, so the average is halfway to the new weight each time.
    first = 1.0 - 0.1 * (1 + 2**-0.5) / 2
    second = first - 0.1 * (1 - 2**-0.5) / 2
    assert state.ema is not None
    expected = 0.5 * (0.5 * 1.0 + 0.5 * first) + 0.5 * second
    assert float(state.ema.average["weight"]) == pytest.approx(expected, abs=1e-6)
    with state.ema.in_place():
        assert weights(state.task).item() == pytest.approx(expected, abs=1e-6)
    assert weights(state.task).item() == pytest.approx(second, abs=1e-6)


def test_a_damaged_checkpoint_is_one_line_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / checkpoint.name_of(5)).write_bytes(b"half")
    with pytest.raises(TrainingError, match="damaged"):
        checkpoint.load(str(tmp_path))


def test_only_the_newest_checkpoints_stay(tmp_path: Path) -> None:
    for position in (0, 5, 10, 15):
        checkpoint.save(str(tmp_path), position, {"x": torch.ones(1) * position}, keep=2)
    assert checkpoint.positions(str(tmp_path)) == [10, 15]
    kept = checkpoint.load(str(tmp_path))
    assert kept is not None
    assert kept["x"].item() == 15
