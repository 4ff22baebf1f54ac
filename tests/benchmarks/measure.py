"""What `curate measure` costs per picture, side by side with nothing but decoding it, and what each part of it costs.

    python tests/benchmarks/measure.py [FOLDER...] [--pictures 2000] [--rounds 3] [--others PYTHON]

Takes the photographs in the folders (Debian's mate-backgrounds, lomiri-wallpapers-16.04 and lomiri-wallpapers-20.04
unpacked, say; without a folder pictures are drawn, whose costs are others) and makes JPEG files of one megapixel of
them: crops at full size and reductions, at quality 85 to 95, with whole and with halved chroma. In one process and in
turns, some pictures at a time, they are decoded by simplejpeg, the quickest decoder in Python, into arrays, and
measured as a worker of `curate measure` does: decoded, hashed, and looked at by every check. Then once more in parts,
and once with an ICC profile in every file, which has to be converted.

`--others` names an interpreter that has cleanvision and imagededup, e.g. `python3 -m venv /tmp/others &&
/tmp/others/bin/pip install cleanvision imagededup` (`make bench OTHERS=/tmp/others/bin/python`): they find the issues
and make the hashes of the same files, in one process each, without their start-up. All times are of the processor
(user and system) but for the column that says wall.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"  # as in workers; and for the others

import numpy as np
from PIL import Image, ImageCms

from pipeline import checks, image
from pipeline.image import Picture
from pipeline.measure import _facts, _numbers, thumb

SIDES = (1152, 864)
AT_ONCE = 50
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
SEPARATE = 500
"""Pictures that the costs of the parts, and of ICC profiles, are told from."""

OTHERS = {
    "cleanvision": """
import contextlib, io, json, os, sys, time
from cleanvision import Imagelab
def run(folder):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        Imagelab(data_path=folder).find_issues(n_jobs=1)
""",
    "imagededup's PHash": """
import json, os, sys, time
from imagededup.methods import PHash
def run(folder):
    PHash(verbose=False).encode_images(image_dir=folder, num_enc_workers=0)
""",
}
TIMED = """
run(sys.argv[1])
wall, before = time.perf_counter(), os.times()
run(sys.argv[2])
after = os.times()
print(json.dumps([sum(after[:4]) - sum(before[:4]), time.perf_counter() - wall]))
"""


def sources(folders: list[Path]) -> Iterator[Image.Image]:
    """Photographs of at least a megapixel; those with transparency are drawings."""
    for path in sorted(path for folder in folders for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES):
        with Image.open(path) as opened:
            if opened.mode == "RGB" and max(opened.size) >= SIDES[0] and min(opened.size) >= SIDES[1]:
                yield opened.convert("RGB")


def drawn() -> Iterator[Image.Image]:
    """16 pictures of noise at several scales."""
    for seed in range(16):
        rng, pixels = np.random.default_rng(seed), np.zeros((SIDES[1] * 2, SIDES[0] * 2, 3), np.float32)
        for scale, strength in ((160, 60), (40, 40), (16, 25), (4, 12)):
            noise = rng.normal(0, strength, (pixels.shape[0] // scale, pixels.shape[1] // scale, 3)) + 32
            grid = Image.fromarray(noise.clip(0, 255).astype(np.uint8))
            pixels += np.asarray(grid.resize((pixels.shape[1], pixels.shape[0]), Image.Resampling.BICUBIC))
        yield Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def make_pictures(folder: Path, folders: list[Path], count: int) -> int:
    """`count` different JPEG files of SIDES or SIDES turned, equally many of each source; returns how many sources."""
    chance, number = random.Random(0), 0
    many = sum(1 for _ in sources(folders)) if folders else 16
    if not many:
        raise SystemExit(f"no RGB picture of {SIDES[0]} × {SIDES[1]} px or more in {', '.join(map(str, folders))}")
    for which, source in enumerate(sources(folders) if folders else drawn()):
        if source.width < source.height:
            width, height = SIDES[::-1]
        else:
            width, height = SIDES
        while number < count * (which + 1) // many:
            scale = max(width / source.width, height / source.height)
            scale += (1 - scale) * chance.choice((0.0, 1.0, chance.random()))  # the whole, a crop at full size, between
            box_w, box_h = width / scale, height / scale
            left, top = (chance.random() * max(0, free) for free in (source.width - box_w, source.height - box_h))
            box = (left, top, min(left + box_w, source.width), min(top + box_h, source.height))
            made = source.resize((width, height), Image.Resampling.LANCZOS, box)
            made.save(folder / f"{number:05}.jpg", quality=chance.choice((85, 90, 95)),
                      subsampling=chance.choice((0, 2)))
            number += 1
    return many


def foreign_profile() -> bytes:
    """An ICC profile under which red and blue change places, so that every pixel has to be converted."""
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    for old, new in ((b"rXYZ", b"tmpX"), (b"bXYZ", b"rXYZ"), (b"tmpX", b"bXYZ"), (b"sRGB", b"xRGB"),
                     (b"s\0R\0G\0B", b"x\0R\0G\0B")):
        profile = profile.replace(old, new)
    return profile


def with_profile(jpeg: bytes, profile: bytes) -> bytes:
    """The same pixels, with the profile in an APP2 segment after the start marker."""
    payload = b"ICC_PROFILE\0\x01\x01" + profile
    return jpeg[:2] + b"\xff\xe2" + struct.pack(">H", len(payload) + 2) + payload + jpeg[2:]


def measured(data: bytes) -> None:
    """As `measure_one` of `curate measure`, of bytes in memory."""
    picture = image.decode(data)
    _facts(picture)
    _numbers(picture)


def cost(work: Callable[[bytes], object], files: list[bytes]) -> tuple[float, float]:
    """Processor and wall time, ms per picture."""
    wall, processor = time.perf_counter(), time.process_time()
    for data in files:
        work(data)
    return (time.process_time() - processor) * 1e3 / len(files), (time.perf_counter() - wall) * 1e3 / len(files)


def in_turns(contenders: dict[str, Callable[[bytes], object]], files: list[bytes], rounds: int,
             ) -> dict[str, list[tuple[float, float]]]:
    """Per contender and round (processor, wall), ms per picture; in turns of AT_ONCE pictures."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for work in contenders.values():
        cost(work, files[:AT_ONCE])
    for _ in range(rounds):
        parts: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
        for start in range(0, len(files) - AT_ONCE + 1, AT_ONCE):
            for name, work in contenders.items():
                parts[name].append(cost(work, files[start:start + AT_ONCE]))
        for name, each in parts.items():
            times[name].append((statistics.mean(one[0] for one in each), statistics.mean(one[1] for one in each)))
    return times


def parts() -> dict[str, Callable[[Picture], Any]]:
    """What `measured` consists of, in an order in which each view is made before it is used."""
    views = {f"view: {name}": attrgetter(name) for name in ("levels", "viewing", "small")}
    facts = {"hash: pixel digest": Picture.digest, "hash: all facts": _facts, "hash: thumbnail": thumb}
    looks = {f"check: {name}": check.measure for name, check in checks.measuring().items() if check.columns}
    return {**views, **facts, **looks}


def breakdown(files: list[bytes]) -> dict[str, float]:
    """Processor time of each part, ms per picture."""
    spent = dict.fromkeys(("decode", *parts()), 0.0)
    for data in files:
        begun = time.process_time()
        picture = image.decode(data)
        spent["decode"] += time.process_time() - begun
        for name, part in parts().items():
            begun = time.process_time()
            part(picture)
            spent[name] += time.process_time() - begun
    spent["hash: perceptual"] = spent.pop("hash: all facts") - spent["hash: thumbnail"] - spent["hash: pixel digest"]
    return {name: each * 1e3 / len(files) for name, each in spent.items()}


def other(python: str, program: str, warm: Path, folder: Path, count: int) -> tuple[float, float] | None:
    """Processor and wall time of another program, ms per picture; None where it fails."""
    ended = subprocess.run([python, "-c", program + TIMED, str(warm), str(folder)], capture_output=True, text=True,
                           check=False)
    if ended.returncode:
        print(f"it fails: {ended.stderr.strip().splitlines()[-1:]}")
        return None
    processor, wall = json.loads(ended.stdout.strip().splitlines()[-1])
    return processor * 1e3 / count, wall * 1e3 / count


def report(times: dict[str, list[tuple[float, float]]]) -> None:
    print(f"\n{'ms a picture':26}{'processor, least':>18}{'median':>9}{'most':>9}{'wall, median':>15}")
    for name, each in times.items():
        used = [one[0] for one in each]
        print(f"{name:26}{min(used):18.2f}{statistics.median(used):9.2f}{max(used):9.2f}"
              f"{statistics.median(one[1] for one in each):15.2f}")
    curate = statistics.median(one[0] for one in times["curate measure"])
    for name, each in times.items():
        if name != "curate measure":
            ratio = statistics.median(one[0] for one in each) / curate
            print(f"curate measure runs at {100 * ratio:.0f} % of the speed of {name}" if ratio < 1 else
                  f"curate measure is {ratio:.1f} times as fast as {name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--pictures", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--others", metavar="PYTHON", help="an interpreter that has cleanvision and imagededup")
    arguments = parser.parse_args()
    import simplejpeg

    if not arguments.folders:
        print("drawn pictures: name folders of photographs for figures that say something; see --help")
    with tempfile.TemporaryDirectory() as temporary:
        place, warm = Path(temporary) / "pictures", Path(temporary) / "few"
        place.mkdir()
        warm.mkdir()
        count = make_pictures(place, arguments.folders, arguments.pictures)
        files = [path.read_bytes() for path in sorted(place.iterdir())]
        for number, data in enumerate(files[:20]):
            (warm / f"{number}.jpg").write_bytes(data)
        print(f"{len(files):,} JPEG pictures of {SIDES[0] * SIDES[1] / 1e6:.2f} megapixels out of {count}, "
              f"{sum(map(len, files)) / len(files) / 1000:.0f} KB each", flush=True)
        times = in_turns({"simplejpeg": simplejpeg.decode_jpeg, "curate measure": measured}, files, arguments.rounds)
        for name, program in OTHERS.items() if arguments.others else ():
            found = other(arguments.others, program, warm, place, len(files))
            if found is not None:
                times[name] = [found]
    report(times)
    part = files[:: max(1, len(files) // SEPARATE)]
    print(f"\nparts of it, ms of the processor a picture, {len(part)} pictures")
    for name, spent in breakdown(part).items():
        print(f"{name:26}{spent:8.2f}")
    profile = foreign_profile()
    report(in_turns({"simplejpeg, no conversion": simplejpeg.decode_jpeg, "curate measure": measured},
                    [with_profile(data, profile) for data in part], 1))


if __name__ == "__main__":
    main()
