"""Types by magic bytes, against pictures that Pillow writes."""

from __future__ import annotations

import io

import pytest
from PIL import Image, features

from pipeline.ingest.magic import sniff

WRITTEN = {
    "JPEG": ("image/jpeg", "jpg"), "PNG": ("image/png", "png"), "GIF": ("image/gif", "gif"),
    "WEBP": ("image/webp", "webp"), "BMP": ("image/bmp", "bmp"), "TIFF": ("image/tiff", "tif"),
    "ICO": ("image/x-icon", "ico"), "PPM": ("image/x-portable-anymap", "pnm"), "JPEG2000": ("image/jp2", "jp2"),
    "AVIF": ("image/avif", "avif"),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_pillow_writes(name: str) -> None:
    if name not in Image.registered_extensions().values() or (name == "AVIF" and not features.check("avif")):
        pytest.skip(f"this Pillow writes no {name}")
    buffer = io.BytesIO()
    try:
        Image.new("RGB", (32, 32), "red").save(buffer, name)
    except (KeyError, OSError):
        pytest.skip(f"this Pillow writes no {name}")
    assert sniff(buffer.getvalue()) == WRITTEN[name]


@pytest.mark.parametrize("text", [
    "<svg xmlns='http://www.w3.org/2000/svg'/>", "\ufeff<?xml version='1.0'?>\n<svg width='1'>",
    "<?xml version='1.0'?><!-- made by hand --><!DOCTYPE svg PUBLIC '-//W3C//DTD SVG 1.1//EN' 'x.dtd'>\n<svg >",
    "<!DOCTYPE svg [ <!ENTITY ns 'x'> ]><svg:svg xmlns:svg='x'>",
])
def test_svg(text: str) -> None:
    assert sniff(text.encode()) == ("image/svg+xml", "svg")


@pytest.mark.parametrize("head", [
    b"", b"\xff\xd8", b"<!DOCTYPE html><svg>", b"<html><body><svg></svg>", b"PNG", b"RIFF\0\0\0\0WAVE", b"%PDF-1.7",
    b"BMW is a car maker", b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom", b"hello", b"<?xml version='1.0'?><rss>",
    b"\x1f\x8b\x08",
])
def test_no_picture(head: bytes) -> None:
    assert sniff(head) is None
