"""`measure`: one decode per picture, every check's numbers, hashes for `dedupe`. No judgement."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field

from pipeline import checks, image, storage
from pipeline.errors import StorageError
from pipeline.image import Picture, Unreadable
from pipeline.memo import Holds
from pipeline.phash import hashes, reduced
from pipeline.receipt import JsonObject
from pipeline.rowstage import RowStage, Step, Worker
from pipeline.schema import MEASURE, TableSchema
from pipeline.settings import Settings

if TYPE_CHECKING:
    from pipeline.run import Run
    from pipeline.stage import Output

BYTES = ("sha256", "container", "offset", "length")

REASONS = {
    **image.UNREADABLE,
    "bytes_lost": "The bytes are no longer where `ingest` put or found them. They are looked for again on every run.",
    "check_failed": "A check stumbled over this picture; the detail names the check. That is a fault of the check: "
                    "please report it with the picture.",
}
"""Every outcome but `ok`, explained."""


class MeasureSettings(Settings):
    max_pixels: int = Field(
        200_000_000, ge=1, description="larger pictures are not decoded, width × height; the header is asked first"
    )
    chunk_rows: int = Field(256, ge=1, description="rows measured at a time: what a killed run may lose")


NO_MEMORY = "not enough memory to decode it"


class MeasureStage(RowStage):
    name: ClassVar[str] = "measure"
    inputs: ClassVar[tuple[str, ...]] = ("ingest",)
    counted: ClassVar[str | None] = "decode_outcome"

    def tables(self, run: Run) -> dict[str, TableSchema]:
        *fixed, value_key = MEASURE.columns
        return {"": TableSchema((*fixed, *checks.columns(), value_key))}

    def settings(self, run: Run) -> JsonObject:
        return {"max_pixels": run.recipe.measure.max_pixels}

    def fingerprints(self, run: Run) -> JsonObject:
        return {"decoders": image.versions(), "checks": {n: c.version for n, c in checks.registry().items()}}

    def holds(self, run: Run, output: Output) -> Holds | None:
        """What says nothing of the picture itself (its disk was away, memory was short) is never taken over."""
        return _of_the_picture

    def steps(self, run: Run) -> list[Step]:
        settings = run.recipe.measure
        return [Step(
            table="", values=self.tables(run)[""], namespace={**self.settings(run), **self.fingerprints(run)},
            reads=BYTES, key=("sha256",), wanted=_has_bytes, wanted_reads=("fetch_outcome",),
            worker=partial(_worker, settings.max_pixels), chunk_rows=settings.chunk_rows,
        )]


def _of_the_picture(values: pa.Table) -> NDArray[np.bool_]:
    pairs = zip(values.column("decode_outcome").to_pylist(), values.column("decode_detail").to_pylist(), strict=True)
    return np.array([outcome != "bytes_lost" and detail != NO_MEMORY for outcome, detail in pairs], bool)


def _has_bytes(rows: pa.Table) -> NDArray[np.bool_]:
    return np.array([outcome == "ok" for outcome in rows.column("fetch_outcome").to_pylist()], bool)


def _worker(max_pixels: int) -> Worker:
    return partial(measure_rows, max_pixels=max_pixels)


def measure_rows(rows: pa.Table, *, max_pixels: int) -> pa.Table:
    """One row of values per row of `BYTES`; a bad picture becomes an outcome."""
    values = [measure_one(*place, max_pixels=max_pixels) for place in zip(
        *(rows.column(name).to_pylist() for name in BYTES), strict=True)]
    names = [c.name for c in (*MEASURE.columns, *checks.columns()) if c.name not in ("id", "value_key")]
    types = {c.name: c.type for c in (*MEASURE.columns, *checks.columns())}
    return pa.table({name: pa.array([value.get(name) for value in values], types[name]) for name in names})


def measure_one(sha256: bytes, container: str, offset: int, length: int, *, max_pixels: int) -> dict[str, Any]:
    """All values of one picture."""
    try:
        data = storage.read_range(container, offset, length, sha256=sha256)
        picture = image.decode(data, max_pixels=max_pixels)
        return {"decode_outcome": "ok", **_facts(picture), **_numbers(picture)}
    except Unreadable as error:
        return {"decode_outcome": error.reason, "decode_detail": error.detail}
    except StorageError as error:
        return {"decode_outcome": "bytes_lost", "decode_detail": str(error)}
    except MemoryError:
        return {"decode_outcome": "too_many_pixels", "decode_detail": NO_MEMORY}


def _facts(picture: Picture) -> dict[str, Any]:
    header = picture.header
    return {
        "format": header.format, "mode": header.mode, "width": picture.width, "height": picture.height,
        "frames": header.frames, "alpha_share": picture.alpha_share, "pixel_digest": picture.digest(),
        "phash": int(hashes(reduced(picture.grey)[None])[0]), "thumb": thumb(picture),
    }


def _numbers(picture: Picture) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    for check_name, check in checks.registry().items():
        try:
            measured = check.measure(picture)
        except Exception as error:  # a check may come from anywhere; one odd picture must not end a long run
            where = f"{check_name}: {type(error).__name__}: {error}"
            return {"decode_outcome": "check_failed", "decode_detail": where}
        for name, value in measured.items():
            numbers[name] = None if np.isnan(value) else float(value)
    return numbers


def thumb(picture: Picture) -> bytes:
    """16 × 16 luma, then 8 × 8 Cb and Cr, uint8: the picture under a triangle filter, whatever its size.

    A box filter would not do: its cells' borders snap to whole pixels, which differ between two sizes of one picture.
    """
    coarse = picture.pil().resize((16, 16), Image.Resampling.BILINEAR, reducing_gap=4.0).convert("YCbCr")
    luma, *_ = coarse.split()
    _, blue, red = coarse.resize((8, 8), Image.Resampling.BILINEAR).split()
    return luma.tobytes() + blue.tobytes() + red.tobytes()
