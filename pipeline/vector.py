"""SVG → pixels, by the extra `svg` (resvg). A drawing has no pixels of its own, so its size is ours to choose."""

from __future__ import annotations

import gzip
import re
import zlib

RASTER_SIDE = 512
"""Longer side in pixels. Resvg keeps the drawing's own aspect."""

_MOST_TEXT = 32 << 20
_OPENING = re.compile(
    rb"^\s*(?:<\?xml[^>]*\?>\s*|<!--.*?-->\s*|<!DOCTYPE[^>\[]*(?:\[.*?\])?[^>]*>\s*)*"
    rb"<(?:\w+:)?svg[\s>/]", re.DOTALL | re.IGNORECASE)
_REFERENCE = re.compile(r"""((?:xlink:)?href|src)(\s*=\s*)(["'])(?!\s*(?:#|data:))[^"']*\3""", re.IGNORECASE)
_SIZE = re.compile(r"""<(?:\w+:)?svg\b[^>]*>""", re.DOTALL | re.IGNORECASE)


def versions() -> dict[str, str]:
    """Version of the rasteriser, or an empty dict where it is not installed."""
    try:
        import resvg_py
    except ImportError:
        return {}
    return {"resvg": str(getattr(resvg_py, "__resvg_version__", resvg_py.__version__))}


def is_svg(data: bytes) -> bool:
    """Whether the bytes begin as an SVG document (plain or gzipped), by content and never by name."""
    if data[:2] == b"\x1f\x8b":
        data = _unzipped(data, 1 << 16)
    head = data[:1 << 16].removeprefix(b"\xef\xbb\xbf")
    return head.lstrip()[:1] == b"<" and b"svg" in head.lower() and _OPENING.match(head) is not None


def rasterise(data: bytes, *, max_pixels: int) -> bytes:
    """PNG bytes with the longer side RASTER_SIDE, smaller where `max_pixels` demands.

    Nothing outside the document is read: references to other files and addresses are taken out.
    Raises ImportError without the extra, ValueError when the document is broken.
    """
    import resvg_py

    if data[:2] == b"\x1f\x8b":
        data = _unzipped(data, _MOST_TEXT)
    text = _REFERENCE.sub(r'\1\2\3\3', data.decode("utf-8", errors="replace").removeprefix("\ufeff"))
    side = min(RASTER_SIDE, int(max_pixels**0.5))
    wide = _is_wide(text)
    made = resvg_py.svg_to_bytes(svg_string=text, skip_system_fonts=False, width=side if wide else None,
                                 height=None if wide else side)
    return bytes(made)


def _is_wide(text: str) -> bool:
    """Whether the drawing is at least as wide as high, by viewBox or else by width and height."""
    opening = _SIZE.search(text)
    tag = opening.group(0) if opening else ""
    box = re.search(r"""viewBox\s*=\s*["']([^"']+)["']""", tag)
    numbers = [float(n) for n in re.findall(r"[-+]?\d*\.?\d+(?:[eE][-+]?\d+)?", box.group(1))] if box else []
    sides = [re.search(rf"""\b{name}\s*=\s*["']\s*([\d.]+)""", tag) for name in ("width", "height")]
    if sides[0] and sides[1]:
        return float(sides[0].group(1)) >= float(sides[1].group(1))
    return len(numbers) != 4 or numbers[2] >= numbers[3]


def _unzipped(data: bytes, most: int) -> bytes:
    """At most `most` bytes of a gzip stream; b"" when it is none."""
    try:
        return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(data, most)
    except (zlib.error, gzip.BadGzipFile):
        return b""
