"""Precision and recall of the demo's planted faults over several generator seeds, without the network.

    python tests/benchmarks/demo_seeds.py [--seeds 1 2 3] [--scenes 3000]

Builds the website of each seed in a temporary folder, measures, dedupes and judges its pictures with the default
settings, and compares with the truth as `curate demo-check` does. Faults of fetching and of captions need a whole
run and are left out.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from pipeline import checks
from pipeline.dedupe import DedupeSettings, elect, preference
from pipeline.demo.check import DemoCheck, compare
from pipeline.demo.site import Site, build
from pipeline.demo.truth import read_truth
from pipeline.image import Unreadable, decode
from pipeline.measure import _facts, _numbers
from pipeline.pairs import Neighbours, copies
from pipeline.schema import INGEST, MEASURE

OF_PICTURES = ("exact_copy", "reencoded_copy", "rescaled_copy", "thumbnail", "heavy_jpeg", "blown_up", "blurred",
               "blank", "sliver", "truncated")
NOT_SHOWN = ("robots", "opt_out_page", "opt_out_header", "not_found", "html_as_image", "filename_caption",
             "wrong_caption")


def measured(path: Path) -> dict[str, Any]:
    """What ingest and measure would say of one file of the website."""
    data = path.read_bytes()
    found: dict[str, Any] = {"sha256": hashlib.sha256(data).digest(), "length": len(data), "fetch_outcome": "ok"}
    try:
        picture = decode(data)
        return {**found, "decode_outcome": "ok", **_facts(picture), **_numbers(picture)}
    except Unreadable as error:
        return {**found, "decode_outcome": error.reason}


def run(site: Site, workers: int) -> tuple[DemoCheck, pa.Table]:
    """Measure, dedupe and judge a built site; the comparison, and all columns of all rows."""
    truth = read_truth(site.truth)
    urls = [row["url"] for row in truth.to_pylist() if row["fault"] not in NOT_SHOWN]
    with ProcessPoolExecutor(workers) as pool:
        rows = list(pool.map(measured, [Path(site.www + urlsplit(url).path) for url in urls], chunksize=32))
    for number, (url, row) in enumerate(zip(urls, rows, strict=True)):
        row |= {"id": hashlib.md5(url.encode()).hexdigest(), "kind": "site", "url": url, "occurrence": number,
                "captions": ["a caption"], "caption_origins": ["alt"]}
    table = as_table(rows)
    chosen = {name: check.Settings() for name, check in checks.registry().items()}
    verdicts = checks.verdicts(table, chosen)
    neighbours = Neighbours(table.column("id"), copies(table, DedupeSettings()))
    keepers = elect(neighbours, preference(table, verdicts.dropped)).tolist()
    for number, (row, failed) in enumerate(zip(rows, verdicts.failed().to_pylist(), strict=True)):
        keeper = keepers[number]
        relation = None if keeper == number else neighbours.between(number, keeper)[0]
        reason = f"duplicate_{relation}" if relation else next(
            (f["reason"] for f in failed if f["action"] == "drop"), None)
        row |= {"failed": failed, "relation": relation, "duplicate_of": rows[keeper]["id"] if relation else None,
                "reason": reason, "kept": reason is None and row["decode_outcome"] == "ok", "dropped_by": None,
                "original_rejected": None}
    decided = {name: pa.array([row[name] for row in rows]) for name in (
        "failed", "relation", "duplicate_of", "reason", "kept", "dropped_by", "original_rejected")}
    for name, column in decided.items():
        table = table.append_column(name, column)
    return compare(table, truth), table


def as_table(rows: list[dict[str, Any]]) -> pa.Table:
    fixed = [c for c in (*INGEST.columns, *MEASURE.columns, *checks.columns()) if c.name != "value_key"]
    types = {column.name: column.type for column in fixed}
    return pa.table({name: pa.array([row.get(name) for row in rows], kind) for name, kind in types.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--scenes", type=int, default=3000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="folder to write a Parquet file of all columns per seed to")
    arguments = parser.parse_args()
    for seed in arguments.seeds:
        with tempfile.TemporaryDirectory() as folder:
            site = build(f"{folder}/site", seed, arguments.scenes, processes=arguments.workers)
            result, rows = run(site, arguments.workers)
            strengths = {row["url"]: row for row in read_truth(site.truth).to_pylist()}
        print(f"seed {seed}, {rows.num_rows} pictures")
        for fault in result.faults:
            if fault.fault in OF_PICTURES:
                missed = [f"{strengths[url]['strength']:.3g}" for url in fault.missed_urls]
                wrong = Counter(strengths[url]["fault"] or strengths[url]["lookalike"] or "plain"
                                for url in fault.wrong_urls)
                print(f"  {fault.fault:15} n {fault.planted:4}  recall {fault.recall or 0:.3f}  precision "
                      f"{fault.precision or 0:.3f}  missed {missed[:8]}  wrong {dict(wrong)}", flush=True)
        print("  innocents lost:", {row.lookalike: (row.lost, row.planted, row.reasons) for row in result.lookalikes
                                    if row.lost})
        if arguments.keep:
            import pyarrow.parquet as pq

            pq.write_table(rows, arguments.keep / f"seed{seed}.parquet")


if __name__ == "__main__":
    main()
