"""Every check on pictures, against faults of known strength and innocent look-alikes of them."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageFilter

from pipeline import checks
from pipeline.checks.noise import noise_level
from pipeline.demo.scenes import Scene, draw, sample_scene
from pipeline.image import decode


def encoded(image: Image.Image, form: str = "JPEG", quality: int = 90) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, quality=quality)
    return buffer.getvalue()


def failing(data: bytes, captions: list[str] | None = None, **changes: Any) -> dict[str, Any]:
    """Check → reason of every check the picture fails by the default settings or `check__setting=value`."""
    picture = decode(data)
    row: dict[str, Any] = {"width": picture.width, "height": picture.height, "captions": captions or ["a red barn"],
                           "frames": picture.header.frames, "alpha_share": picture.alpha_share}
    for check in checks.measuring().values():
        row |= check.measure(picture)
    settings = {name: check.Settings() for name, check in checks.registry().items()}
    for key, value in changes.items():
        name, _, field = key.partition("__")
        settings[name] = type(settings[name])(**{field: value})
    table = pa.Table.from_pylist([{name: row.get(name) for name in checks.columns_read()}])
    return {one["check"]: one["reason"] for one in checks.verdicts(table, settings).failed().to_pylist()[0]}


def scene(seed: int, width: int = 600, height: int = 450) -> Scene:
    return replace(sample_scene(np.random.default_rng(seed)), width=width, height=height)


SEEDS = range(40, 48)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
def test_innocent_pictures_pass(seed: int, form: str) -> None:
    assert failing(encoded(draw(scene(seed)), form)) == {}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("sigma", [3, 5, 8])
def test_blurred(seed: int, sigma: float) -> None:
    image = draw(scene(seed))
    blurred = image.filter(ImageFilter.GaussianBlur(sigma * max(image.size) / 512))
    assert failing(encoded(blurred))["blur"] == "blurry"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("factor", [4, 6])
@pytest.mark.parametrize("way", ["BILINEAR", "BICUBIC", "LANCZOS"])
def test_blown_up(seed: int, factor: int, way: str) -> None:
    tiny = draw(scene(seed, 600 // factor, 450 // factor))
    found = failing(encoded(tiny.resize((600, 450), Image.Resampling[way])))
    assert found.get("blown_up") == "blown_up" or found.get("blur") == "blurry"


@pytest.mark.parametrize("quality", [3, 8, 15, 24])
def test_crushed(quality: int) -> None:
    assert failing(encoded(draw(scene(41)), "JPEG", quality))["compression"] == "heavy_compression"


@pytest.mark.parametrize("form", ["PNG", "WEBP", "JPEG"])
def test_crushed_and_saved_again(form: str) -> None:
    crushed = Image.open(io.BytesIO(encoded(draw(scene(12, 800, 600)), "JPEG", 8)))
    assert failing(encoded(crushed, form, 95))["compression"] == "heavy_compression"


def test_quality_25_is_enough() -> None:
    assert "compression" not in failing(encoded(draw(scene(41)), "JPEG", 25))
    assert "compression" in failing(encoded(draw(scene(41)), "JPEG", 25), compression__min_quality=26)


@pytest.mark.parametrize("colour", [(0, 0, 0), (255, 255, 255), (30, 90, 200)])
@pytest.mark.parametrize("noise", [0, 2])
def test_blank(colour: tuple[int, int, int], noise: float) -> None:
    pixels = np.random.default_rng(0).normal(colour, noise, (300, 400, 3))
    data = encoded(Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)), "PNG")
    assert failing(data)["blank"] == "blank"


def test_small_things_on_empty_ground_are_not_blank() -> None:
    """A dark night with one lit window, and a small logo on white."""
    for ground, thing in (((6, 6, 10), (60, 55, 30)), ((255, 255, 255), (200, 30, 30))):
        image = Image.new("RGB", (640, 480), ground)
        ImageDraw.Draw(image).rectangle((300, 200, 330, 240), fill=thing)
        assert "blank" not in failing(encoded(image))


@pytest.mark.parametrize(("size", "reason"), [((199, 400), "low_resolution"), ((200, 400), None),
                                              ((900, 60), "low_resolution")])
def test_resolution(size: tuple[int, int], reason: str | None) -> None:
    assert failing(encoded(draw(scene(41, *size)))).get("resolution") == reason


@pytest.mark.parametrize(("size", "reason"), [((750, 250), None), ((753, 250), "extreme_aspect"),
                                              ((250, 800), "extreme_aspect")])
def test_aspect(size: tuple[int, int], reason: str | None) -> None:
    assert failing(encoded(draw(scene(41, *size)))).get("aspect") == reason


def test_all_failed_checks_are_listed_the_plainest_first() -> None:
    found = failing(encoded(Image.new("RGB", (60, 900), (9, 9, 9)), "JPEG", 5), captions=["DSC00042.JPG"])
    assert list(found) == ["resolution", "aspect", "blank", "exposure", "compression", "colour", "caption"]


def test_a_sharp_subject_before_a_soft_background_passes() -> None:
    image = draw(scene(43))
    soft = image.filter(ImageFilter.GaussianBlur(8))
    box = (200, 140, 400, 320)
    subject = Image.fromarray(np.random.default_rng(1).integers(0, 2, (12, 13), np.uint8) * 200).resize(
        (200, 180), Image.Resampling.NEAREST).convert("RGB")
    soft.paste(subject, box)
    assert failing(encoded(soft)) == {}


@pytest.mark.parametrize(("factor", "reason"), [(1.0, None), (0.1, "too_dark")])
def test_dark(factor: float, reason: str | None) -> None:
    pixels = np.asarray(draw(scene(41)), np.float32) * factor
    assert failing(encoded(Image.fromarray(pixels.astype(np.uint8)), "PNG")).get("exposure") == reason


def test_a_night_with_lit_windows_is_not_too_dark() -> None:
    image = Image.new("RGB", (600, 400), (8, 8, 14))
    ImageDraw.Draw(image).rectangle((250, 150, 310, 210), fill=(240, 220, 120))  # 1.5 % of the picture
    assert "exposure" not in failing(encoded(image))


def test_bright_only_when_asked() -> None:
    pale = Image.fromarray((np.asarray(draw(scene(41)), np.float32) * 0.05 + 242).astype(np.uint8))
    assert "exposure" not in failing(encoded(pale, "PNG"))
    assert failing(encoded(pale, "PNG"), exposure__max_shadows=240)["exposure"] == "too_bright"


@pytest.mark.parametrize("seed", SEEDS)
def test_grey(seed: int) -> None:
    assert failing(encoded(draw(scene(seed)).convert("L")))["colour"] == "greyscale"


def test_one_red_boat_is_colour_enough() -> None:
    image = draw(scene(41)).convert("L").convert("RGB")
    ImageDraw.Draw(image).rectangle((100, 100, 200, 160), fill=(200, 30, 30))
    assert "colour" not in failing(encoded(image))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("tone", [0, 255])
@pytest.mark.parametrize("pillars", [False, True])
def test_bars(seed: int, tone: int, pillars: bool) -> None:
    noise = np.random.default_rng(seed).integers(60, 200, (12, 16, 3), np.uint8)
    inside = Image.fromarray(noise).resize((480, 360), Image.Resampling.BICUBIC)
    size, at = ((600, 360), (60, 0)) if pillars else ((480, 450), (0, 45))
    framed = Image.new("RGB", size, (tone, tone, tone))
    framed.paste(inside, at)
    assert failing(encoded(framed))["bars"] == "letterbox"
    measured = checks.registry()["bars"].measure(decode(encoded(framed)))
    expected = (0, 0, 60, 60) if pillars else (45, 45, 0, 0)
    for side, width in zip(("top", "bottom", "left", "right"), expected, strict=True):
        assert abs(measured[f"border_{side}"] - width) <= 1, side
    assert "bars" not in failing(encoded(inside))


def test_what_was_not_decoded_has_bars_of_no_known_share() -> None:
    borders = {f"border_{side}": np.array([value, np.nan, np.nan, 30.0])
               for side, value in (("top", 30.0), ("bottom", 30.0), ("left", 0.0), ("right", 0.0))}
    borders |= {"border_left": np.array([0, np.nan, np.nan, 0.0]), "border_right": np.array([0, np.nan, np.nan, 0.0])}
    sizes = {"width": np.array([200, np.nan, 200, 200.0]), "height": np.array([200, np.nan, 200, 200.0])}
    check = checks.registry()["bars"]
    verdict, = check.judge({**borders, **sizes}, check.Settings())
    assert verdict.failed.tolist() == [True, False, False, True]
    assert np.array_equal(verdict.value, [0.3, np.nan, np.nan, 0.3], equal_nan=True)


def test_a_subject_on_a_plain_ground_has_no_bars() -> None:
    image = Image.new("RGB", (600, 400), (240, 240, 240))
    ImageDraw.Draw(image).ellipse((200, 100, 400, 300), fill=(200, 30, 30))
    assert "bars" not in failing(encoded(image))
    sky = Image.fromarray(np.repeat(np.linspace(120, 250, 400).astype(np.uint8)[:, None], 600, 1)).convert("RGB")
    ImageDraw.Draw(sky).ellipse((200, 100, 400, 300), fill=(200, 30, 30))
    assert "bars" not in failing(encoded(sky))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("sigma", "noisy"), [(0, False), (6, False), (26, True), (40, True)])
def test_noise(seed: int, sigma: float, noisy: bool) -> None:
    pixels = np.asarray(draw(scene(seed)), np.float32)
    grain = np.random.default_rng(seed).normal(0, sigma, pixels.shape[:2])[..., None]
    found = failing(encoded(Image.fromarray(np.clip(pixels + grain, 0, 255).astype(np.uint8)), "PNG"))
    assert ("noise" in found) is noisy


@given(st.floats(1, 12), st.integers(0, 2**31))
def test_noise_reads_back_its_own_strength(sigma: float, seed: int) -> None:
    pixels = np.random.default_rng(seed).normal(128, sigma, (160, 160)).round().clip(1, 254).astype(np.uint8)
    assert noise_level(pixels) == pytest.approx(sigma, rel=0.2, abs=0.5)


def test_frames_and_transparency_are_noted() -> None:
    buffer = io.BytesIO()
    frames = [draw(scene(seed)) for seed in (41, 42)]
    frames[0].save(buffer, "WEBP", save_all=True, append_images=frames[1:], quality=90)
    assert failing(buffer.getvalue()) == {"animated": "animated"}
    cut_out = draw(scene(41)).convert("RGBA")
    cut_out.putalpha(Image.linear_gradient("L").resize(cut_out.size))
    assert failing(encoded(cut_out, "PNG"))["transparent"] == "transparent"
