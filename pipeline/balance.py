"""What a run's classes are worth to training: pictures, how often they are seen, how many different ones in an epoch.

The effective sample size of a class is the number of its different pictures that an epoch shows: n where they weigh 1
or more, n · w below. That of all rows is Kish's, (Σ w)² / Σ w² (Survey Sampling, 1965, § 11.7): as many pictures of
equal weight would be as good for an average.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Group
from rich.table import Table
from rich.text import Text

UNLABELLED = "(unlabelled)"
READS = ("kept", "class", "split", "class_weight", "sample_weight")
FEW, OFTEN = 100, 2.0
"""A class of fewer training pictures than FEW is learnt by heart when each is seen OFTEN times as often as the average:
text-to-image models give back pictures that training repeated (Carlini et al. 2023, arXiv:2301.13188)."""
SHOWN = 12


@dataclass(frozen=True)
class ClassLine:
    """A class among the kept rows: `share` of training rows, `trained` share of what training sees, per cent;
    `effective` different pictures per epoch."""

    name: str
    rows: int
    train: int
    validation: int
    weight: float | None
    share: float
    trained: float
    effective: float

    @property
    def memorised(self) -> bool:
        """Too small for how often it is repeated."""
        return 0 < self.train < FEW and self.weight is not None and self.weight >= OFTEN


@dataclass(frozen=True)
class Balance:
    """All classes, those with most rows first; training rows, and their effective sample size (Kish)."""

    lines: tuple[ClassLine, ...]
    train: int
    effective: float

    @property
    def labelled(self) -> int:
        return sum(line.name != UNLABELLED for line in self.lines)

    @property
    def memorised(self) -> tuple[ClassLine, ...]:
        return tuple(line for line in self.lines if line.memorised)

    def warning(self) -> str | None:
        """One line for the classes that are too small, the worst first."""
        worst = sorted(self.memorised, key=lambda line: (-(line.weight or 0), line.name))
        if not worst:
            return None
        named = ", ".join(f"{line.name} ({line.train} × {line.weight:.1f})" for line in worst[:4])
        more = f" and {len(worst) - 4} more" if len(worst) > 4 else ""
        which = "classes are" if len(worst) > 1 else "class is"
        return (f"{len(worst)} {which} too small to be repeated so often: {named}{more} (training pictures × repeats). "
                "They may be learnt by heart: find more pictures, join classes, or lower weigh.max_weight.")


def balance(rows: pa.Table) -> Balance:
    """`rows` holds `READS` of all rows."""
    kept = rows.filter(pc.fill_null(rows.column("kept"), False))
    trained = pc.equal(kept.column("split"), "train")
    kept = kept.append_column("train", pc.fill_null(trained, False).cast(pa.int64()))
    weights = np.nan_to_num(kept.column("sample_weight").to_numpy().astype(np.float64))
    kept = kept.append_column("once", pa.array(np.minimum(weights, 1.0)))
    found = kept.group_by("class").aggregate([
        ([], "count_all"), ("train", "sum"), ("class_weight", "max"), ("sample_weight", "sum"), ("once", "sum")])
    train = sum(row["train_sum"] for row in found.to_pylist())
    seen = float(weights.sum()) or 1.0
    lines = sorted((ClassLine(
        row["class"] if row["class"] is not None else UNLABELLED, row["count_all"], row["train_sum"],
        row["count_all"] - row["train_sum"], row["class_weight_max"], 100 * row["train_sum"] / max(train, 1),
        100 * (row["sample_weight_sum"] or 0) / seen, row["once_sum"]) for row in found.to_pylist()),
        key=lambda line: (-line.rows, line.name))
    squares = float((weights * weights).sum())
    return Balance(tuple(lines), train, float(weights.sum()) ** 2 / squares if squares else 0.0)


def render(made: Balance) -> Group | None:
    """For the terminal: the largest classes and the smallest ones; None without any class."""
    if not made.labelled:
        return None
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("class", overflow="fold")
    for name in ("train", "share", "weight", "seen", "different/epoch"):
        table.add_column(name, justify="right")
    shown = made.lines if len(made.lines) <= SHOWN else (*made.lines[:SHOWN - 4], *made.lines[-4:])
    for place, line in enumerate(shown):
        if len(shown) < len(made.lines) and place == SHOWN - 4:
            table.add_row(f"… {len(made.lines) - SHOWN:,} more", style="dim")
        table.add_row(line.name, f"{line.train:,}", f"{line.share:.1f} %",
                      "1" if line.weight is None else f"{line.weight:.2f}", f"{line.trained:.1f} %",
                      f"{line.effective:,.0f}", style="yellow" if line.memorised else None)
    notes = [Text(f"effective sample size {made.effective:,.0f} of {made.train:,} training pictures", style="dim")]
    if warning := made.warning():
        notes.append(Text(warning, style="yellow"))
    return Group(table, *notes)
