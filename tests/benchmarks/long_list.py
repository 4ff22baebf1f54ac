"""What a long list of addresses costs: memory, the time until the first picture is asked for, rows a second.

    python tests/benchmarks/long_list.py [--rows 1000000] [--format parquet|csv]

The first address is served by this script, all others lie at a private address and are refused before anything is
sent, so what is measured is the program and no network: listing, planning, keeping and writing every row. One address
in fifty comes more than once. Memory is the peak of the whole process (`VmHWM`), at the end and every 30 s.
"""

from __future__ import annotations

import argparse
import http.server
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[2]
PNG = bytes.fromhex("89504e470d0a1a0a0000000d4948445200000001000000010800000000"
                    "3a7e9b550000000a49444154789c63680000008200812cfc6d7d0000000049454e44ae426082")
RECIPE = """
name = "long"
[ingest.fetch]
contact = "bench@localhost"
allow_hosts = ["{allowed}"]
respect_robots = false
respect_tdm = false
[[ingest.sources]]
kind = "urls"
name = "list"
path = "{path}"
captions = ["caption"]
"""
STEP = 50_000


class First(http.server.BaseHTTPRequestHandler):
    """Notes when it was asked."""

    asked_at = 0.0

    def do_GET(self) -> None:
        First.asked_at = First.asked_at or time.monotonic()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(PNG)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def write_list(path: Path, rows: int, first: str) -> None:
    schema = pa.schema([("url", pa.string()), ("caption", pa.string()), ("similarity", pa.float64())])
    parquet = path.suffix == ".parquet"
    with (pq.ParquetWriter if parquet else csv.CSVWriter)(path, schema) as writer:
        for start in range(0, rows, STEP):
            numbers = range(start, min(start + STEP, rows))
            urls = [f"http://10.0.0.1/{n * 2654435761 % 2**32:08x}/picture-{n // 50 if n % 50 == 7 else n}.jpg"
                    for n in numbers]
            if start == 0:
                urls[0] = first
            captions = [f"picture {n} of a long list, with a caption of the usual length" for n in numbers]
            table = pa.table([urls, captions, [n / rows for n in numbers]], schema=schema)
            writer.write_table(table)


def memory_mb(pid: int) -> float:
    """Peak resident memory, 10⁶ bytes; 0 for a process that has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        return int(text.split("VmHWM:")[1].split()[0]) * 1024 / 1e6
    except (OSError, IndexError):
        return 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--format", choices=("parquet", "csv"), default="parquet")
    asked = parser.parse_args()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), First)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="gristmill-long-") as folder:
        path = Path(folder) / f"list.{asked.format}"
        allowed = f"127.0.0.1:{server.server_port}"
        write_list(path, asked.rows, f"http://{allowed}/first.png")
        (Path(folder) / "long.toml").write_text(RECIPE.format(allowed=allowed, path=path))
        begun = time.monotonic()
        process = subprocess.Popen([sys.executable, "-m", "pipeline", "ingest", "--quiet", "--recipe",
                                    f"{folder}/long.toml", "--workdir", f"{folder}/work"], cwd=ROOT)
        peak, said = 0.0, 0.0
        while process.poll() is None:
            peak = max(peak, memory_mb(process.pid))
            if time.monotonic() - begun - said > 30:
                said = time.monotonic() - begun
                print(f"  after {said:.0f} s: {peak:.0f} MB", flush=True)
            time.sleep(0.05)
        seconds = time.monotonic() - begun
        print(f"{asked.rows:,} rows as {asked.format}: first picture asked for after {First.asked_at - begun:.1f} s, "
              f"at most {peak:.0f} MB, {seconds:.0f} s in all ({asked.rows / seconds:.0f} rows/s)")
    if process.returncode:
        raise SystemExit(process.returncode)


if __name__ == "__main__":
    main()
