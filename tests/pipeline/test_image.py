"""The canonical picture: orientation, colour, depth, transparency, and files that are no pictures."""

from __future__ import annotations

import gzip
import io
import struct
import zlib

import numpy as np
import pytest
import simplejpeg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms, ImageFile

from pipeline.colour import scaled
from pipeline.image import UNREADABLE, VIEWING_SIDE, Unreadable, decode, read_header

SIZE = (40, 24)


def scene(mode: str = "RGB") -> Image.Image:
    """Four quadrants of different colours, with a ramp so that no two rows are equal."""
    rgb = np.zeros((SIZE[1], SIZE[0], 3), np.uint8)
    rgb[:12, :20], rgb[:12, 20:], rgb[12:, :20], rgb[12:, 20:] = (200, 30, 30), (30, 200, 30), (30, 30, 200), (240,) * 3
    rgb[..., 0] = np.clip(rgb[..., 0] + np.arange(24)[:, None], 0, 255)
    return Image.fromarray(rgb).quantize(64) if mode == "P" else Image.fromarray(rgb).convert(mode)


def saved(image: Image.Image, form: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def reason(data: bytes, **options: int) -> str:
    with pytest.raises(Unreadable) as caught:
        decode(data, **options)
    assert caught.value.reason in UNREADABLE
    return caught.value.reason


@pytest.mark.parametrize("form", ["PNG", "BMP", "TIFF", "GIF", "WEBP", "JPEG", "AVIF", "JPEG2000", "PPM"])
def test_every_format_gives_the_same_picture(form: str) -> None:
    options = {"lossless": True} if form == "WEBP" else {"quality": 100, "subsampling": 0} if form == "JPEG" else (
        {"quality": 100, "subsampling": "4:4:4"} if form == "AVIF" else {})
    picture = decode(saved(scene(), form, **options))
    assert (picture.width, picture.height) == SIZE
    assert picture.header.format == form
    assert picture.rgb.shape == (SIZE[1], SIZE[0], 3)
    assert np.abs(picture.rgb.astype(int) - np.asarray(scene())).mean() < 3


# What a viewer must do for each EXIF value (TIFF 6.0, tag 274) to the stored pixels, told by numpy.
UPRIGHT = {
    1: lambda a: a, 2: lambda a: a[:, ::-1], 3: lambda a: a[::-1, ::-1], 4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1), 6: lambda a: np.rot90(a, -1), 7: lambda a: np.rot90(a, 2).swapaxes(0, 1),
    8: lambda a: np.rot90(a, 1),
}


@pytest.mark.parametrize("value", sorted(UPRIGHT))
@pytest.mark.parametrize("form", ["PNG", "TIFF", "WEBP"])
def test_exif_orientation_is_applied(value: int, form: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = value
    options = {"lossless": True} if form == "WEBP" else {}
    picture = decode(saved(scene(), form, exif=exif, **options))
    expected = UPRIGHT[value](np.asarray(scene()))
    assert (picture.height, picture.width) == expected.shape[:2]
    np.testing.assert_array_equal(picture.rgb, expected)


def test_damaged_exif_is_ignored() -> None:
    data = saved(scene(), "JPEG", exif=b"Exif\x00\x00II*\x00\xff\xff\xff\xff", quality=100)
    assert (decode(data).width, decode(data).height) == SIZE


def test_an_embedded_profile_is_honoured() -> None:
    """A profile whose primaries are swapped must swap the colours; sRGB must change nothing."""
    plain = decode(saved(scene(), "PNG")).rgb
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    np.testing.assert_array_equal(decode(saved(scene(), "PNG", icc_profile=srgb)).rgb, plain)
    swapped = srgb.replace(b"rXYZ", b"tmpX").replace(b"bXYZ", b"rXYZ").replace(b"tmpX", b"bXYZ")
    swapped = swapped.replace(b"s\x00R\x00G\x00B", b"x\x00R\x00G\x00B").replace(b"sRGB", b"xRGB")
    turned = decode(saved(scene(), "PNG", icc_profile=swapped)).rgb.astype(int)
    assert np.abs(turned[..., ::-1] - plain).max() <= 3


def test_a_broken_profile_is_ignored() -> None:
    plain = decode(saved(scene(), "PNG")).rgb
    np.testing.assert_array_equal(decode(saved(scene(), "PNG", icc_profile=b"no profile")).rgb, plain)


def test_cmyk_jpeg_has_the_colours_it_was_made_of() -> None:
    picture = decode(saved(scene("CMYK"), "JPEG", quality=100))
    assert picture.header.mode == "CMYK"
    assert np.abs(picture.rgb.astype(int) - np.asarray(scene())).mean() < 3


def test_sixteen_bit_grey_is_scaled_not_clipped() -> None:
    ramp = np.linspace(0, 65535, 256).astype(np.uint16)[None].repeat(8, 0)
    for form in ("PNG", "TIFF"):
        grey = decode(saved(Image.fromarray(ramp), form)).rgb[0, :, 0]
        np.testing.assert_allclose(grey, np.arange(256), atol=1)


@given(st.sampled_from(["u2", "i4", "f4"]), st.integers(0, 2**32 - 1), st.sampled_from([1.0, 255.0, 65535.0, 3e6]),
       st.sampled_from([0.0, -1000.0]))
def test_greys_of_any_depth_are_scaled_as_their_range_says(kind: str, seed: int, top: float, bottom: float) -> None:
    """The definition, all at once; the decoder does it in blocks and by a table."""
    values = np.random.default_rng(seed).uniform(bottom, top, (700, 3)).astype(kind)
    numbers = values.astype(np.float64)
    low, high = numbers.min(), numbers.max()
    full = 65535.0 if kind == "u2" else high - low if low < 0 or high > 65535 else \
        1.0 if high <= 1 and kind == "f4" else 255.0 if high <= 255 else 65535.0
    low = low if kind != "u2" and (low < 0 or high > 65535) else 0.0
    expected = np.clip(np.rint((numbers - low) * (255.0 / max(full, 1e-12))), 0, 255).astype(np.uint8)
    assert (scaled(values, sixteen_bit=kind == "u2") == expected).all()


def test_floating_point_greys_of_both_scales() -> None:
    ramp = np.linspace(0, 1, 256, dtype=np.float32)[None].repeat(8, 0)
    for scale in (1, 255):
        grey = decode(saved(Image.fromarray(ramp * scale), "TIFF")).rgb[0, :, 0]
        np.testing.assert_allclose(grey, np.arange(256), atol=1)


@pytest.mark.parametrize("mode", ["1", "L", "P", "LAB", "YCbCr", "I;16", "LA"])
def test_every_mode_becomes_rgb(mode: str) -> None:
    form = {"LAB": "TIFF", "YCbCr": "TIFF"}.get(mode, "PNG")
    source = Image.fromarray(np.zeros((24, 40), np.uint16)) if mode == "I;16" else (
        ImageCms.profileToProfile(scene(), ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB"),
                                  outputMode="LAB") if mode == "LAB" else scene(mode))
    assert source is not None
    picture = decode(saved(source, form))
    assert picture.rgb.shape == (24, 40, 3)
    if mode in ("P", "LAB", "YCbCr"):
        assert np.abs(picture.rgb.astype(int) - np.asarray(scene())).mean() < 6


def test_transparency_is_composited_on_white() -> None:
    image = scene("RGBA")
    alpha = np.full((24, 40), 255, np.uint8)
    alpha[:12], alpha[12:18] = 0, 128
    image.putalpha(Image.fromarray(alpha))
    picture = decode(saved(image, "PNG"))
    assert picture.alpha_share == pytest.approx(18 / 24)
    assert (picture.rgb[:12] == 255).all()
    half = np.asarray(scene()).astype(int)[12:18]
    np.testing.assert_allclose(picture.rgb[12:18], half * 128 / 255 + 127, atol=1.5)
    np.testing.assert_array_equal(picture.rgb[18:], np.asarray(scene())[18:])


def test_palette_with_a_transparent_colour() -> None:
    image = scene("P")
    background = image.getpixel((30, 20))
    picture = decode(saved(image, "PNG", transparency=background))
    assert 0 < picture.alpha_share < 1
    assert (picture.rgb[20, 30] == 255).all()


def test_the_first_frame_of_an_animation() -> None:
    frames = [scene(), Image.new("RGB", SIZE, (0, 0, 0)), Image.new("RGB", SIZE, (9, 9, 9))]
    data = saved(frames[0], "WEBP", save_all=True, append_images=frames[1:], lossless=True)
    picture = decode(data)
    assert picture.header.frames == 3
    np.testing.assert_array_equal(picture.rgb, np.asarray(scene()))


def test_views() -> None:
    big = Image.new("RGB", (1300, 650), (255, 0, 0))
    picture = decode(saved(big, "PNG"))
    assert picture.viewing.shape == (VIEWING_SIDE // 2, VIEWING_SIDE)
    np.testing.assert_allclose(picture.levels, 0.299 * 255, atol=0.5)  # Rec. 601
    small = decode(saved(scene(), "PNG"))
    assert small.viewing.shape == (24, 40), "smaller pictures are never enlarged"
    assert small.small.shape == (32, 32, 3)


def test_the_digest_covers_pixels_and_shape() -> None:
    red = (255, 0, 0)
    one, other = (decode(saved(Image.new("RGB", size, red), "PNG")) for size in ((100, 200), (200, 100)))
    assert one.digest() != other.digest()
    assert one.digest() == decode(saved(Image.new("RGB", (100, 200), red), "BMP")).digest()


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "GIF", "TIFF"])
@pytest.mark.parametrize("decile", range(1, 10))
def test_truncated_files_are_never_half_pictures(form: str, decile: int) -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 96, 3), np.uint8))
    data = saved(noise, form)
    assert reason(data[:len(data) * decile // 10]) in ("truncated", "corrupt", "not_an_image")


def test_a_global_switch_does_not_let_half_pictures_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    data = saved(scene().resize((400, 300)), "JPEG")
    assert reason(data[:len(data) // 2]) == "truncated"
    assert ImageFile.LOAD_TRUNCATED_IMAGES is True, "and the switch is as it was"


def test_what_is_no_picture() -> None:
    assert reason(b"") == "empty"
    assert reason(b"<!DOCTYPE html><html><body>Please sign in</body></html>") == "not_an_image"
    assert reason(b"%PDF-1.4 ...") == "not_an_image"
    assert reason(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n") == "not_an_image"
    assert reason(b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic") == "needs_extra"
    assert reason(b"\xff\x0a\xfa\x7f") == "needs_extra"


def png_of(width: int, height: int, depth: int = 8) -> bytes:
    """A PNG header that announces any size, with next to no data: a decompression bomb's calling card."""
    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, depth, 2, 0, 0, 0)
    chunks = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(bytes(64))), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def test_too_many_pixels_are_refused_from_the_header() -> None:
    assert reason(png_of(100_000, 100_000)) == "too_many_pixels"
    assert reason(saved(scene(), "PNG"), max_pixels=40 * 24 - 1) == "too_many_pixels"
    assert decode(saved(scene(), "PNG"), max_pixels=40 * 24).width == 40


def test_the_header_tells_without_decoding() -> None:
    header = read_header(png_of(90_000, 10))
    assert (header.format, header.width, header.height, header.lossless) == ("PNG", 90_000, 10, True)
    jpeg = read_header(saved(scene(), "JPEG", quality=50))
    assert jpeg.quantisation[0][:8] == (16, 11, 10, 16, 24, 40, 51, 61), "T.81 table K.1, first row"
    assert jpeg.lossless is False
    assert read_header(saved(scene(), "WEBP", lossless=True)).lossless is True


SVG = (b'<?xml version="1.0"?>\n<!-- drawn by hand -->\n<svg xmlns="http://www.w3.org/2000/svg" '
       b'xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 72 36">'
       b'<rect width="36" height="36" fill="#ff0000"/>%s</svg>')


def test_svg_is_drawn_on_white() -> None:
    picture = decode(SVG % b"")
    assert (picture.width, picture.height) == (512, 256)
    assert tuple(picture.rgb[128, 100]) == (255, 0, 0)
    assert tuple(picture.rgb[128, 450]) == (255, 255, 255)
    assert picture.alpha_share == pytest.approx(0.5, abs=0.01)
    assert decode(gzip.compress(SVG % b"")).digest() == picture.digest()


def test_svg_reads_nothing_outside_itself(tmp_path: object) -> None:
    outside = f"{tmp_path}/secret.png"
    Image.new("RGB", (8, 8), (0, 0, 255)).save(outside)
    for name in (b"href", b"xlink:href"):
        link = b'<image %s="%s" x="36" width="36" height="36"/>' % (name, outside.encode())
        assert decode(SVG % link).digest() == decode(SVG % b"").digest()


def test_broken_svg_is_corrupt() -> None:
    assert reason(b'<svg xmlns="http://www.w3.org/2000/svg"><rect') == "corrupt"


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(form=st.sampled_from(["JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP"]), data=st.data())
def test_mutated_files_are_pictures_or_rows_with_a_reason(form: str, data: st.DataObject) -> None:
    original = bytearray(saved(scene(), form))
    for _ in range(data.draw(st.integers(1, 8))):
        original[data.draw(st.integers(0, len(original) - 1))] = data.draw(st.integers(0, 255))
    outcome = "ok"
    try:
        decode(bytes(original), max_pixels=1_000_000)
    except Unreadable as error:
        outcome = error.reason
    assert outcome == "ok" or outcome in UNREADABLE


@pytest.mark.parametrize("chroma", [0, 1, 2, "440", "411", "L"])
@pytest.mark.parametrize("options", [{"quality": 3}, {"quality": 85, "progressive": True}, {"quality": 100}])
def test_a_plain_jpeg_has_the_pixels_that_pillow_decodes(chroma: int | str, options: dict[str, int]) -> None:
    rng = np.random.default_rng(3)
    for width, height in ((1, 1), (17, 31), (64, 48), (333, 250)):
        pixels = rng.integers(0, 256, (height // 4 + 1, width // 4 + 1, 3), np.uint8)
        image = Image.fromarray(pixels).resize((width, height))
        if isinstance(chroma, int):
            data = saved(image, "JPEG", subsampling=chroma, **options)
        elif chroma == "L":
            data = saved(image.convert("L"), "JPEG", **options)
        else:
            data = simplejpeg.encode_jpeg(np.array(image), options["quality"], colorsubsampling=chroma)
        decoded = decode(data)
        assert decoded._canonical.flags.owndata  # by simplejpeg, not Pillow's buffer
        np.testing.assert_array_equal(decoded.rgb, np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))
