"""How many pictures a second `curate ingest` saves, side by side with a bare loop and with img2dataset.

    python tests/benchmarks/ingest.py [--pictures 10000] [--rounds 3] [--img2dataset PYTHON]

All fetch the same JPEG pictures from one nginx on loopback (Debian's `nginx-light`) and keep their bytes as they are:

- `curate ingest`, a whole process, from a list of addresses to raw tars and the manifest;
- a bare loop of aiohttp, SHA-256 and appending to one file, with nothing around it;
- img2dataset with `resize_mode=no` and `disable_all_reencoding`, into WebDataset tars, a process per core.

They take turns for some rounds. Everyone has the same number of requests under way: the polite default of
`ingest.fetch.connections_per_host` is raised, since there is one host only. Start-up is what each needs for a list of
one picture. Pictures are noise drawn at several scales, about 84 KB each, no two alike in bytes; `--photographs` takes
the JPEG files of a folder instead. img2dataset wants other versions of some libraries: give it an environment of its
own, e.g. `python3 -m venv /tmp/i2d && /tmp/i2d/bin/pip install img2dataset`, and name it by `--img2dataset
/tmp/i2d/bin/python` (`make bench IMG2DATASET=/tmp/i2d/bin/python`).
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import io
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
NGINX = """
daemon off; master_process on; worker_processes auto; worker_cpu_affinity auto;
pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; sendfile on; tcp_nopush on; tcp_nodelay on; keepalive_requests 1000000;
  types {{ image/jpeg jpg; }}
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{ listen 127.0.0.1:{port} reuseport backlog=4096; root {root}; }}
}}
"""
RECIPE = """
name = "bench"
[ingest.fetch]
contact = "bench@localhost"
allow_hosts = ["127.0.0.1"]
concurrency = {concurrency}
connections_per_host = {concurrency}
[[ingest.sources]]
kind = "urls"
name = "list"
path = "{path}"
"""
I2D = """
from img2dataset import download
download(url_list={path!r}, output_folder={output!r}, input_format="txt", output_format="webdataset",
         resize_mode="no", disable_all_reencoding=True, extract_exif=False, enable_wandb=False,
         processes_count={processes}, thread_count={threads}, number_sample_per_shard={per_shard})
"""


def drawn() -> Iterator[bytes]:
    """32 pictures of noise at several scales, 640 × 480, about 84 KB as JPEG."""
    for seed in range(32):
        rng, pixels = np.random.default_rng(seed), np.zeros((480, 640, 3))
        for scale, strength in ((80, 60), (20, 40), (8, 25), (2, 12)):
            noise = rng.normal(0, strength, (480 // scale, 640 // scale, 3)) + 32
            grid = Image.fromarray(noise.clip(0, 255).astype(np.uint8))
            pixels += np.asarray(grid.resize((640, 480), Image.Resampling.BICUBIC), float)
        buffer = io.BytesIO()
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=87)
        yield buffer.getvalue()


def numbered(jpeg: bytes, number: int) -> bytes:
    """The same picture with a comment segment after its start marker, so that no two files are alike."""
    return jpeg[:2] + b"\xff\xfe\x00\x0a" + b"%08d" % number + jpeg[2:]


def make_pictures(root: Path, count: int, photographs: Path | None) -> list[str]:
    """Fill the web root; returns the files' paths on the server. 1,000 files a folder."""
    bases = list(drawn()) if photographs is None else [path.read_bytes() for path in sorted(photographs.glob("*.jp*g"))]
    names = [f"{number // 1000:03d}/{number:07d}.jpg" for number in range(count)]
    for number, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(numbered(bases[number % len(bases)], number))
    return names


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def nginx(root: Path, folder: Path) -> Iterator[str]:
    """Serve `root`; yields the address it is served at."""
    program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if program is None:
        raise SystemExit("no nginx: apt-get install nginx-light")
    folder.mkdir()
    for each in (folder, *root.parents[:1], root):
        each.chmod(0o755)
    port = free_port()
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port, root=root))
    server = subprocess.Popen([program, "-c", folder / "nginx.conf", "-e", folder / "error.log"])
    try:
        _wait_for(port, server, folder)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(10)


def _wait_for(port: int, server: subprocess.Popen[bytes], folder: Path) -> None:
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if server.poll() is not None:
            break
        time.sleep(0.05)
    raise SystemExit(f"nginx does not start: {(folder / 'error.log').read_text()[-300:]}")


async def _bare(urls: list[str], path: str, concurrency: int) -> None:
    import aiohttp

    connector, waiting = aiohttp.TCPConnector(limit=concurrency), iter(urls)
    async with aiohttp.ClientSession(connector=connector) as session:
        with open(path, "wb") as file:

            async def worker() -> None:
                for url in waiting:
                    async with session.get(url) as response:
                        body = await response.read()
                    assert response.status == 200
                    hashlib.sha256(body).digest()
                    file.write(body)

            await asyncio.gather(*(worker() for _ in range(concurrency)))


def bare_loop(listed: str, output: str, concurrency: int) -> None:
    """What this script does when it is started with --bare."""
    asyncio.run(_bare(Path(listed).read_text().split(), output, concurrency))


class Contender:
    """One way of saving the pictures of a list; `run` gives the seconds of a whole process."""

    def __init__(self, name: str, concurrency: int, python: str) -> None:
        self.name, self.concurrency, self.python = name, concurrency, python

    def command(self, listed: Path, output: Path, count: int) -> list[str]:
        if self.name == "curate ingest":
            recipe = output / "recipe.toml"
            recipe.write_text(RECIPE.format(concurrency=self.concurrency, path=listed))
            return [self.python, "-m", "pipeline", "ingest", "-q", "--recipe", str(recipe),
                    "--workdir", str(output)]
        if self.name == "bare loop":
            return [self.python, __file__, "--bare", str(listed), str(output / "bytes"), "--concurrency",
                    str(self.concurrency)]
        processes = len(os.sched_getaffinity(0))
        program = I2D.format(path=str(listed), output=str(output / "tars"), processes=processes,
                             threads=-(-self.concurrency // processes), per_shard=max(1, min(1000, count // processes)))
        return [self.python, "-c", program]

    def run(self, listed: Path, place: Path, count: int, expected: int) -> float:
        """Seconds. Raises SystemExit when the process fails, or did not save `expected` bytes of pictures."""
        output = place / "output"
        output.mkdir()
        begun = time.monotonic()
        ended = subprocess.run(self.command(listed, output, count), capture_output=True, text=True, check=False,
                               cwd=output, env={**os.environ, "PYTHONPATH": str(ROOT), "NO_ALBUMENTATIONS_UPDATE": "1"})
        seconds = time.monotonic() - begun
        saved = sum(path.stat().st_size for path in output.rglob("*") if path.suffix in (".tar", "") and path.is_file())
        shutil.rmtree(output)
        if ended.returncode or saved < expected:
            raise SystemExit(f"{self.name} saved {saved} of {expected} bytes:\n{ended.stdout}{ended.stderr}"[-3000:])
        return seconds


def spread(values: list[float], form: str) -> str:
    return f"{min(values):{form}} {statistics.median(values):{form}} {max(values):{form}}"


def report(count: int, startup: dict[str, float], seconds: dict[str, list[float]]) -> None:
    """Pictures a second of each, and how they compare in the same round; min, median, max over the rounds."""
    print(f"\n{'pictures a second':22}{'start-up':>9}{'start-up included':>25}{'without':>25}")
    rates = {}
    for name, each in seconds.items():
        whole = [count / value for value in each]
        rates[name] = (whole, [count / (value - startup[name]) for value in each])
        print(f"{name:22}{startup[name]:7.1f} s{spread(whole, '8,.0f'):>25}{spread(rates[name][1], '8,.0f'):>25}")
    print(f"\n{'curate ingest against':31}{'start-up included':>25}{'without':>25}")
    for name in seconds:
        if name != "curate ingest":
            pairs = [[one / other for one, other in zip(rates["curate ingest"][which], rates[name][which], strict=True)]
                     for which in (0, 1)]
            print(f"{name:31}{spread(pairs[0], '8.2f'):>25}{spread(pairs[1], '8.2f'):>25}")


def img2dataset_python(given: str | None) -> str | None:
    """An interpreter that can import img2dataset: the one given, or that of the command on PATH."""
    if given is not None:
        return given
    command = shutil.which("img2dataset")
    return None if command is None else Path(command).read_text(errors="replace").split("\n", 1)[0].removeprefix("#!")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=32, help="requests under way at once, for everyone")
    parser.add_argument("--photographs", type=Path, help="folder of JPEG files to serve instead of drawn pictures")
    parser.add_argument("--img2dataset", metavar="PYTHON", help="an interpreter that has img2dataset")
    parser.add_argument("--folder", help="where to make the temporary folder")
    parser.add_argument("--bare", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.bare:
        bare_loop(*arguments.bare, arguments.concurrency)
        return
    contenders = [Contender(name, arguments.concurrency, sys.executable) for name in ("curate ingest", "bare loop")]
    if (other := img2dataset_python(arguments.img2dataset)) is None:
        print("img2dataset is left out: there is none on PATH; see --help for how to get it")
    else:
        contenders.append(Contender("img2dataset", arguments.concurrency, other))
    with tempfile.TemporaryDirectory(dir=arguments.folder) as temporary:
        compare(Path(temporary), contenders, arguments.pictures, arguments.rounds, arguments.photographs)


def compare(place: Path, contenders: list[Contender], count: int, rounds: int, photographs: Path | None) -> None:
    root, every, one = place / "www", place / "every.txt", place / "one.txt"
    names = make_pictures(root, count, photographs)
    sizes = [(root / name).stat().st_size for name in names]
    print(f"{count:,} JPEG pictures of {sum(sizes) / count / 1000:.0f} KB, {sum(sizes) / 1e6:,.0f} MB; "
          f"{len(os.sched_getaffinity(0))} cores; {contenders[0].concurrency} requests at once", flush=True)
    with nginx(root, place / "nginx") as base:
        every.write_text("".join(f"{base}/{name}\n" for name in names))
        one.write_text(f"{base}/{names[0]}\n")
        startup = {each.name: min(each.run(one, place, 1, sizes[0]) for _ in range(2)) for each in contenders}
        seconds: dict[str, list[float]] = {each.name: [] for each in contenders}
        for number in range(rounds):
            for each in contenders:
                seconds[each.name].append(each.run(every, place, count, sum(sizes)))
                print(f"round {number + 1}: {each.name:14} {seconds[each.name][-1]:7.2f} s", flush=True)
    report(count, startup, seconds)


if __name__ == "__main__":
    main()
