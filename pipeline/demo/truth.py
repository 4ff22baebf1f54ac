"""What is really true of every picture on the demo website. The pipeline never reads this; `demo-check` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import storage
from pipeline.errors import ManifestError

from .palette import Scene

FAULTS: dict[str, str] = {
    "exact_copy": "the same bytes at another address; strength 1",
    "reencoded_copy": "same size, other format or quality; strength = quality of the new file",
    "rescaled_copy": "resized and saved again; strength = new side over old side",
    "thumbnail": "tiny picture, half of them copies of larger ones; strength = shorter side, px",
    "heavy_jpeg": "crushed to JPEG quality 15 or less; strength = that quality",
    "blown_up": "enlarged from a tiny picture; strength = enlargement, 3 or more",
    "blurred": "Gaussian blur; strength = sigma in px with the longer side at 512, 3 or more",
    "blank": "flat or nearly flat; strength = standard deviation of its luma levels, 0 to 2",
    "sliver": "extreme aspect; strength = longer over shorter side, 3.5 or more",
    "truncated": "the end of the file is missing; strength = share of bytes that is left",
    "html_as_image": "an HTML page served as image/jpeg; strength 1",
    "not_found": "the address answers 404 or 410; strength = the status",
    "robots": "in a directory that robots.txt forbids; strength 1",
    "opt_out_page": "on a page whose robots meta tag says noai or noimageai; strength 1",
    "opt_out_header": "served with X-Robots-Tag noai or noimageai; strength 1",
    "filename_caption": "its only caption is a file name; strength 1",
    "wrong_caption": "captioned with another picture's words; strength = share of colours and shapes that are false",
}
"""Every planted fault: what it is, and the unit of its `strength`."""

LOOKALIKES: dict[str, str] = {
    "night": "a dim scene at night; not blank",
    "soft_focus": "soft-focus background, sharp subject; not blurred",
    "flat_art": "flat colours without any texture; not blank, not blown up",
    "fine_texture": "grainy or woven surface; not compression noise",
    "twin": "differs from another picture (`of`) in one attribute; not a copy",
    "panorama": "wide, 2 to 2.4 times; not a sliver",
    "small": "shorter side under 290 px but complete; not a thumbnail",
    "allowed": "under the forbidden directory, but expressly allowed by a longer rule; not forbidden",
    "other_directive": "X-Robots-Tag or robots meta that forbids something else; not an opt-out",
    "slow": "on a page or at an address that takes seconds to answer; not missing",
}
"""Innocent pictures that resemble a fault: what they are, and what they are not."""

IMPLIED: dict[str, tuple[str, ...]] = {
    # What holds no detail fails every test of detail, and rightly so.
    "blank": ("blurred", "blown_up"),
    # An enlargement is a blur, and a blur of 3 px or more holds no more than a picture a third its size.
    "blown_up": ("blurred",),
    "blurred": ("blown_up",),
}
"""Faults that another fault brings along by its nature; flagging them is not wrong."""


@dataclass(frozen=True)
class TruthRow:
    """The truth about the picture at one address.

    `faults` holds the planted fault and what it implies; `of` is the address of the original (copies) or of the twin;
    `family` is the address that all copies of one picture share: their original's.
    """

    url: str
    family: str
    fault: str | None = None
    strength: float | None = None
    lookalike: str | None = None
    of: str | None = None
    scene: Scene | None = None
    width: int | None = None
    height: int | None = None
    caption: str | None = None

    @property
    def faults(self) -> list[str]:
        return [] if self.fault is None else [self.fault, *IMPLIED.get(self.fault, ())]


SCHEMA = pa.schema(
    [
        ("url", pa.string()),
        ("fault", pa.string()),
        ("faults", pa.list_(pa.string())),
        ("strength", pa.float64()),
        ("lookalike", pa.string()),
        ("of", pa.string()),
        ("family", pa.string()),
        ("shapes", pa.int32()),
        ("colour", pa.string()),
        ("shape", pa.string()),
        ("size", pa.string()),
        ("position", pa.string()),
        ("second_colour", pa.string()),
        ("second_shape", pa.string()),
        ("background", pa.string()),
        ("background_kind", pa.string()),
        ("night", pa.bool_()),
        ("flat", pa.bool_()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("caption", pa.string()),
    ]
)
"""Columns of `truth.parquet`; `caption` is the canonical true one, null where there is no scene."""


def write_truth(path: str, rows: Sequence[TruthRow]) -> None:
    """Write the truth table, one row per address, atomically."""
    with storage.atomic_writer(path) as file:
        pq.write_table(pa.Table.from_pylist([_record(row) for row in rows], schema=SCHEMA), file)


def read_truth(path: str) -> pa.Table:
    """The truth table. Raises ManifestError when it is missing or unreadable."""
    if not storage.exists(path):
        raise ManifestError(f"no truth table at {path}", hint="only the demo has one: run `make curate` first")
    try:
        with storage.open_read(path) as file:
            return pq.read_table(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise ManifestError(
            f"{path} is damaged ({error})", hint="delete the folder it lies in and run again"
        ) from error


def _record(row: TruthRow) -> dict[str, Any]:
    record: dict[str, Any] = {
        name: getattr(row, name)
        for name in (
            "url",
            "fault",
            "faults",
            "strength",
            "lookalike",
            "of",
            "family",
            "width",
            "height",
            "caption",
        )
    }
    scene = row.scene
    if scene is not None:
        first, second = scene.shapes[0], scene.shapes[1] if len(scene.shapes) > 1 else None
        record |= {
            "shapes": len(scene.shapes),
            "colour": first.colour,
            "shape": first.kind,
            "size": first.size,
            "position": first.position,
            "second_colour": second.colour if second else None,
            "second_shape": second.kind if second else None,
            "background": scene.background,
            "background_kind": scene.background_kind,
            "night": scene.night,
            "flat": scene.flat,
        }
    return record
