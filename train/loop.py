"""The training loop, for the VAE and the denoiser alike. Read it from top to bottom.

Position is one integer, samples seen. Rate, EMA, plan, logs, validation, checkpoints and resume follow from it.
"""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from pipeline import errors
from pipeline.errors import TrainingError
from train import checkpoint, randomness, schedule
from train.config import CheckpointSettings
from train.distributed import Ranks, without_sync
from train.ema import Ema
from train.feed import Batch, Feed, Ints, Sharing, steps
from train.models.settings import OptimiserSettings
from train.optimiser import Optimiser, trained
from train.plan import Plan
from train.tasks import Task

BAD_STEPS_BEFORE_ROLL_BACK = 5
MOST_ROLL_BACKS = 3


class Stopped(errors.Stopped):
    """Training was interrupted; a checkpoint has been written at `position`."""

    def __init__(self, position: int) -> None:
        super().__init__(f"stopped after {position} samples")
        self.position = position


@dataclass(frozen=True)
class Job:
    """Everything about one training run but its task. `identity` names the settings that decide its weights."""

    folder: str
    seed: int
    settings: OptimiserSettings
    checkpoint: CheckpointSettings
    plan: Plan
    rows: Ints
    feed: Feed
    ranks: Ranks = field(default_factory=Ranks)
    precision: str = "fp32"
    workers: int = 2
    prefetch: int = 4
    identity: dict[str, str] = field(default_factory=dict)

    @property
    def sharing(self) -> Sharing:
        return Sharing(self.ranks.rank, self.ranks.world, self.settings.accumulate)


@dataclass(frozen=True)
class StepResult:
    """What one step did, the same on all ranks; `norm` is the gradient's L2 norm before clipping."""

    loss: float
    norm: float
    lr: float
    stop: bool

    @property
    def finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.norm)


class Watcher(Protocol):
    """Looks on; see `train.watch`. Nothing it does may change the weights."""

    def begin(self, state: State) -> None: ...

    def step(self, state: State, result: StepResult) -> None: ...

    def event(self, state: State, kind: str, **facts: Any) -> None: ...

    def went_back(self, state: State) -> None: ...


class State:
    """What a checkpoint holds: weights, average, optimiser, position, and how often the rate was lowered."""

    def __init__(self, task: Task, job: Job) -> None:
        self.task, self.job = task, job
        self.ema = Ema(task) if job.settings.ema_half_life else None
        self.optimiser = Optimiser(task, job.settings, job.ranks.device)
        self.position = 0
        self.roll_backs = 0

    @property
    def step(self) -> int:
        return self.position // self.job.settings.batch

    @property
    def finished(self) -> bool:
        return self.step >= self.job.settings.steps

    @property
    def lr(self) -> float:
        return schedule.learning_rate(self.job.settings, self.position) * 0.5**self.roll_backs

    @property
    def _anew(self) -> str:
        return "train vae --fresh" if self.task.name == "vae" else "train run --fresh"

    def save(self) -> None:
        if self.job.ranks.main:
            checkpoint.save(self.job.folder, self.position, {
                "task": self.task.state_dict(), "optimiser": self.optimiser.state_dict(),
                "ema": self.ema.average if self.ema else {}, "roll_backs": self.roll_backs,
                "identity": self.job.identity}, keep=self.job.checkpoint.keep)
        self.job.ranks.barrier()

    def restore(self) -> bool:
        """Go back to the newest checkpoint; False when there is none. Raises TrainingError for a foreign one."""
        # Only the main rank looks: another one might already see the checkpoint that it writes next.
        known = self.job.ranks.from_main(checkpoint.positions(self.job.folder))
        if not known:
            return False
        kept = checkpoint.load(self.job.folder, known[-1], device=self.job.ranks.device)
        assert kept is not None
        self._check(kept)
        self.task.load_state_dict(kept["task"])
        self.optimiser.load_state_dict(kept["optimiser"])
        if self.ema:
            self.ema.load(kept["ema"])
        self.position, self.roll_backs = kept["position"], kept["roll_backs"]
        return True

    def _check(self, kept: dict[str, Any]) -> None:
        mine, its = self.job.identity, kept["identity"]
        changed = sorted(key for key in mine.keys() | its.keys() if mine.get(key) != its.get(key))
        if changed:
            name = changed[0]
            raise TrainingError(
                f"the checkpoint in {self.job.folder} was trained with {name} = {its.get(name)}, "
                f"now it is {mine.get(name)}",
                hint=f"set it back, or start anew: `{self._anew}` removes {self.job.folder}")
        if kept["position"] % self.job.settings.batch:
            raise TrainingError(f"{kept['position']} samples seen are no multiple of the batch",
                                hint=f"set the batch size back, or start anew: `{self._anew}`")


def train(task: Task, job: Job, watch: Watcher) -> State:
    """Train until `job.settings.steps`, resuming from the newest checkpoint. Raises Stopped and TrainingError."""
    job.ranks.check_batch(job.settings.batch, job.settings.accumulate)
    state = State(task, job)
    if not state.restore():
        state.save()  # so that there is always something to roll back to
    model = job.ranks.wrapped(task)
    watch.begin(state)
    bad = 0
    with _stop_signals() as stop:
        while not state.finished:
            upcoming = steps(job.plan, job.rows, job.feed, state.step, job.settings.steps, job.sharing,
                             workers=job.workers, prefetch=job.prefetch)
            for micro_batches in upcoming:
                result = take_step(model, state, micro_batches, stop.is_set())
                bad = 0 if result.finite else bad + 1
                if bad:
                    _name_bad(state, result, micro_batches, watch)
                if bad == BAD_STEPS_BEFORE_ROLL_BACK:
                    roll_back(state, watch)
                    bad = 0
                    break
                watch.step(state, result)
                # Within a bad stretch no periodic checkpoint: a roll-back should find good weights.
                due = state.step % job.checkpoint.every == 0 and not bad
                if due or result.stop or state.finished:
                    state.save()
                if result.stop:
                    upcoming.close()
                    raise Stopped(state.position)
    return state


def take_step(model: nn.Module, state: State, micro_batches: list[Batch], stop: bool) -> StepResult:
    """Forward, backward and update over one global batch; a non-finite loss or gradient updates nothing.

    Sums over ranks happen in the same order on every rank, so all ranks take or skip a step together.
    """
    job, lr = state.job, state.lr
    model.train()
    state.optimiser.zero_grad()
    sums = torch.zeros(2, dtype=torch.float64, device=_counting(job.ranks.device))
    for turn, batch in enumerate(micro_batches):
        last = turn == len(micro_batches) - 1
        with without_sync(model, not last), _dropout_seed(state, batch):
            loss_b = losses(model, batch.to(job.ranks.device), job)
            # DDP averages over ranks: times `world` it is a sum, over `batch` a mean over the global batch.
            (loss_b.sum() * (job.ranks.world / job.settings.batch)).backward()  # type: ignore[no-untyped-call]
        sums[0] += loss_b.detach().sum().to(sums)
    sums[1] = float(stop)
    total, stops = job.ranks.summed(sums).tolist()
    norm = float(nn.utils.clip_grad_norm_(trained(state.task), job.settings.clip_norm))
    result = StepResult(total / job.settings.batch, norm, lr, stop=stops > 0)
    if result.finite:
        state.optimiser.step(lr)
    state.position += job.settings.batch
    if result.finite and state.ema:
        state.ema.update(schedule.ema_decay(job.settings, state.position))
    return result


def losses(model: nn.Module, batch: Batch, job: Job) -> Tensor:
    """Loss per sample (b,) under autocast; samples whose picture could not be read count nothing."""
    with torch.autocast(job.ranks.device.type, torch.bfloat16, enabled=job.precision == "bf16"):
        loss_b: Tensor = model(batch)
    return torch.where(batch.valid > 0, loss_b.float(), torch.zeros_like(loss_b, dtype=torch.float32))


def roll_back(state: State, watch: Watcher) -> None:
    """Return to the last good checkpoint with half the rate. Raises TrainingError after too many times."""
    failed_at = state.position
    roll_backs = state.roll_backs + 1
    state.restore()
    state.roll_backs = roll_backs
    watch.event(state, "roll_back", failed_at=failed_at, roll_backs=roll_backs, lr=state.lr)
    watch.went_back(state)
    if roll_backs > MOST_ROLL_BACKS:
        raise TrainingError(
            f"the loss stayed non-finite after {MOST_ROLL_BACKS} returns to an earlier checkpoint",
            hint="lower optimiser.lr, use precision = 'fp32', and look at the samples named in log.jsonl")
    state.save()


def _name_bad(state: State, result: StepResult, micro_batches: list[Batch], watch: Watcher) -> None:
    """Log a skipped step with the rows of its batch whose own loss is non-finite (all of them if none is)."""
    mine: list[int] = []
    all_mine: list[int] = []
    for batch in micro_batches:
        with torch.no_grad():
            loss_b = losses(state.task, batch.to(state.job.ranks.device), state.job).cpu()
        mine += batch.rows[(~torch.isfinite(loss_b)).numpy()].tolist()
        all_mine += batch.rows.tolist()
    shares = state.job.ranks.gathered((mine, all_mine))
    rows = sorted({row for share, _ in shares for row in share}) or sorted({row for _, s in shares for row in s})
    watch.event(state, "skipped_step", loss=str(result.loss), grad_norm=str(result.norm),
                ids=[state.job.feed.row(row).id for row in rows[:32]])


def _dropout_seed(state: State, batch: Batch) -> Any:
    """Only models with dropout draw from torch's own generator; theirs is seeded by the batch's first sample."""
    if not any(isinstance(m, nn.modules.dropout._DropoutNd) and m.p > 0 for m in state.task.modules()):
        return nullcontext()
    return randomness.seeded_torch(state.job.seed, "dropout", int(batch.numbers[0]),
                                   device=state.job.ranks.device)


def _counting(device: torch.device) -> torch.device:
    """Where sums are kept: NCCL needs them on the GPU; mps has no float64."""
    return device if device.type == "cuda" else torch.device("cpu")


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """Inside, SIGTERM and ctrl-C ask to stop after the step; a second one stops at once."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    handlers: dict[int, Any] = {int(n): signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, frame: FrameType | None) -> None:
        asked.set()
        signal.signal(number, handlers[number])

    for number in handlers:
        signal.signal(number, handle)
    try:
        yield asked
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
