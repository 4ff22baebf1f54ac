"""What bytes are, by how they begin: the only opinion that counts about a picture's type."""

from __future__ import annotations

import re

HEAD = 4096
"""How many leading bytes `sniff` wants; SVG may hide behind a long prologue."""

_STARTS: tuple[tuple[bytes, str, str], ...] = (
    (b"\xff\xd8\xff", "image/jpeg", "jpg"),
    (b"\x89PNG\r\n\x1a\n", "image/png", "png"),
    (b"GIF87a", "image/gif", "gif"),
    (b"GIF89a", "image/gif", "gif"),
    (b"II*\x00", "image/tiff", "tif"),
    (b"MM\x00*", "image/tiff", "tif"),
    (b"\x00\x00\x01\x00", "image/x-icon", "ico"),
    (b"\xff\x0a", "image/jxl", "jxl"),
    (b"\x00\x00\x00\x0cJXL \r\n\x87\n", "image/jxl", "jxl"),
    (b"\x00\x00\x00\x0cjP  \r\n\x87\n", "image/jp2", "jp2"),
    (b"8BPS\x00\x01", "image/vnd.adobe.photoshop", "psd"),
    (b"qoif", "image/qoi", "qoi"),
)
_FTYP = {
    b"avif": ("image/avif", "avif"), b"avis": ("image/avif", "avif"),
    b"heic": ("image/heic", "heic"), b"heix": ("image/heic", "heic"), b"hevc": ("image/heic", "heic"),
    b"mif1": ("image/heif", "heif"), b"msf1": ("image/heif", "heif"),
}
_SVG = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?.*?\?>\s*|<!--.*?-->\s*|<!DOCTYPE\s+svg\b[^>\[]*(?:\[.*?\]\s*)?>\s*)*"
    rb"<(?:[A-Za-z_][\w.-]*:)?svg[\s>]",
    re.DOTALL,
)
_PNM = re.compile(rb"P[1-6][\s#]")


def sniff(head: bytes) -> tuple[str, str] | None:
    """(media type, file ending) of a picture that begins with `head`, or None for anything else."""
    for start, media_type, ending in _STARTS:
        if head.startswith(start):
            return media_type, ending
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp", "webp"
    if head[4:8] == b"ftyp":
        brands = [head[8:12], *(head[at:at + 4] for at in range(16, min(len(head), 64), 4))]
        return next((_FTYP[brand] for brand in brands if brand in _FTYP), None)
    if head[:2] == b"BM" and head[6:10] == b"\x00\x00\x00\x00":  # two reserved words, always zero
        return "image/bmp", "bmp"
    if _SVG.match(head):
        return "image/svg+xml", "svg"
    if _PNM.match(head):
        return "image/x-portable-anymap", "pnm"
    return None
