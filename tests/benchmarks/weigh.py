"""Time `select` and `weigh` over many rows with embeddings, semantic duplicates included.

    python tests/benchmarks/weigh.py [--rows 1000000] [--growth 10000 100000]

Writes manifests of the stages before them as they would be after scoring that many pictures with a CLIP model of 512
values and ten zero-shot classes: embeddings lie around 2,000 subjects, and every twentieth picture shows nearly the
same as an earlier one. Runs both stages, then again with another CLIP threshold (which finds the clusters already
there), reads 200,000 embeddings back, and prints seconds, the peak of resident memory, and how time grows with rows.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from pipeline import storage
from pipeline.clusters import halves
from pipeline.manifest import to_schema, write_part
from pipeline.progress import Progress
from pipeline.receipt import RECEIPT, PartFile, Receipt
from pipeline.recipe import from_dict
from pipeline.run import Run
from pipeline.schema import CAPTION, DEDUPE, FILTER, INGEST, MEASURE, SCORE, TableSchema
from pipeline.score import embedding_table
from pipeline.stage import run_stage
from pipeline.stages import STAGES

PART_ROWS, WIDTH, SUBJECTS, READ = 4096, 512, 2000, 200_000
NAMES = ("dog", "cat", "bird", "car", "boat", "house", "tree", "person", "food", "city")


def run_in(folder: str, min_clip_score: float = 0.2) -> Run:
    raw = {"name": "many", "workdir": folder, "score": {"model": "demo"},
           "select": {"min_clip_score": min_clip_score, "semantic": {"max_similarity": 0.95}},
           "weigh": {"classes": "zero_shot"},
           "ingest": {"sources": [{"kind": "folder", "name": "f", "path": folder}]}}
    return Run(from_dict(raw), Progress(quiet=True))


def write(folder: str, rows: int) -> None:
    run = run_in(folder)
    tables: dict[str, dict[str, TableSchema]] = {
        "ingest": {"": INGEST}, "measure": {"": MEASURE}, "dedupe": {"": DEDUPE}, "filter": {"": FILTER},
        "score": {"": SCORE, "embedding": embedding_table(WIDTH)}, "caption": {"": CAPTION}}
    written: dict[tuple[str, str], list[PartFile]] = {}
    for number, made in enumerate(parts(rows)):
        for stage, schemas in tables.items():
            for name, schema in schemas.items():
                place = run.manifests.folder(stage, name)
                written.setdefault((stage, name), []).append(
                    write_part(place, f"part-{number:05d}", to_schema(made, schema.arrow)))
    for stage, schemas in tables.items():
        receipt = Receipt(stage=stage, basis={}, layout="many", tables={name: written[stage, name] for name in schemas},
                          namespaces={}, spares={}, counts={}, timings={}, versions={})
        storage.write_bytes(storage.join(run.manifests.folder(stage), RECEIPT), receipt.to_json())


def parts(rows: int) -> Iterator[pa.Table]:
    """Rows of all stages' columns at once, as many as one part has."""
    subjects = np.random.default_rng(1).standard_normal((SUBJECTS, WIDTH), np.float32)
    for start in range(0, rows, PART_ROWS):
        numbers, rng = np.arange(start, min(start + PART_ROWS, rows)), np.random.default_rng(start)
        count = len(numbers)
        vectors = subjects[rng.integers(0, SUBJECTS, count)] + rng.standard_normal((count, WIDTH), np.float32)
        alike = np.flatnonzero(numbers % 20 == 0)[1:]
        vectors[alike] = vectors[alike - 7] + 0.2 * rng.standard_normal((len(alike), WIDTH), np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        ids = [hashlib.blake2b(str(n).encode(), digest_size=16).hexdigest() for n in numbers.tolist()]
        kept = rng.random(count) < 0.9
        shares = rng.dirichlet(np.full(len(NAMES), 0.3), count).astype(np.float32)
        ends = np.arange(count + 1, dtype=np.int32) * len(NAMES)
        yield pa.table({
            "id": ids, "group": ids, "source": ["f"] * count, "kind": ["urls"] * count, "fetch_outcome": ["ok"] * count,
            "url": [f"https://example.org/pictures/{n}.jpg" for n in numbers.tolist()],
            "decode_outcome": ["ok"] * count, "width": rng.integers(150, 3000, count),
            "height": rng.integers(150, 3000, count), "kept": kept,
            "dropped_by": [None if stays else "filter" for stays in kept.tolist()],
            "reason": [None if stays else "blurred" for stays in kept.tolist()],
            "pooled_captions": [[f"a picture of thing {n % 999983} beside thing {n % 89}", f"IMG_{n}.JPG"]
                                for n in numbers.tolist()],
            "pooled_origins": [["alt", "title"]] * count,
            "caption_scores": [pair if stays else None for pair, stays in
                               zip(rng.normal(0.28, 0.05, (count, 2)).tolist(), kept.tolist(), strict=True)],
            "zero_shot": pa.MapArray.from_arrays(ends, pa.array(list(NAMES) * count), shares.ravel()),
            "embedding": pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(2 * WIDTH), count, [None, pa.py_buffer(vectors.astype("<f2").tobytes())]),
        })


def timed(what: str, folder: str, rows: int, min_clip_score: float) -> None:
    """Both stages, in a process of their own as a command is; `peak` is that process's."""
    run, seconds = run_in(folder, min_clip_score), []
    for stage in ("select", "weigh"):
        begun = time.perf_counter()
        run_stage(STAGES[stage](), run)
        seconds.append(time.perf_counter() - begun)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"  {rows:>9,} rows   {what:<11}   select {seconds[0]:7.2f} s   weigh {seconds[1]:6.2f} s   "
          f"both {sum(seconds):7.2f} s   peak {peak:.2f} GB", flush=True)


def read(folder: str) -> None:
    view = run_in(folder).manifests.stage("score", "embedding")
    for _ in range(3):
        begun, wanted = time.perf_counter(), -(-READ // PART_ROWS)
        table = pa.concat_tables([view.part(number, ["embedding"]) for number in range(min(wanted, view.part_count))])
        vectors, _ = halves(table.column("embedding"))
        seconds = time.perf_counter() - begun
        print(f"  {len(vectors):,} embeddings of {vectors.shape[1]} fp16 values read in {seconds:.2f} s", flush=True)


def apart(work: Callable[..., None], *arguments: object) -> None:
    process = multiprocessing.get_context("spawn").Process(target=work, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(process.exitcode)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--growth", type=int, nargs="*", default=[10_000, 100_000])
    asked = parser.parse_args()
    print(f"select + weigh, {WIDTH} values, semantic duplicates at 0.95, {os.cpu_count()} cores", flush=True)
    for rows in (*asked.growth, asked.rows):
        with tempfile.TemporaryDirectory() as folder:
            apart(write, folder, rows)
            apart(timed, "first run", folder, rows, 0.2)
            apart(timed, "a threshold", folder, rows, 0.25)
            if rows == asked.rows:
                apart(read, folder)


if __name__ == "__main__":
    main()
