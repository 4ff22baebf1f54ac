"""`curate demo-check`: how well the pipeline found the demo's planted faults, from the manifests and the truth.

Recall is the share of planted rows that were found; precision is the share, among the rows on which the same reason
was put, that truly have the fault. Faults that only a common reason can name (two kinds of opt-out, say) share its
precision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from rich.console import Group
from rich.table import Table

from pipeline import storage
from pipeline.errors import ManifestError

from .address import FOLDER
from .truth import FAULTS, LOOKALIKES, read_truth

if TYPE_CHECKING:
    from pipeline.run import Run

Row = Mapping[str, Any]

COLUMNS = (
    "id",
    "url",
    "fetch_outcome",
    "decode_outcome",
    "duplicate_of",
    "relation",
    "failed",
    "kept",
    "dropped_by",
    "reason",
    "original_rejected",
)
"""What is read of the joined manifests. `kept`, `dropped_by` and `reason` are the last stage's."""


@dataclass(frozen=True)
class FaultRow:
    """One planted fault. `flagged` rows carry its reason, `right` of them truly have it; ratios are None for 0 / 0."""

    fault: str
    planted: int
    found: int
    flagged: int
    right: int
    missed_urls: tuple[str, ...] = ()
    wrong_urls: tuple[str, ...] = ()

    @property
    def recall(self) -> float | None:
        return self.found / self.planted if self.planted else None

    @property
    def precision(self) -> float | None:
        return self.right / self.flagged if self.flagged else None


@dataclass(frozen=True)
class LookalikeRow:
    """One kind of innocent picture: how many, how many were lost, and for what reasons."""

    lookalike: str
    planted: int
    lost: int
    reasons: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class DemoCheck:
    """Everything `demo-check` prints. `unknown` are rows at addresses that the truth does not know."""

    faults: tuple[FaultRow, ...]
    lookalikes: tuple[LookalikeRow, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True)
class _Rule:
    """How one fault shows: `finds` a planted row; `flags` any row; a flagged row is right if it has one of `faults`."""

    finds: Callable[[Row, Row], bool]
    flags: Callable[[Row], bool]
    faults: frozenset[str]


def demo_check(run: Run) -> DemoCheck:
    """Compare a run's manifests with the truth beside its demo website. Raises ManifestError when either is missing."""
    view = run.manifests.joined()
    missing = [name for name in COLUMNS if name not in view.columns]
    if missing:
        raise ManifestError(
            f"the run is not complete: no column {missing[0]!r} yet", hint="run `curate run` to the end first"
        )
    return compare(view.arrow(COLUMNS), read_truth(storage.join(run.data, FOLDER, "truth.parquet")))


def compare(manifest: pa.Table, truth: pa.Table) -> DemoCheck:
    """The comparison itself. `manifest` has COLUMNS, one row per picture; `truth` is `truth.SCHEMA`."""
    rows: list[dict[str, Any]] = manifest.select(list(COLUMNS)).to_pylist()
    truths: dict[str, dict[str, Any]] = {row["url"]: row for row in truth.to_pylist()}
    by_url = {row["url"]: row for row in reversed(rows)}  # of several occurrences the first
    by_id = {row["id"]: row for row in rows}
    for row in rows:
        row["truth"] = truths.get(row["url"])
        kept_instead = by_id.get(row["duplicate_of"])
        row["family"] = _family(row, truths)
        row["copied_family"] = None if kept_instead is None else _family(kept_instead, truths)
    known = [row for row in rows if row["truth"] is not None]
    rules = _rules(by_url)
    return DemoCheck(
        faults=tuple(_fault_row(fault, rules[fault], truths, by_url, known) for fault in FAULTS),
        lookalikes=tuple(_lookalike_rows(truths, by_url)),
        unknown=tuple(row["url"] for row in rows if row["truth"] is None),
    )


def _family(row: Row, truths: Mapping[str, Row]) -> str:
    truth = truths.get(row["url"])
    return str(truth["family"] if truth else row["url"])


def _rules(by_url: Mapping[str, Row]) -> dict[str, _Rule]:
    def is_copy(row: Row) -> bool:
        """The row went in favour of a copy of its picture, or its original went in favour of it."""
        original = by_url.get(row["truth"]["of"] or "", {})
        return bool(row["copied_family"] == row["family"] or original.get("duplicate_of") == row["id"])

    def failing(*reasons: str) -> Callable[[Row], bool]:
        return lambda row: any(failed["reason"] in reasons for failed in row["failed"] or ())

    def measured(reason: str, fault: str, *also: str) -> _Rule:
        found = failing(reason, *also)
        return _Rule(lambda row, _: found(row), failing(reason), frozenset({fault}))

    def fetched(outcome: str, *faults: str) -> _Rule:
        return _Rule(
            lambda row, _: row["fetch_outcome"] == outcome,
            lambda row: row["fetch_outcome"] == outcome,
            frozenset(faults),
        )

    def copied(*relations: str) -> _Rule:
        return _Rule(lambda row, _: is_copy(row), lambda row: row["relation"] in relations, frozenset())

    def unreadable(row: Row) -> bool:
        return row["fetch_outcome"] == "not_an_image" or row["decode_outcome"] not in (None, "ok")

    def weak(row: Row) -> bool:
        return failing("weak_caption")(row) or row["original_rejected"] in ("weak", "empty")

    def mismatched(row: Row) -> bool:
        return bool(row["original_rejected"] == "mismatch" or row["reason"] == "low_clip_score")

    def tiny(row: Row, truth: Row) -> bool:
        return failing("low_resolution")(row) or (truth["of"] is not None and is_copy(row))

    broken = _Rule(lambda row, _: unreadable(row), unreadable, frozenset({"truncated", "html_as_image"}))
    return {
        "exact_copy": copied("bytes"),
        "reencoded_copy": copied("pixels", "perceptual"),
        "rescaled_copy": copied("pixels", "perceptual"),
        "thumbnail": _Rule(tiny, failing("low_resolution"), frozenset({"thumbnail"})),
        "heavy_jpeg": measured("heavy_compression", "heavy_jpeg"),
        # A blur and an enlargement both leave too little detail; either reason finds either, but each must be true.
        "blown_up": measured("blown_up", "blown_up", "blurry"),
        "blurred": measured("blurry", "blurred", "blown_up"),
        "blank": measured("blank", "blank"),
        "sliver": measured("extreme_aspect", "sliver"),
        "truncated": broken,
        "html_as_image": broken,
        "not_found": fetched("not_found", "not_found"),
        "robots": fetched("robots", "robots"),
        "opt_out_page": fetched("opt_out", "opt_out_page", "opt_out_header"),
        "opt_out_header": fetched("opt_out", "opt_out_page", "opt_out_header"),
        "filename_caption": _Rule(lambda row, _: weak(row), weak, frozenset({"filename_caption"})),
        "wrong_caption": _Rule(lambda row, _: mismatched(row), mismatched, frozenset({"wrong_caption"})),
    }


NEVER_LISTED = frozenset({"robots", "opt_out_page"})
"""Faults for which a picture that never became a row counts as found: nobody looked at it."""


def _fault_row(
    fault: str, rule: _Rule, truths: Mapping[str, Row], by_url: Mapping[str, Row], known: Sequence[Row]
) -> FaultRow:
    planted = [truth for truth in truths.values() if truth["fault"] == fault]
    missed = []
    for truth in planted:
        row = by_url.get(truth["url"])
        found = fault in NEVER_LISTED if row is None else rule.finds(row, truth)
        if not found:
            missed.append(truth["url"])
    flagged = [row for row in known if rule.flags(row)]
    wrong = [row["url"] for row in flagged if not _is_right(row, rule)]
    return FaultRow(
        fault, len(planted), len(planted) - len(missed), len(flagged), len(flagged) - len(wrong),
        tuple(missed), tuple(wrong),
    )  # fmt: skip


def _is_right(row: Row, rule: _Rule) -> bool:
    if not rule.faults:  # a copy is a copy of something: right if what was kept shows the same picture
        return bool(row["copied_family"] == row["family"])
    return not rule.faults.isdisjoint(row["truth"]["faults"])


def _lookalike_rows(truths: Mapping[str, Row], by_url: Mapping[str, Row]) -> list[LookalikeRow]:
    groups: dict[str | None, list[Row]] = {name: [] for name in (*LOOKALIKES, None)}
    for truth in truths.values():
        if truth["fault"] is None:
            groups[truth["lookalike"]].append(truth)
    result = []
    for name, planted in groups.items():
        reasons: dict[str, int] = {}
        for truth in planted:
            row = by_url.get(truth["url"])
            if row is None:
                reasons["not listed"] = reasons.get("not listed", 0) + 1
            elif not row["kept"] and row["copied_family"] != row["family"]:
                reason = str(row["reason"])
                reasons[reason] = reasons.get(reason, 0) + 1
        lost = sum(reasons.values())
        result.append(LookalikeRow(name or "(plain)", len(planted), lost, dict(sorted(reasons.items()))))
    return result


def as_json(result: DemoCheck) -> dict[str, Any]:
    """The result as plain values, ratios included."""
    return {
        "faults": [asdict(row) | {"recall": row.recall, "precision": row.precision} for row in result.faults],
        "lookalikes": [asdict(row) for row in result.lookalikes],
        "unknown": list(result.unknown),
    }


def render(result: DemoCheck) -> Group:
    """The result as two tables for the terminal."""
    faults = Table(title="planted faults", title_justify="left", box=None, pad_edge=False)
    for name in ("fault", "planted", "found", "missed", "flagged", "wrongly", "precision", "recall"):
        faults.add_column(name, justify="left" if name == "fault" else "right")
    for row in result.faults:
        counts = (row.planted, row.found, row.planted - row.found, row.flagged, row.flagged - row.right)
        faults.add_row(row.fault, *map(str, counts), _ratio(row.precision), _ratio(row.recall))
    innocents = Table(title="\ninnocent look-alikes", title_justify="left", box=None, pad_edge=False)
    for name in ("look-alike", "planted", "lost", "reasons"):
        innocents.add_column(name, justify="right" if name in ("planted", "lost") else "left")
    for alike in result.lookalikes:
        why = ", ".join(f"{reason} {count}" for reason, count in alike.reasons.items())
        innocents.add_row(alike.lookalike, str(alike.planted), str(alike.lost), why)
    notes = [f"{len(result.unknown)} rows at addresses unknown to the truth"] if result.unknown else []
    return Group(faults, innocents, *notes)


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
