"""The chunk workers of `caption`: pictures → what captioners answer, and answers → candidates with their CLIP cosine.

Answers are kept as they came. What is a caption among them is decided from the stored words (`answers.py`), so better
rules ask no captioner again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.answers import caption_in
from pipeline.captioners import registry
from pipeline.captioners.base import CaptionerSettings, Failure, Written
from pipeline.schema import CANDIDATE, ID, STRINGS, UNUSED, VALUE_KEY, Column, TableSchema
from pipeline.score import BLOCK, BYTES, Model, cosines, picture_at, vectors


def texts_of(label: str) -> str:
    """The column that holds a captioner's answers."""
    return f"{label}_texts"


def failures_of(label: str) -> str:
    """The column that says, answer by answer, why a captioner gave none."""
    return f"{label}_failures"


def answer_columns(given: CaptionerSettings) -> tuple[str, ...]:
    """The columns of a captioner's side table that its candidates are made of."""
    failures = (failures_of(given.label),) if registry()[given.kind].remote else ()
    return (texts_of(given.label), *failures)


def text_table(given: CaptionerSettings) -> TableSchema:
    """The side table of one captioner."""
    meanings = {
        texts_of(given.label): f"answers of {given.label}, best first; null where there was none",
        failures_of(given.label): f"why {given.label} gave no answer, beside each of its texts; null where it did",
    }
    columns = [Column(name, STRINGS, meanings[name]) for name in answer_columns(given)]
    return TableSchema((ID, *columns, VALUE_KEY))


def unanswered(given: CaptionerSettings, values: pa.Table) -> NDArray[np.bool_]:
    """Rows to ask again on the next run: bytes were away, or a server did not come to them."""
    lost = np.asarray(values.column(texts_of(given.label)).is_null().to_numpy(zero_copy_only=False), bool)
    if failures_of(given.label) not in values.column_names:
        return lost
    failures = values.column(failures_of(given.label)).to_pylist()
    again = np.array([any(Failure(one).again for one in row or [] if one) for row in failures], bool)
    return np.asarray(lost | again, bool)


class WriteCaptions:
    """Chunk worker: bytes → canonical pictures → one captioner's answers."""

    def __init__(self, settings: CaptionerSettings, recipe_name: str) -> None:
        self.label, self.columns = settings.label, answer_columns(settings)
        self.captioner = registry()[settings.kind](settings, recipe_name)
        self.readers = ThreadPoolExecutor(max_workers=8)

    def __call__(self, rows: pa.Table) -> pa.Table:
        found: list[Sequence[str | Failure] | None] = [None] * rows.num_rows
        for at, pictures in self._pictures(rows):
            _fill(found, at, self.captioner.write(pictures))
        return self._table(found)

    def _pictures(self, rows: pa.Table) -> Iterable[tuple[list[int], list[NDArray[np.uint8]]]]:
        """Readable pictures, some at a time, with their places in the chunk."""
        for start in range(0, rows.num_rows, BLOCK):
            block = rows.slice(start, BLOCK)
            pictures = list(self.readers.map(picture_at, *(block.column(name).to_pylist() for name in BYTES)))
            readable = [number for number, picture in enumerate(pictures) if picture is not None]
            yield [start + number for number in readable], [p for p in pictures if p is not None]

    def _table(self, found: Sequence[Sequence[str | Failure] | None]) -> pa.Table:
        texts = [None if row is None else [_storable(one) for one in row] for row in found]
        failures = [
            None if row is None else [one.reason if isinstance(one, Failure) else None for one in row] for row in found
        ]
        values = dict(zip(self.columns, (texts, failures), strict=False))
        return pa.table({name: pa.array(column, STRINGS) for name, column in values.items()})


class AskForCaptions(WriteCaptions):
    """The same over a network: the next chunks' pictures are read and sent while earlier answers are awaited."""

    ahead = 4
    """Chunks under way at once."""

    def __call__(self, rows: pa.Table) -> pa.Table:
        return self.start(rows, lambda: None)()

    def start(self, rows: pa.Table, ready: Callable[[], None]) -> Callable[[], pa.Table]:
        """Begin a chunk, whose pictures are held at once; the returned function waits for it, `ready` says when."""
        blocks = list(self._pictures(rows))
        at = [number for numbers, _ in blocks for number in numbers]
        wait = self.captioner.begin([picture for _, pictures in blocks for picture in pictures], ready)

        def finish() -> pa.Table:
            found: list[Sequence[str | Failure] | None] = [None] * rows.num_rows
            _fill(found, at, wait())
            return self._table(found)

        return finish

    def close(self) -> None:
        """Ends what is under way."""
        self.captioner.close()


def _fill(found: list[Sequence[str | Failure] | None], at: Sequence[int], written: Written) -> None:
    for number, answers in zip(at, written, strict=True):
        found[number] = answers


def _storable(answer: str | Failure) -> str | None:
    """Arrow holds no lone surrogates, which JSON may spell."""
    return None if isinstance(answer, Failure) else answer.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class ScoreCandidates:
    """Chunk worker: all captioners' answers → the captions among them with their CLIP cosine, and the rest."""

    def __init__(self, model: Model | None, writers: Sequence[CaptionerSettings]) -> None:
        self.clip, self.writers = model.load() if model else None, writers

    def __call__(self, rows: pa.Table) -> pa.Table:
        judged = [self._judged(row) for row in rows.to_pylist()]
        used, unused = [row[0] for row in judged], [row[1] for row in judged]
        scores: Sequence[Sequence[float | None]] = [[None] * len(row) for row in used]
        if self.clip is not None:
            texts = [[one["text"] for one in row] for row in used]
            scores = cosines(self.clip, vectors(rows.column("embedding")), texts)
        candidates = [
            [{**one, "score": _number(score)} for one, score in zip(row, found, strict=True)]
            for row, found in zip(used, scores, strict=True)
        ]
        return pa.table({"candidates": pa.array(candidates, pa.list_(CANDIDATE)),
                         "unused": pa.array(unused, pa.list_(UNUSED))})  # fmt: skip

    def _judged(self, row: dict[str, Any]) -> tuple[list[dict[str, str]], list[dict[str, str | None]]]:
        used: list[dict[str, str]] = []
        unused: list[dict[str, str | None]] = []
        for given in self.writers:
            texts = row[texts_of(given.label)] or []
            failures = row.get(failures_of(given.label)) or [None] * len(texts)
            asked = list(given.asked.items()) or [("", "")] * len(texts)
            for (name, prompt), text, failure in zip(asked, texts, failures, strict=True):
                who = f"{given.label}/{name}" if name else given.label
                caption, why_not = ("", failure) if text is None else caption_in(text, prompt)
                if caption:
                    used.append({"captioner": who, "text": caption})
                else:
                    unused.append({"captioner": who, "text": text, "reason": why_not})
        return used, unused


def _number(score: float | None) -> float | None:
    """Null instead of NaN: a picture without an embedding."""
    return None if score is None or np.isnan(score) else score
