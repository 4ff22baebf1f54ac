"""What lies beside a picture and speaks of it: captions, class and licence in texts and JSON objects."""

from __future__ import annotations

import json
from typing import Any

PICTURES = (
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".avif", ".heic", ".heif",
    ".jxl", ".jp2", ".svg", ".ico", ".psd", ".ppm", ".pgm", ".pbm", ".qoi",
)
"""Endings by which files and members are taken for pictures; what they are, their bytes say later."""

LABEL_KEYS = ("label", "class", "category")
LICENSE_KEYS = ("license_url", "license")
CAPTION_KEYS = ("caption", "captions", "text", "alt", "title", "description")


def json_object(data: bytes) -> dict[str, Any] | None:
    """A JSON object, or None for anything else."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def caption_lines(data: bytes) -> list[str]:
    """A caption per line."""
    return [line.strip() for line in data.decode("utf-8-sig", "replace").splitlines()]


def captions_in(values: dict[str, Any]) -> list[str]:
    """Captions of a JSON object by the keys that are usual, best first."""
    return [text for key in CAPTION_KEYS for text in texts_of(values.get(key))]


def text_of(value: Any) -> str | None:
    """A value as text; None for nothing, empty text and containers."""
    if value is None or value == "" or isinstance(value, (dict, list)):
        return None
    return str(value).strip() or None


def texts_of(value: Any) -> list[str]:
    """Captions in a value: one text or a list of them."""
    values = value if isinstance(value, list) else [value]
    return [text for each in values if (text := text_of(each)) is not None]


def first_of(values: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    """The first of these keys that holds a text."""
    return next((text for key in keys if (text := text_of(values.get(key))) is not None), None)
