"""The perceptual hash against imagehash, bit for bit."""

from __future__ import annotations

import imagehash
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from pipeline.demo.scenes import draw, sample_scene
from pipeline.phash import both_ways, hamming, hashes, phash, reduced


def reference(image: Image.Image) -> int:
    return int(str(imagehash.phash(image)), 16)


def _luma(image: Image.Image) -> np.ndarray:
    return np.asarray(image.convert("L"))


@settings(max_examples=60)
@given(seed=st.integers(0, 2**31), width=st.integers(8, 400), height=st.integers(8, 400), smooth=st.booleans())
def test_equals_imagehash_on_any_picture(seed: int, width: int, height: int, smooth: bool) -> None:
    rng = np.random.default_rng(seed)
    small = (max(1, width // 20), max(1, height // 20)) if smooth else (width, height)
    image = Image.fromarray(rng.integers(0, 256, (small[1], small[0], 3), np.uint8)).resize((width, height))
    assert phash(_luma(image)) == reference(image)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**31), width=st.integers(8, 400), height=st.integers(8, 400), smooth=st.booleans())
def test_of_the_mirror_image_too(seed: int, width: int, height: int, smooth: bool) -> None:
    rng = np.random.default_rng(seed)
    small = (max(2, width // 20), max(2, height // 20)) if smooth else (width, height)
    image = Image.fromarray(rng.integers(0, 256, (small[1], small[0], 3), np.uint8)).resize((width, height))
    assert both_ways(_luma(image)) == (reference(image), reference(ImageOps.mirror(image)))


def test_equals_imagehash_on_scenes() -> None:
    rng = np.random.default_rng(5)
    images = [draw(sample_scene(rng)) for _ in range(12)]
    assert [phash(_luma(image)) for image in images] == [reference(image) for image in images]
    together = hashes(np.stack([reduced(_luma(image)) for image in images]))
    assert together.tolist() == [reference(image) for image in images]


@pytest.mark.parametrize(("grey", "expected"), [(0, 0), (1, 0x8000000000000000), (255, 0x8000000000000000)])
def test_flat_pictures_collide(grey: int, expected: int) -> None:
    """Published behaviour of the hash; the reason why flat pictures are never matched by it."""
    assert phash(np.full((80, 100), grey, np.uint8)) == expected


def test_hamming_counts_bits() -> None:
    a = np.array([0, 0b1011, 2**64 - 1], np.uint64)
    b = np.array([0, 0b0110, 0], np.uint64)
    assert hamming(a, b).tolist() == [0, 3, 64]
