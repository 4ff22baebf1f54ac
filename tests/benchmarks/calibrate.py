"""Print the tables that the checks' default thresholds are set from.

    python tests/benchmarks/calibrate.py FOLDER...

Takes every picture in the folders (Debian's mate-backgrounds, lomiri-wallpapers-16.04 and lomiri-wallpapers-20.04
unpacked, say). Of each it measures the whole at 1024 px and crops of up to 900 px at full size, untouched and
degraded at graded strengths, and prints the share that each check drops, and all checks together. Cuts of one
picture count as one: a source counts by the share of its cuts that are dropped. The last lines tell how many
re-encoded, rescaled and (with dedupe.mirrored) mirrored copies are found.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from PIL import Image, ImageFilter, ImageOps

from pipeline import checks
from pipeline.checks.base import CheckSettings
from pipeline.dedupe import DedupeSettings, edge_reads
from pipeline.image import Picture, Unreadable, decode
from pipeline.measure import _facts, _numbers
from pipeline.pairs import copies
from pipeline.schema import THUMB_BYTES

WHOLE_SIDE, CROP_SIDE = 1024, 900
SHOWN = ("blank", "blown_up", "blur", "compression")

Degradation = Callable[[Image.Image], bytes]


def encode(image: Image.Image, form: str = "JPEG", quality: int = 90) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, quality=quality)
    return buffer.getvalue()


def crushed(image: Image.Image, quality: int, form: str) -> bytes:
    """JPEG at `quality`; under another form saved again, at a fine quality."""
    first = encode(image, "JPEG", quality)
    return first if form == "JPEG" else encode(Image.open(io.BytesIO(first)), form, 95)


def blurred(image: Image.Image, sigma: float) -> bytes:
    """Gaussian blur of sigma px at a longer side of 512."""
    return encode(image.filter(ImageFilter.GaussianBlur(sigma * max(image.size) / 512)))


def enlarged(image: Image.Image, factor: float, way: Image.Resampling) -> bytes:
    small = image.resize((round(image.width / factor), round(image.height / factor)), Image.Resampling.LANCZOS)
    return encode(small.resize(image.size, way))


def rescaled(image: Image.Image, factor: float, form: str, quality: int) -> bytes:
    size = (round(image.width * factor), round(image.height * factor))
    return encode(image.resize(size, Image.Resampling.LANCZOS), form, quality)


def mirrored(image: Image.Image, factor: float, quality: int) -> bytes:
    return rescaled(ImageOps.mirror(image), factor, "JPEG", quality)


UNTOUCHED: dict[str, Degradation] = {
    "untouched PNG": partial(encode, form="PNG"), "untouched JPEG q90": encode,
    "untouched JPEG q75": partial(encode, quality=75), "untouched WebP q80": partial(encode, form="WEBP", quality=80),
}
DEGRADED: dict[str, Degradation] = {
    **{f"JPEG q{q}": partial(crushed, quality=q, form="JPEG") for q in (5, 10, 20, 30, 50)},
    **{f"JPEG q{q} as PNG": partial(crushed, quality=q, form="PNG") for q in (5, 10, 20)},
    **{f"JPEG q{q} as WebP": partial(crushed, quality=q, form="WEBP") for q in (5, 10, 20)},
    **{f"blur {sigma}": partial(blurred, sigma=sigma) for sigma in (1, 2, 3, 5, 8)},
    **{f"×{factor} {way.name.lower()}": partial(enlarged, factor=factor, way=way) for factor in (1.5, 2, 3, 4, 6)
       for way in (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC, Image.Resampling.LANCZOS)},
}
COPIES: dict[str, Degradation] = {
    "copy JPEG q35": partial(encode, quality=35), "copy WebP q50": partial(encode, form="WEBP", quality=50),
    **{f"copy ×{factor}": partial(rescaled, factor=factor, form="JPEG", quality=85) for factor in (0.3, 0.5, 0.9)},
    **{f"mirrored ×{factor} q{quality}": partial(mirrored, factor=factor, quality=quality)
       for factor, quality in ((1, 85), (0.5, 85), (1, 35))},
}


def measure_picture(picture: Picture) -> dict[str, object]:
    return {"decode_outcome": "ok", **_facts(picture), **_numbers(picture)}


def cuts(path: Path, crops: int) -> Iterator[Image.Image]:
    """The whole picture at WHOLE_SIDE, then crops at full size."""
    picture = decode(path.read_bytes())
    if picture.alpha_share > 0.5:  # an overlay to lay over something else: on white there may be nothing to see
        return
    image = picture.pil()
    whole = image.copy()
    whole.thumbnail((WHOLE_SIDE, WHOLE_SIDE), Image.Resampling.LANCZOS)
    yield whole
    rng = np.random.default_rng(sum(path.name.encode()))
    side = min(CROP_SIDE, *image.size)
    for _ in range(crops):
        left, top = int(rng.integers(image.width - side + 1)), int(rng.integers(image.height - side + 1))
        yield image.crop((left, top, left + side, top + side))


def measure_source(path: Path, crops: int) -> list[dict[str, object]]:
    """One record per cut and treatment; an unreadable file gives none."""
    records: list[dict[str, object]] = []
    try:
        for number, cut in enumerate(cuts(path, crops)):
            original = measure_picture(decode(encode(cut, "PNG")))
            for treatment, treat in {**UNTOUCHED, **DEGRADED}.items():
                records.append({"source": path.name, "cut": number, "treatment": treatment,
                                **measure_picture(decode(treat(cut)))})
            for treatment, treat in COPIES.items():
                records.append({"source": path.name, "cut": number, "treatment": treatment,
                                "copied": is_copy(original, measure_picture(decode(treat(cut))),
                                                  DedupeSettings(mirrored=treatment.startswith("mirrored")))})
    except Unreadable as error:
        print(f"{path.name}: {error}")
    return records


def is_copy(one: dict[str, object], other: dict[str, object], settings: DedupeSettings) -> bool:
    """Whether dedupe would take the two for one picture."""
    rows = [{"id": str(number), "kind": "", "url": str(number), "sha256": bytes([number]), **row}
            for number, row in enumerate((one, other))]
    names = edge_reads(settings)
    types = {"phash": pa.uint64(), "phash_mirrored": pa.uint64(), "thumb": pa.binary(THUMB_BYTES)}
    table = pa.table({name: pa.array([row[name] for row in rows], types.get(name)) for name in names})
    return copies(table, settings).num_rows > 0


def settings() -> dict[str, CheckSettings]:
    return {name: check.Settings() for name, check in checks.registry().items()}


def judged(records: list[dict[str, object]]) -> dict[str, np.ndarray]:
    """Check → rows that fail it, by the default settings."""
    names = [name for name in checks.columns_read() if name != "captions"]
    columns = {name: [record.get(name) for record in records] for name in names}
    table = pa.table({**columns, "captions": [["two words"]] * len(records)})
    verdicts = checks.verdicts(table, settings())
    return {**{name: verdicts.failing(name) for name in checks.registry()}, "all": verdicts.dropped}


def pictures(folders: list[Path], crops: int, workers: int) -> None:
    paths = sorted(path for folder in folders for path in folder.rglob("*")
                   if path.suffix.lower() in (".jpg", ".jpeg", ".png", ".webp"))
    with ProcessPoolExecutor(workers) as pool:
        records = [record for found in pool.map(partial(measure_source, crops=crops), paths) for record in found]
    sources = sorted({str(record["source"]) for record in records})
    print(f"{len(sources)} sources, {len({(r['source'], r['cut']) for r in records})} cuts")
    print(f"{'dropped, %, by':26}" + "".join(f"{name:>13}" for name in (*SHOWN, "all", "worst sources")))
    for treatment in (*UNTOUCHED, *DEGRADED):
        for part in ("whole", "crop"):
            rows = [r for r in records if r["treatment"] == treatment and (r["cut"] == 0) == (part == "whole")]
            if rows:
                print(line(f"{treatment}, {part}", rows, name_worst=treatment in UNTOUCHED))
    for treatment in COPIES:
        rows = [record for record in records if record["treatment"] == treatment]
        print(f"{treatment:26}{100 * np.mean([bool(row['copied']) for row in rows]):13.1f} % found")


def line(title: str, rows: list[dict[str, object]], *, name_worst: bool) -> str:
    """One line of the table: mean over the sources of the share of cuts dropped, by check."""
    failed = judged(rows)
    shares = [by_source(rows, failed[name]) for name in (*SHOWN, "all")]
    worst = [source for source, share in sorted(shares[-1].items(), key=lambda item: -item[1]) if share > 0]
    named = "  " + ", ".join(source[:18] for source in worst[:5]) if name_worst else ""
    return f"{title:26}" + "".join(f"{100 * np.mean(list(s.values())):13.1f}" for s in shares) + named


def by_source(rows: list[dict[str, object]], failed: np.ndarray) -> dict[str, float]:
    """Source → share of its cuts that fail."""
    hits: dict[str, list[bool]] = {}
    for row, hit in zip(rows, failed.tolist(), strict=True):
        hits.setdefault(str(row["source"]), []).append(hit)
    return {source: float(np.mean(found)) for source, found in hits.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--crops", type=int, default=1, help="full-size crops of each picture, beside the whole")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    pictures(arguments.folders, arguments.crops, arguments.workers)


if __name__ == "__main__":
    main()
