"""Time `dedupe` and `filter` over many rows of columns that no picture stands behind.

    python tests/benchmarks/columns.py [--rows 1000000]

Writes manifests of `ingest` and `measure` as they would be after measuring that many pictures, of which every twentieth
is a copy (half by bytes, half by look), runs both stages, then runs them again with another threshold, which is what a
person waits for. Prints seconds and the peak of resident memory.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from pipeline import checks, storage
from pipeline.manifest import to_schema, write_part
from pipeline.progress import Progress
from pipeline.receipt import RECEIPT, Receipt
from pipeline.recipe import from_dict
from pipeline.run import Run
from pipeline.schema import INGEST, MEASURE, THUMB_BYTES, TableSchema
from pipeline.stage import run_stage
from pipeline.stages import STAGES

PART_ROWS = 4096


def run_in(folder: str, **changes: object) -> Run:
    raw = {"name": "many", "workdir": folder, "score": {"model": "none"}, "filter": {"blur": changes},
           "ingest": {"sources": [{"kind": "folder", "name": "f", "path": folder}]}}
    return Run(from_dict(raw), Progress(quiet=True))


def write(folder: str, rows: int) -> None:
    run = run_in(folder)
    measured = TableSchema((*MEASURE.columns[:-1], *checks.columns(), MEASURE.columns[-1]))
    for stage, schema, parts in (("ingest", INGEST, ingested(rows)), ("measure", measured, measures(rows))):
        folder = run.manifests.folder(stage)
        written = [write_part(folder, f"part-{number:05d}", to_schema(table, schema.arrow))
                   for number, table in enumerate(parts)]
        receipt = Receipt(stage=stage, basis={}, layout="many", tables={"": written}, namespaces={}, spares={},
                          counts={}, timings={}, versions={})
        storage.write_bytes(storage.join(folder, RECEIPT), receipt.to_json())


def spans(rows: int) -> Iterator[tuple[np.ndarray, np.random.Generator]]:
    for start in range(0, rows, PART_ROWS):
        yield np.arange(start, min(start + PART_ROWS, rows)), np.random.default_rng(start)


def original(numbers: np.ndarray) -> np.ndarray:
    """The row whose picture a row shows: itself, or for every twentieth one of the rows before it."""
    return np.where((numbers % 20 == 0) & (numbers > 0), numbers // 2 + 1, numbers)


def ingested(rows: int) -> Iterator[pa.Table]:
    for numbers, rng in spans(rows):
        shown = np.where(numbers % 40 == 0, original(numbers), numbers)
        yield pa.table({
            "id": [hashlib.blake2b(str(n).encode(), digest_size=16).hexdigest() for n in numbers.tolist()],
            "source": ["f"] * len(numbers), "kind": ["urls"] * len(numbers), "fetch_outcome": ["ok"] * len(numbers),
            "url": [f"https://example.org/pictures/{n}.jpg" for n in numbers.tolist()],
            "captions": [[f"a picture of thing {n % 999983} beside thing {n % 89}"] for n in numbers.tolist()],
            "caption_origins": [["alt"]] * len(numbers), "length": rng.integers(20_000, 400_000, len(numbers)),
            "sha256": [hashlib.sha256(str(n).encode()).digest() for n in shown.tolist()],
        })


def measures(rows: int) -> Iterator[pa.Table]:
    for numbers, rng in spans(rows):
        shown = original(numbers)
        hashes = np.array([int.from_bytes(hashlib.blake2b(str(n).encode(), digest_size=8).digest(), "little")
                           for n in shown.tolist()], np.uint64)
        values = rng.normal(0, 1, (len(checks.columns()), len(numbers)))
        yield pa.table({
            "decode_outcome": ["ok"] * len(numbers), "width": rng.integers(150, 3000, len(numbers)),
            "height": rng.integers(150, 3000, len(numbers)), "frames": np.ones(len(numbers), np.int32),
            "pixel_digest": [hashlib.blake2b(str(n).encode(), digest_size=16).digest() for n in
                             np.where(numbers % 40 == 0, shown, numbers).tolist()],
            "phash": hashes, "alpha_share": np.zeros(len(numbers), np.float32),
            "thumb": [hashlib.sha512(str(n).encode()).digest() * (THUMB_BYTES // 64) for n in shown.tolist()],
            **{column.name: place for column, place in zip(checks.columns(), values, strict=True)},
        })


def timed(what: str, folder: str, **changes: float) -> None:
    """Both stages, in a process of their own as a command is; `peak` is that process's."""
    run = run_in(folder, **changes)
    for stage in ("dedupe", "filter"):
        begun = time.perf_counter()
        run_stage(STAGES[stage](), run)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(f"  {what:<12} {stage:<7} {time.perf_counter() - begun:7.2f} s   peak {peak:.2f} GB", flush=True)


def apart(work: Callable[..., None], *arguments: object, **changes: float) -> None:
    process = multiprocessing.get_context("spawn").Process(target=work, args=arguments, kwargs=changes)
    process.start()
    process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        apart(write, folder, rows)
        print(f"{rows:,} rows", flush=True)
        apart(timed, "first run", folder, min_sharpness=0.2)
        apart(timed, "a threshold", folder, min_sharpness=0.3)


if __name__ == "__main__":
    main()
