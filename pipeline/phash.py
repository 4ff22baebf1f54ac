"""64-bit perceptual hash, bit for bit `imagehash.phash`.

Definition (imagehash 4.3, after Krawetz, "Looks like it", hackerfactor.com 2011): luma reduced to 32 × 32 by
Lanczos, DCT-II along both axes, the 8 × 8 lowest frequencies; bit = coefficient above their median, row by
row, the first bit most significant.

Of the picture mirrored left to right the same transform gives the hash too: reversing a row of N values turns
Σ x[n]·cos(π·k·(2n + 1) / 2N) into (−1)^k times itself, so that only the odd columns of coefficients change sign.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline import resample

SIDE = 32
LOW = 8
BITS = LOW * LOW
_MIRRORED = np.where(np.arange(LOW) % 2, -1.0, 1.0)


def phash(luma: NDArray[np.uint8]) -> int:
    """Hash of a picture's luma (H, W) at full size as an unsigned 64-bit number."""
    return int(hashes(reduced(luma)[None])[0])


def both_ways(luma: NDArray[np.uint8]) -> tuple[int, int]:
    """Hash of a picture's luma (H, W), and that of the picture mirrored left to right."""
    spectrum = _spectra(reduced(luma)[None])
    one, other = _hashed(np.concatenate([spectrum, spectrum * _MIRRORED])).tolist()
    return one, other


def reduced(luma: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The 32 × 32 luma that the hash is computed from; keep these to hash many pictures at once."""
    return resample.lanczos(luma, SIDE, SIDE)


def hashes(reduced_nhw: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """uint8 (n, 32, 32) → uint64 (n,)."""
    return _hashed(_spectra(reduced_nhw))


def _spectra(reduced_nhw: NDArray[np.uint8]) -> NDArray[np.float64]:
    """uint8 (n, 32, 32) → the lowest frequencies, (n, LOW, LOW)."""
    # fftpack, which imagehash calls, promotes uint8 to float64 as well; the transforms agree to the last bit.
    import scipy.fft  # slow to import, and few commands need it

    values = reduced_nhw.astype(np.float64)
    lowest: NDArray[np.float64] = scipy.fft.dct(scipy.fft.dct(values, axis=1)[:, :LOW], axis=2)[:, :, :LOW]
    return lowest


def _hashed(spectra: NDArray[np.float64]) -> NDArray[np.uint64]:
    spectrum = spectra.reshape(-1, BITS)
    middle = np.sort(spectrum, axis=1)[:, BITS // 2 - 1:BITS // 2 + 1]
    bits = spectrum > middle.mean(axis=1, keepdims=True)  # the median
    return np.packbits(bits, axis=1).view(">u8").astype(np.uint64).ravel()


def hamming(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """Number of bits in which two arrays of hashes differ, element by element."""
    return np.asarray(np.bitwise_count(a ^ b), np.uint8)
