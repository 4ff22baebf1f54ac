"""What is looked at while training: logs, validation loss, overfitting, spikes and sample grids.

Nothing here changes the weights. `log.jsonl` holds one object per line with its `kind`: `train`, `validation`,
`event`. After a resume or a roll-back, lines beyond the position are removed, so a log never tells two stories;
events that led to a roll-back stay.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pipeline import storage
from train.config import WatchSettings
from train.feed import Batch
from train.loop import State, StepResult, losses

LOG = "log.jsonl"
SPIKE_DEVIATIONS = 6.0
SPIKE_MEMORY = 0.98
LEAST_LOSS, LEAST_DEVIATION = 1e-12, 1e-3
OVERFITTING_CHECKS = 3
OVERFITTING_RISE = 1.02

Probe = Callable[[], Iterator[Batch]]
Grid = Callable[[], NDArray[np.uint8]]
"""Draws pictures (rows, columns, H, W, 3) with the weights as they are now."""


class Watch:
    """One run's onlooker. `probes` name fixed sets of samples, e.g. `validation` and `train`."""

    def __init__(self, folder: str, settings: WatchSettings, *, probes: Mapping[str, Probe] | None = None,
                 grid: Grid | None = None, quiet: bool = False) -> None:
        self.folder, self._settings, self._probes, self._grid = folder, settings, probes or {}, grid
        self.console = Console(stderr=True, quiet=quiet)
        self._spikes = Spikes()
        self._board: Any = None
        self._bar: Progress | None = None
        self._loss: list[float] = []
        self._since = (0.0, 0)
        self._stack = ExitStack()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def begin(self, state: State) -> None:
        """Called once, at the position from which training starts or goes on."""
        self._since = (time.monotonic(), state.position)
        if not state.job.ranks.main:
            return
        keep_until(self.folder, state.position)
        self._open_board(state)
        self._stack.callback(self._close_board)
        if state.position and not state.finished:
            self._print(f"{state.task.name}: going on after {state.step} steps")
        if sys.stderr.isatty() and not self.console.quiet:
            self._bar = self._stack.enter_context(Progress(
                TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
                console=self.console))
            self._bar.add_task(state.task.name, total=state.job.settings.steps, completed=state.step)

    def went_back(self, state: State) -> None:
        """Called after a roll-back: what was logged beyond is no part of this run any more."""
        self._since = (time.monotonic(), state.position)
        self._loss.clear()
        if state.job.ranks.main:
            keep_until(self.folder, state.position)
            self._close_board()
            self._open_board(state)

    def _open_board(self, state: State) -> None:
        if self._settings.tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            # TensorBoard hides what it was told at this step and later.
            self._board = SummaryWriter(storage.join(self.folder, "tensorboard"), purge_step=state.position + 1)  # type: ignore[no-untyped-call]

    def _close_board(self) -> None:
        if self._board is not None:
            self._board.close()

    def step(self, state: State, result: StepResult) -> None:
        """Called after every step, on every rank."""
        settings = self._settings
        if result.finite:
            self._loss.append(result.loss)
            if self._spikes.is_spike(result.loss):
                self.event(state, "loss_spike", loss=result.loss, grad_norm=result.norm)
        if state.step % settings.log_every == 0 or state.finished:
            self._log_training(state, result)
        if self._bar is not None:
            last = f"{state.task.name} loss {result.loss:.4f}"
            self._bar.update(self._bar.task_ids[0], completed=state.step, description=last)
        if state.step % settings.every == 0 or state.finished:
            self._look(state)

    def event(self, state: State, kind: str, **facts: Any) -> None:
        """Something unusual: into the log, and for people."""
        if state.job.ranks.main:
            self._write({"kind": "event", "event": kind, "step": state.step, "samples": state.position, **facts})
            said = ", ".join(f"{name} {value}" for name, value in facts.items())
            self._print(f"{kind.replace('_', ' ')} at step {state.step}: {said[:300]}")

    def _log_training(self, state: State, result: StepResult) -> None:
        now = time.monotonic()
        speed = (state.position - self._since[1]) / max(now - self._since[0], 1e-9)
        self._since = (now, state.position)
        loss = float(np.mean(self._loss)) if self._loss else None
        self._loss.clear()
        if not state.job.ranks.main:
            return
        line = {"kind": "train", "step": state.step, "samples": state.position,
                "epoch": round(state.position / state.job.plan.samples_per_epoch, 4), "loss": loss,
                "lr": result.lr, "grad_norm": result.norm if math.isfinite(result.norm) else None,
                "samples_per_s": round(speed, 2)}
        self._write(line)
        self._scalars(state, "train", line, ("loss", "lr", "grad_norm", "samples_per_s"))

    def _look(self, state: State) -> None:
        """Losses on the fixed samples and a grid, with the averaged weights."""
        begun = time.monotonic()
        average = state.ema.in_place() if state.ema else nullcontext()
        with average, evaluating(state.task):
            found = {name: probe_loss(state, probe()) for name, probe in self._probes.items()}
            drawn = self._grid() if self._grid is not None and state.job.ranks.main else None
        if state.job.ranks.main:
            if drawn is not None:
                save_grid(storage.join(self.folder, "grids", f"grid-{state.step:07d}.png"), drawn)
            if found:
                line = {"kind": "validation", "step": state.step, "samples": state.position,
                        **{f"{name}_loss": value for name, value in found.items()}}
                self._write(line)
                self._scalars(state, "fixed", line, [name for name in line if name.endswith("_loss")])
            self._say(state, found, time.monotonic() - begun)
            warning = overfitting(read_log(self.folder))
            if warning:
                self.event(state, "overfitting", **warning)
        # Looking is not training: it does not count in the speed.
        self._since = (self._since[0] + time.monotonic() - begun, self._since[1])
        state.job.ranks.barrier()

    def _say(self, state: State, found: Mapping[str, float], seconds: float) -> None:
        lines = [line for line in read_log(self.folder) if line["kind"] == "train"]
        parts = [f"step {state.step}/{state.job.settings.steps}"]
        if lines and lines[-1]["loss"] is not None:
            speed = lines[-1]["samples_per_s"]
            left = (state.job.settings.steps - state.step) * state.job.settings.batch / max(speed, 1e-9)
            parts += [f"loss {lines[-1]['loss']:.4f}", f"{speed:.0f} samples/s", f"{left / 60:.1f} min left"]
        parts[1:1] = [f"{name} {value:.4f}" for name, value in found.items()]
        self._print(f"{state.task.name}: " + ", ".join(parts))

    def _print(self, line: str) -> None:
        self.console.print(f"  {line}", highlight=False, soft_wrap=True)

    def _scalars(self, state: State, group: str, line: Mapping[str, Any], names: Sequence[str]) -> None:
        if self._board is not None:
            for name in names:
                if line[name] is not None:
                    self._board.add_scalar(f"{group}/{name}", line[name], state.position)

    def _write(self, line: Mapping[str, Any]) -> None:
        storage.append_line(storage.join(self.folder, LOG), json.dumps(line))


class Spikes:
    """Loss spikes: more than six standard deviations above the running mean of the loss's logarithm.

    Of the logarithm, because losses of small batches have a long tail: of the loss itself, one in four hundred would be
    called a spike.
    """

    def __init__(self) -> None:
        self._count, self._mean, self._square = 0, 0.0, 0.0

    def is_spike(self, loss: float) -> bool:
        level = math.log(max(loss, LEAST_LOSS))
        memory = min(SPIKE_MEMORY, self._count / (self._count + 1))
        deviation = math.sqrt(max(self._square - self._mean**2, 0.0))
        spike = self._count >= 50 and level > self._mean + SPIKE_DEVIATIONS * max(deviation, LEAST_DEVIATION)
        if not spike:
            self._count += 1
            self._mean = memory * self._mean + (1 - memory) * level
            self._square = memory * self._square + (1 - memory) * level * level
        return spike


def probe_loss(state: State, batches: Iterator[Batch]) -> float:
    """Mean loss over fixed batches, shared out over the ranks. NaN without samples."""
    sums = torch.zeros(2, dtype=torch.float64)
    with torch.no_grad():
        for batch in batches:
            moved = batch.to(state.job.ranks.device)
            sums[0] += losses(state.task, moved, state.job).sum().double().cpu()
            sums[1] += moved.valid.sum().double().cpu()
    if state.job.ranks.device.type == "cuda":
        sums = sums.to(state.job.ranks.device)
    total, count = state.job.ranks.summed(sums).tolist()
    return total / count if count else math.nan


@contextmanager
def evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode inside, training mode after."""
    module.eval()
    try:
        yield
    finally:
        module.train()


def overfitting(log: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Says so when, three validations running, the held-out loss stood 2 % above its best while the loss on
    fixed training samples was still falling. Told once: when the third comes."""
    seen = [line for line in log if line["kind"] == "validation" and "train_loss" in line]
    if len(seen) <= OVERFITTING_CHECKS:
        return None
    held = [line["validation_loss"] for line in seen]
    best = int(np.argmin(held))
    after = seen[best + 1:]
    risen = [line for line in after if line["validation_loss"] > OVERFITTING_RISE * held[best]]
    if len(risen) != OVERFITTING_CHECKS or risen[-1] is not seen[-1]:
        return None
    if seen[-1]["train_loss"] >= seen[best]["train_loss"]:
        return None
    return {"best_step": seen[best]["step"], "best_loss": held[best], "now": held[-1],
            "advice": "the checkpoint at best_step draws new pictures better; stop there or add data"}


def read_log(folder: str) -> list[dict[str, Any]]:
    """All complete lines of a run's log."""
    path = Path(folder, LOG)
    if not path.exists():
        return []
    whole = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [json.loads(line) for line in whole if line]


def keep_until(folder: str, position: int) -> None:
    """Remove log lines beyond `position`, and a half-written last line; of what a roll-back undid, events stay."""
    if Path(folder, LOG).exists():
        lines = read_log(folder)
        undone = max((at for at, line in enumerate(lines)
                      if line.get("event") == "roll_back" and line["samples"] <= position), default=-1)
        kept = [line for at, line in enumerate(lines)
                if line["samples"] <= position or (line["kind"] == "event" and at < undone)]
        storage.write_bytes(storage.join(folder, LOG), "".join(json.dumps(line) + "\n" for line in kept).encode())


def save_grid(url: str, pictures: NDArray[np.uint8], gap: int = 2) -> None:
    """Write (rows, columns, H, W, 3) as one PNG with white lines between."""
    rows, columns, height, width, _ = pictures.shape
    sheet = np.full((rows * (height + gap) - gap, columns * (width + gap) - gap, 3), 255, np.uint8)
    for row in range(rows):
        for column in range(columns):
            top, left = row * (height + gap), column * (width + gap)
            sheet[top:top + height, left:left + width] = pictures[row, column]
    with storage.atomic_writer(url) as file:
        Image.fromarray(sheet).save(file, format="PNG")
