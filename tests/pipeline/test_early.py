"""Early exit: the header says what decoding would have said, and a moved threshold decodes what it lets in."""

from __future__ import annotations

import contextlib
import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from pipeline import checks
from pipeline.checks.base import CheckSettings
from pipeline.demo.scenes import draw, sample_scene
from pipeline.early import COLUMNS, HeaderRules
from pipeline.image import Unreadable, decode, upright_header
from pipeline.progress import Progress
from pipeline.recipe import from_dict
from pipeline.run import Run
from pipeline.stages import execute
from tests.pipeline import odd_files

FILES = [data for _, data in odd_files.whole()]


def _defaults(**changes: CheckSettings) -> dict[str, CheckSettings]:
    return {name: check.Settings() for name, check in checks.registry().items()} | changes


@pytest.mark.parametrize(("name", "data"), odd_files.whole(), ids=lambda value: value if isinstance(value, str) else "")
def test_a_header_says_what_decoding_says(name: str, data: bytes) -> None:
    header = upright_header(data)
    if header is not None:
        picture = decode(data)
        assert (header.width, header.height) == (picture.width, picture.height)
        assert (header.format, header.mode, header.frames) == (
            picture.header.format, picture.header.mode, picture.header.frames)
    common = name.split("-")[0] in ("JPEG", "PNG", "GIF", "BMP", "WEBP", "MPO")
    assert (header is not None) == common, "the common ones need no decoding"


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_damaged_header_is_unreadable_or_says_what_decoding_says(seed: int) -> None:
    data = odd_files.damaged(FILES, seed)
    try:
        picture = decode(data)
    except Unreadable:
        with contextlib.suppress(Unreadable):
            upright_header(data)
        return
    header = upright_header(data)
    assert header is None or (header.width, header.height) == (picture.width, picture.height)


def test_an_orientation_behind_the_pixels_is_left_to_the_decoder() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    chunk = b"eXIf" + exif.tobytes()[6:]
    buffer = io.BytesIO()
    Image.new("RGB", (90, 30)).save(buffer, "PNG")
    whole, end = buffer.getvalue()[:-12], buffer.getvalue()[-12:]
    late = whole + struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) + end
    assert (decode(late).width, decode(late).height) == (30, 90)
    assert upright_header(late) is None


def test_only_checks_that_drop_by_the_header_alone_are_asked() -> None:
    assert set(HeaderRules(_defaults()).basis()) == {"resolution", "aspect"}
    flagging = _defaults(resolution=checks.registry()["resolution"].Settings(action="flag"),
                         animated=checks.registry()["animated"].Settings(action="drop"))
    rules = HeaderRules(flagging)
    assert set(rules.basis()) == {"aspect", "animated"}
    facts = dict(zip(COLUMNS, ("GIF", "P", 20, 20, 1), strict=True))
    assert not rules.drops(facts)
    assert rules.drops({**facts, "frames": 2})
    assert rules.drops({**facts, "width": 61})


def _run(tmp_path: Path, **sections: Any) -> Run:
    raw = {"name": "early", "workdir": str(tmp_path), "engine": {"workers": 1}, "measure": {"early_exit": True},
           "ingest": {"sources": [{"kind": "folder", "name": "f", "path": str(tmp_path / "pictures")}]}}
    return Run(from_dict({**raw, **sections}), Progress(quiet=True))


def _decided(run: Run) -> dict[str, tuple[str, bool, str | None, float | None]]:
    """File name → decode outcome, kept, reason, value."""
    execute(run, ["ingest", "measure", "dedupe", "filter"])
    names = ["url", "decode_outcome", "kept", "reason", "value"]
    rows = run.manifests.joined(names, stages=("ingest", "measure", "filter")).arrow(names).to_pylist()
    return {row["url"].rsplit("/", 1)[1]: tuple(row[name] for name in names[1:]) for row in rows}  # type: ignore[misc]


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for seed, (name, size) in enumerate({"good": (320, 240), "small": (150, 140), "banner": (900, 210)}.items()):
        draw(sample_scene(np.random.default_rng(seed))).resize(size).save(folder / f"{name}.png")
    (folder / "small-twin.png").write_bytes((folder / "small.png").read_bytes())
    return tmp_path


def test_a_moved_threshold_decodes_what_it_lets_in_and_nothing_else(pictures: Path) -> None:
    strict = _decided(_run(pictures))
    small = ("header_only", False, "low_resolution", 140)
    assert strict == {
        "good.png": ("ok", True, None, None), "banner.png": ("header_only", False, "extreme_aspect", 900 / 210),
        "small.png": small, "small-twin.png": small,
    }
    loose = _decided(_run(pictures, filter={"resolution": {"min_side": 100}}))
    assert loose["banner.png"] == strict["banner.png"]
    assert loose["small.png"][:2] != loose["small-twin.png"][:2], "decoded now, they are copies, and one stays"
    assert {loose[name][0] for name in ("small.png", "small-twin.png")} == {"ok"}
    assert _decided(_run(pictures))["small.png"][0] == "ok", "what is measured stays measured"


def test_without_early_exit_what_only_a_header_was_read_of_is_decoded(pictures: Path) -> None:
    assert _decided(_run(pictures))["small.png"][0] == "header_only"
    everything = _decided(_run(pictures, measure={}))
    assert {outcome for outcome, *_ in everything.values()} == {"ok"}
    assert everything["small.png"][2] in ("low_resolution", "duplicate_bytes")
