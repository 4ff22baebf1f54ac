"""`measure`: one decode per picture, every check's numbers, hashes for `dedupe`. No judgement."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field

from pipeline import checks, image, storage
from pipeline.checks.base import CheckSettings
from pipeline.early import COLUMNS, HeaderRules
from pipeline.edges import edge_sharpness
from pipeline.errors import StorageError
from pipeline.image import Picture, Unreadable
from pipeline.memo import Holds
from pipeline.phash import both_ways
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
    "decoder_died": "Its decoder crashed, twice in a process of its own, or took more than measure.deadline_s of "
                    "processor time. The file is damaged or made to do harm; raise the deadline for giants.",
    "header_only": "A check dropped it by its header, so the pixels were not decoded (measure.early_exit), but "
                   "`filter` has run with other thresholds since. Run `curate measure` again.",
    "check_failed": "A check stumbled over this picture; the detail names the check. That is a fault of the check: "
                    "please report it with the picture.",
}
"""Every outcome but `ok`, explained."""


class MeasureSettings(Settings):
    max_pixels: int = Field(
        200_000_000, ge=1, description="larger pictures are not decoded, width × height; the header is asked first"
    )
    deadline_s: float = Field(
        120.0, gt=0, description="longest time for one picture, seconds of the processor, not of the clock; what takes "
        "longer hangs, and is dropped"
    )
    early_exit: bool = Field(
        False, description="do not decode what a check drops by the size in its header (resolution, aspect): quicker, "
        "but such pictures show no other faults, are no copies of others, and their captions go to nobody"
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

    def check(self, run: Run) -> None:
        """Raises ModelError where a check that is on needs what is not installed."""
        for check in checks.measuring(run.recipe.checks).values():
            check.ready()

    def settings(self, run: Run) -> JsonObject:
        rules = _rules(run)
        early = {} if rules is None else {"early_exit": rules.basis()}
        return {**run.recipe.measure.model_dump(mode="json", include={"max_pixels", "deadline_s"}), **early}

    def fingerprints(self, run: Run) -> JsonObject:
        return {"decoders": image.versions(), "checks": {
            name: check.fingerprint() for name, check in checks.measuring(run.recipe.checks).items()
            if check.columns}}

    def holds(self, run: Run, output: Output) -> Holds | None:
        """What says nothing of the picture itself (its disk was away, memory was short) is never taken over, nor is
        a failure that another deadline may explain, nor a header alone unless a check drops the picture by it."""
        before = None if output.previous is None else output.previous.basis["settings"].get("deadline_s")
        return partial(_of_the_picture, same_deadline=before == run.recipe.measure.deadline_s,
                       rules=_rules(run))

    def steps(self, run: Run) -> list[Step]:
        settings = run.recipe.measure
        return [Step(
            table="", values=self.tables(run)[""],
            namespace={"max_pixels": settings.max_pixels, **self.fingerprints(run)},
            reads=BYTES, key=("sha256",), wanted=_has_bytes, wanted_reads=("fetch_outcome",),
            worker=partial(_worker, settings.max_pixels, settings.deadline_s, _rules(run), run.recipe.checks),
            chunk_rows=settings.chunk_rows, fallen=_fallen,
        )]


def _rules(run: Run) -> HeaderRules | None:
    return HeaderRules(run.recipe.checks) if run.recipe.measure.early_exit else None


def _of_the_picture(values: pa.Table, *, same_deadline: bool, rules: HeaderRules | None) -> NDArray[np.bool_]:
    outcomes = values.column("decode_outcome").to_pylist()
    pairs = zip(outcomes, values.column("decode_detail").to_pylist(), strict=True)
    held = np.array([outcome != "bytes_lost" and detail != NO_MEMORY and (same_deadline or outcome != "decoder_died")
                     for outcome, detail in pairs], bool)
    dropped = np.zeros(len(held), bool) if rules is None else rules.still_dropped(values)
    decoded = np.array([outcome != "header_only" for outcome in outcomes], bool)
    taken_over: NDArray[np.bool_] = held & (dropped | decoded)
    return taken_over


def _has_bytes(rows: pa.Table) -> NDArray[np.bool_]:
    return np.array([outcome == "ok" for outcome in rows.column("fetch_outcome").to_pylist()], bool)


def _worker(max_pixels: int, deadline_s: float, rules: HeaderRules | None = None,
            settings: Mapping[str, CheckSettings] | None = None) -> Worker:
    """For a process of its own, which ends when one picture takes more than `deadline_s` of processor time.

    The system's timer, since a codec that hangs does not let Python run. Processor time, since on a busy machine the
    same pictures must come to the same end.
    """
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # which ends the process
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # libtiff complains of every damaged file there
    warm_up(settings)

    def work(rows: pa.Table) -> pa.Table:
        try:
            return measure_rows(rows, max_pixels=max_pixels, rules=rules, settings=settings,
                                before_each=partial(signal.setitimer, signal.ITIMER_PROF, deadline_s))
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    return work


def warm_up(settings: Mapping[str, CheckSettings] | None = None) -> None:
    """Load what measuring under these settings needs, and compile it where this machine has not done so yet: seconds
    that no picture is to blame for."""
    noise = np.random.default_rng(0).integers(0, 256, (600, 600, 3), np.uint8)
    tall = np.zeros((64 * 258, 1, 3), np.uint8)  # whose averages are added up in 32 bits
    for pixels in (noise, tall):
        for writeable in (True, False):  # simplejpeg's arrays, and Pillow's
            pixels.flags.writeable = writeable
            picture = Picture(pixels, image.Header("PNG", "RGB", pixels.shape[1], pixels.shape[0]))
            _facts(picture)
            _numbers(picture, settings)
    edge_sharpness(noise[..., 0].astype(np.uint16), unit=4)  # as `blur` asks of soft pictures


def _fallen(rows: pa.Table) -> pa.Table:
    return _table([{"decode_outcome": "decoder_died", "decode_detail": "the worker process ended"}] * rows.num_rows)


def measure_rows(rows: pa.Table, *, max_pixels: int, rules: HeaderRules | None = None,
                 settings: Mapping[str, CheckSettings] | None = None,
                 before_each: Callable[[], object] = lambda: None) -> pa.Table:
    """One row of values per row of `BYTES`; a bad picture becomes an outcome. `rules` make the early exits, `settings`
    say which costly checks measure."""
    values = []
    for place in zip(*(rows.column(name).to_pylist() for name in BYTES), strict=True):
        before_each()
        values.append(measure_one(*place, max_pixels=max_pixels, rules=rules, settings=settings))
    return _table(values)


def _table(values: Sequence[Mapping[str, Any]]) -> pa.Table:
    names = [c.name for c in (*MEASURE.columns, *checks.columns()) if c.name not in ("id", "value_key")]
    types = {c.name: c.type for c in (*MEASURE.columns, *checks.columns())}
    return pa.table({name: pa.array([value.get(name) for value in values], types[name]) for name in names})


def measure_one(sha256: bytes, container: str, offset: int, length: int, *, max_pixels: int,
                rules: HeaderRules | None = None, settings: Mapping[str, CheckSettings] | None = None,
                ) -> dict[str, Any]:
    """All values of one picture, or only those of its header where `rules` drop it by them."""
    try:
        data = storage.read_range(container, offset, length, sha256=sha256)
        if rules is not None and (facts := _header_facts(data, max_pixels)) is not None and rules.drops(facts):
            return {"decode_outcome": "header_only", **facts}
        picture = image.decode(data, max_pixels=max_pixels)
        return {"decode_outcome": "ok", **_facts(picture), **_numbers(picture, settings)}
    except Unreadable as error:
        return {"decode_outcome": error.reason, "decode_detail": error.detail}
    except StorageError as error:
        return {"decode_outcome": "bytes_lost", "decode_detail": str(error)}
    except MemoryError:
        return {"decode_outcome": "too_many_pixels", "decode_detail": NO_MEMORY}


def _header_facts(data: bytes, max_pixels: int) -> dict[str, Any] | None:
    """What `_facts` will say of format, mode, size and frames; None where only decoding tells, or the cap."""
    header = image.upright_header(data)
    if header is None or not 0 < header.width * header.height <= max_pixels:
        return None
    return {name: getattr(header, name) for name in COLUMNS}


def _facts(picture: Picture) -> dict[str, Any]:
    header = picture.header
    phash, phash_mirrored = both_ways(picture.levels)
    return {
        "format": header.format, "mode": header.mode, "width": picture.width, "height": picture.height,
        "frames": header.frames, "alpha_share": picture.alpha_share, "pixel_digest": picture.digest(),
        "phash": phash, "phash_mirrored": phash_mirrored, "thumb": thumb(picture),
    }


def _numbers(picture: Picture, settings: Mapping[str, CheckSettings] | None = None) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    for check_name, check in checks.measuring(settings).items():
        try:
            measured = check.measure(picture)
        except Exception as error:  # a check may come from anywhere; one odd picture must not end a long run
            where = f"{check_name}: {type(error).__name__}: {error}"
            return {"decode_outcome": "check_failed", "decode_detail": where}
        for name, value in measured.items():
            numbers[name] = None if math.isnan(value) else float(value)
    return numbers


def thumb(picture: Picture) -> bytes:
    """16 × 16 luma, then 8 × 8 Cb and Cr, uint8: the picture under a triangle filter, whatever its size.

    A box filter would not do: its cells' borders snap to whole pixels, which differ between two sizes of one picture.
    """
    coarse = picture.shrunk(16, 16, Image.Resampling.BILINEAR).convert("YCbCr")
    luma, *_ = coarse.split()
    _, blue, red = coarse.resize((8, 8), Image.Resampling.BILINEAR).split()
    return luma.tobytes() + blue.tobytes() + red.tobytes()
