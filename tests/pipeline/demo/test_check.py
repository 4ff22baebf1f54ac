"""`demo-check` on manifests made by hand from a real truth table: perfect, then with known mistakes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

from pipeline.demo.check import COLUMNS, DemoCheck, FaultRow, as_json, compare, render
from pipeline.demo.plan import plan_site
from pipeline.demo.site import _truth
from pipeline.demo.truth import FAULTS, SCHEMA, _record
from pipeline.schema import FAILED_CHECK

REASON = {"heavy_jpeg": "heavy_compression", "blown_up": "blown_up", "blurred": "blurry", "blank": "blank",
          "sliver": "extreme_aspect", "thumbnail": "low_resolution", "filename_caption": "weak_caption"}  # fmt: skip
OUTCOME = {"html_as_image": "not_an_image", "not_found": "not_found", "robots": "robots",
           "opt_out_page": "opt_out", "opt_out_header": "opt_out"}  # fmt: skip
TYPES = {"id": pa.string(), "url": pa.string(), "fetch_outcome": pa.string(), "decode_outcome": pa.string(),
         "duplicate_of": pa.string(), "relation": pa.string(), "failed": pa.list_(FAILED_CHECK), "kept": pa.bool_(),
         "dropped_by": pa.string(), "reason": pa.string(), "original_rejected": pa.string()}  # fmt: skip

Rows = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def truth() -> pa.Table:
    items = plan_site(2, 90)
    return pa.Table.from_pylist([_record(_truth(item, items, None, "http://x")) for item in items], schema=SCHEMA)


def failed(reason: str) -> dict[str, Any]:
    return {"check": "some", "reason": reason, "action": "drop", "value": 1.0, "threshold": 2.0}


def perfect(truth: pa.Table) -> Rows:
    """What a flawless pipeline would write."""
    rows: Rows = {}
    for number, row in enumerate(truth.to_pylist()):
        fault = row["fault"]
        made: dict[str, Any] = dict.fromkeys(TYPES) | {
            "id": f"{number:032x}", "url": row["url"], "fetch_outcome": OUTCOME.get(fault, "ok"), "failed": [],
            "kept": fault in (None, "filename_caption", "wrong_caption"),
        }  # fmt: skip
        if made["fetch_outcome"] == "ok":
            made["decode_outcome"] = "truncated" if fault == "truncated" else "ok"
        if fault in REASON:
            made["failed"] = [failed(REASON[fault])]
        if fault == "wrong_caption":
            made["original_rejected"] = "mismatch"
        rows[row["url"]] = made
    for row in truth.to_pylist():
        if row["fault"] in ("exact_copy", "reencoded_copy", "rescaled_copy"):
            relation = "bytes" if row["fault"] == "exact_copy" else "perceptual"
            rows[row["url"]] |= {"duplicate_of": rows[row["of"]]["id"], "relation": relation, "reason": "duplicate"}
    return rows


def checked(rows: Rows, truth: pa.Table) -> DemoCheck:
    table = pa.table({name: pa.array([row[name] for row in rows.values()], TYPES[name]) for name in COLUMNS})
    return compare(table, truth)


def fault_row(result: DemoCheck, fault: str) -> FaultRow:
    return next(row for row in result.faults if row.fault == fault)


def urls(truth: pa.Table, fault: str | None) -> list[str]:
    return [row["url"] for row in truth.to_pylist() if row["fault"] == fault]


def test_a_flawless_run_scores_one_everywhere(truth: pa.Table) -> None:
    result = checked(perfect(truth), truth)
    assert [row.fault for row in result.faults] == list(FAULTS)
    for row in result.faults:
        assert (row.planted, row.found, row.precision, row.recall) == (3, 3, 1.0, 1.0), row
    assert all(row.lost == 0 for row in result.lookalikes)
    assert result.unknown == ()


def test_a_run_that_finds_nothing_has_no_precision_and_no_recall(truth: pa.Table) -> None:
    rows = perfect(truth)
    for row in rows.values():
        row |= {"fetch_outcome": "ok", "decode_outcome": "ok", "duplicate_of": None, "relation": None, "failed": [],
                "kept": True, "reason": None, "original_rejected": None}  # fmt: skip
    for fault in checked(rows, truth).faults:
        assert (fault.found, fault.precision, fault.recall) == (0, None, 0.0)


def test_an_innocent_flagged_and_a_fault_missed_are_counted(truth: pa.Table) -> None:
    rows = perfect(truth)
    innocent, missed = urls(truth, None)[0], urls(truth, "blank")[0]
    rows[innocent] |= {"failed": [failed("blank")], "kept": False, "reason": "blank"}
    rows[missed]["failed"] = []
    result = checked(rows, truth)
    blank = fault_row(result, "blank")
    assert (blank.found, blank.flagged, blank.right) == (2, 3, 2)
    assert blank.recall == blank.precision == pytest.approx(2 / 3)
    assert (blank.missed_urls, blank.wrong_urls) == ((missed,), (innocent,))
    assert sum(row.lost for row in result.lookalikes) == 1
    assert [row.reasons for row in result.lookalikes if row.lost] == [{"blank": 1}]


def test_the_original_may_go_in_favour_of_its_copy(truth: pa.Table) -> None:
    rows = perfect(truth)
    copy = next(row for row in truth.to_pylist() if row["fault"] == "exact_copy")
    rows[copy["url"]] |= {"duplicate_of": None, "relation": None, "kept": True, "reason": None}
    rows[copy["of"]] |= {"duplicate_of": rows[copy["url"]]["id"], "relation": "bytes", "kept": False,
                         "reason": "duplicate"}  # fmt: skip
    result = checked(rows, truth)
    row = fault_row(result, "exact_copy")
    assert (row.recall, row.precision) == (1.0, 1.0)
    assert all(alike.lost == 0 for alike in result.lookalikes)


def test_a_twin_dropped_as_a_copy_is_wrong(truth: pa.Table) -> None:
    rows = perfect(truth)
    twin = next(row for row in truth.to_pylist() if row["lookalike"] == "twin")
    rows[twin["url"]] |= {"duplicate_of": rows[twin["of"]]["id"], "relation": "perceptual", "kept": False,
                          "reason": "duplicate"}  # fmt: skip
    result = checked(rows, truth)
    assert fault_row(result, "reencoded_copy").precision == pytest.approx(6 / 7)  # 3 re-encoded, 3 rescaled, 1 twin
    assert fault_row(result, "exact_copy").precision == 1.0
    assert next(row for row in result.lookalikes if row.lookalike == "twin").lost == 1


def test_a_fault_that_another_brings_along_is_not_a_false_alarm(truth: pa.Table) -> None:
    rows = perfect(truth)
    for url in urls(truth, "blank"):
        rows[url]["failed"] = [failed("blank"), failed("blurry"), failed("blown_up")]
    result = checked(rows, truth)
    assert fault_row(result, "blurred").precision == fault_row(result, "blown_up").precision == 1.0


def test_what_was_never_listed_counts_as_found_only_where_nobody_should_look(truth: pa.Table) -> None:
    rows = perfect(truth)
    for fault in ("robots", "opt_out_page", "truncated"):
        del rows[urls(truth, fault)[0]]
    result = checked(rows, truth)
    assert fault_row(result, "robots").recall == fault_row(result, "opt_out_page").recall == 1.0
    assert fault_row(result, "truncated").recall == pytest.approx(2 / 3)


def test_unknown_addresses_are_named(truth: pa.Table) -> None:
    rows = perfect(truth)
    rows["http://x/else.jpg"] = rows[urls(truth, None)[0]] | {"id": "f" * 32, "url": "http://x/else.jpg"}
    assert checked(rows, truth).unknown == ("http://x/else.jpg",)


def test_it_prints(truth: pa.Table) -> None:
    result = checked(perfect(truth), truth)
    console = Console(width=120, record=True, quiet=True)
    console.print(render(result))
    printed = as_json(result)
    assert [row["fault"] for row in printed["faults"]] == list(FAULTS)
    assert all(row["recall"] == row["precision"] == 1.0 for row in printed["faults"])
