"""Which caption a picture gets: acceptable originals first, then words written for it, each with its CLIP score.

A caption is acceptable when it is not weak itself (see the check `caption`; off, it finds none weak) and its CLIP
cosine with the picture reaches `min_clip_score`. A new caption replaces an acceptable original only when it beats it by
`original_margin`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pipeline.checks.caption import Caption, weak_among
from pipeline.schema import SELECT

if TYPE_CHECKING:
    from pipeline.select import SelectSettings

READS = ("pooled_captions", "pooled_origins", "caption_scores", "candidates")
CHOSEN = ("caption", "caption_origin", "caption_score", "choices", "original_rejected")
REFUSED = ("reason", "value", "threshold")
_ROWS = 1 << 15
_TYPES = {column.name: column.type for column in SELECT.columns}


def choose(rows: pa.Table, settings: SelectSettings, scored: bool, check: Caption.Settings) -> pa.Table:
    """The caption of each row of `READS` (`CHOSEN`), or why it gets none (`REFUSED`, null otherwise)."""
    schema = pa.schema([(name, _TYPES[name]) for name in (*CHOSEN, *REFUSED)])
    made = [pa.Table.from_pylist(list(_of(rows.slice(start, _ROWS).select(READS), settings, scored, check)), schema)
            for start in range(0, rows.num_rows, _ROWS)]  # as lists and dicts rows take ten times their size
    return pa.concat_tables(made) if made else schema.empty_table()


def _of(rows: pa.Table, settings: SelectSettings, scored: bool, check: Caption.Settings) -> Iterator[dict[str, Any]]:
    listed = rows.to_pylist()
    weak = weak_among([text for row in listed for text in row["pooled_captions"] or () if text], check)
    return (_choice(row, settings, scored, weak) for row in listed)


def _choice(row: dict[str, Any], settings: SelectSettings, scored: bool, weak: Collection[str]) -> dict[str, Any]:
    if scored and row["caption_scores"] is None:
        return {"reason": "bytes_lost"}
    originals, rejected = _originals(row, settings, scored, weak)
    written = [
        {"text": c["text"], "origin": c["captioner"], "score": c["score"]} for c in row["candidates"] or []
        if c["text"] and (not scored or _reaches(c["score"], settings.min_clip_score))
    ]
    choices = _ranked(originals, written, settings)
    if choices:
        best = choices[0]
        return {"caption": best["text"], "caption_origin": best["origin"], "caption_score": best["score"],
                "choices": choices, "original_rejected": rejected}
    if not settings.require_caption:
        return {"original_rejected": rejected}
    texts = zip(row["pooled_captions"] or [], row["caption_scores"] or [], strict=False)
    scores = [s for text, s in texts if s is not None and text.strip() and text not in weak]
    scores += [c["score"] for c in row["candidates"] or [] if c["score"] is not None]
    return {
        "original_rejected": rejected, "reason": "low_clip_score" if scores else "no_caption",
        "value": max(scores) if scores else None, "threshold": settings.min_clip_score if scores else None,
    }


def _originals(row: dict[str, Any], settings: SelectSettings, scored: bool, weak: Collection[str],
               ) -> tuple[list[dict[str, Any]], str | None]:
    """Acceptable originals, and why the row's originals were refused when none is acceptable."""
    texts, origins = row["pooled_captions"] or [], row["pooled_origins"] or []
    scores = row["caption_scores"] or [None] * len(texts)
    good, mismatch, useless, empty = [], False, False, True
    for text, origin, score in zip(texts, origins, scores, strict=True):
        if not text or not text.strip():
            continue
        empty = False
        if text in weak:  # each for itself: a copy's good caption may lie beside a file name
            useless = True
        elif scored and not _reaches(score, settings.min_clip_score):
            mismatch = True
        else:
            good.append({"text": text, "origin": origin, "score": score})
    if good:
        return good, None
    return [], "empty" if empty else "mismatch" if mismatch else "weak" if useless else None


def _reaches(score: float | None, threshold: float) -> bool:
    return score is not None and not np.isnan(score) and score >= threshold


def _ranked(originals: Sequence[dict[str, Any]], written: Sequence[dict[str, Any]], settings: SelectSettings,
            ) -> list[dict[str, Any]]:
    """Best first; equal scores keep their order, so the result does not hang on anything else."""
    def score(choice: dict[str, Any]) -> float:
        return choice["score"] if choice["score"] is not None else 0.0

    found = sorted(originals, key=score, reverse=True) if settings.prefer == "best" else list(originals)
    new = sorted(written, key=score, reverse=True)
    if not found or not new:
        return [*found, *new]
    margin = settings.original_margin if settings.prefer == "original" else 0.0
    best = max(score(choice) for choice in found)
    return [*new, *found] if score(new[0]) > best + margin else [*found, *new]
