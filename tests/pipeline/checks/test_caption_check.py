"""Which captions are weak: examples written down by hand."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.checks import registry

WEAK = [
    "", "   ", "IMG_2231.jpg", "DSC00042", "photo-2021-03-07.png", "P1000345.JPG", "untitled-4.webp",
    "20230412_183022", "https://example.org/a/b.jpg", "www.example.org/cat", "image", "Picture", "untitled",
    "thumbnail", "12", "-", "…", "Screenshot 3", "img 12.png",
]
GOOD = [
    "a red barn", "cat", "Kirche in Köln", "猫が寝ている", "a photo of a dog", "Boeing 747", "café au lait",
    "image of a cat", "The road to Mandalay, 1942", "new logo of the town hall", "rock'n'roll",
]


def fails(*captions: str | None, min_words: int = 1) -> bool:
    check = registry()["caption"]
    column = np.empty(1, object)
    column[0] = list(captions)
    pictures = np.array([b"picture"], object)
    settings = check.Settings(min_words=min_words)  # type: ignore[call-arg]
    verdict, _ = check.judge(check.find({"captions": column, "sha256": pictures}, settings), settings)
    assert verdict.reason == "weak_caption"
    return bool(verdict.failed[0])


@pytest.mark.parametrize("caption", WEAK)
def test_weak(caption: str) -> None:
    assert fails(caption)


@pytest.mark.parametrize("caption", GOOD)
def test_good(caption: str) -> None:
    assert not fails(caption)


def test_one_good_caption_is_enough_and_none_is_not() -> None:
    assert not fails("IMG_2231.jpg", "a red barn")
    assert fails("IMG_2231.jpg", "image")
    assert fails()
    assert fails(None)


def test_more_words_on_request() -> None:
    assert fails("cat", min_words=2)
    assert not fails("black cat", min_words=2)


def test_only_flagged_by_default() -> None:
    assert registry()["caption"].Settings().action == "flag"
