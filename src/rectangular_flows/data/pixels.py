r"""Between bytes and the continuous values that a density needs.

A byte b ∈ {0, …, 255} becomes a point of (0, 1) by adding noise as wide as its step,

.. math:: y = (b + u) / 256, \qquad u \sim U[0, 1),

so that a density of y, integrated over a step, is a probability of b (Theis, van den Oord and Bethge, `A note on the
evaluation of generative models <https://arxiv.org/abs/1511.01844>`_, 2016). The logit that follows in the paper is a layer,
:class:`~rectangular_flows.flows.Logit`, so that densities are in units of pixels.

The noise is a function of the seed and of the row number: an image has the same noise in every batch, and only the
images of one batch are ever held as floats.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from ._files import Array, DataError

Seed = int | tuple[int, ...]

_AT_ONCE = 2**22  # pixels converted at a time
_CLIPPED = 0.01  # share of pixels out of range that is worth a warning


class ClippedPixelsWarning(UserWarning):
    """Many pixels were outside [0, 1] and were clipped."""


class ImageRows:
    """Images that become floats when they are asked for; rows for training.

    It has the length, shape and type of an array (N, C, H, W) of float32 and is indexed by a slice or by row numbers,
    but holds bytes: a quarter of the memory, and a file mapped into memory stays on disk.

    Args:
        images: (N, C, H, W), uint8, or any other shape (N, …). They are not copied.
        seed: of the noise, see :func:`dequantise`.

    Example:
        >>> rows = ImageRows(np.zeros((10, 1, 4, 4), np.uint8), seed=0)
        >>> rows.shape, rows[np.array([3, 1])].shape
        ((10, 1, 4, 4), (2, 1, 4, 4))
        >>> bool((rows[3:4] == dequantise(rows.images, seed=0)[3]).all())
        True
    """

    def __init__(self, images: Array, seed: Seed = 0):
        if images.dtype != np.uint8 or images.ndim < 2:
            raise DataError(f"Expected images (N, …) of uint8; got {images.shape} of {images.dtype}.")
        self.images, self.seed = images, seed
        self.shape: tuple[int, ...] = images.shape
        self.dtype = np.dtype(np.float32)
        parts = (seed,) if isinstance(seed, int) else seed
        self._key = np.random.SeedSequence([part % 2**64 for part in parts]).generate_state(1, np.uint64)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, key: slice | npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        if not isinstance(key, slice) and np.ndim(key) != 1:
            raise TypeError(f"expected a slice or a 1-D array of row numbers; got {key!r}")
        rows = np.arange(len(self))[key]
        out = np.empty((len(rows), *self.shape[1:]), dtype=np.float32)
        pixels = math.prod(self.shape[1:])
        step = max(1, _AT_ONCE // max(1, pixels))
        for start in range(0, len(rows), step):
            chosen = rows[start : start + step]
            values = np.asarray(self.images[chosen], dtype=np.uint32)
            # 8 bits of the pixel and 16 of noise, the last of them 1: an odd number below 2²⁴, which float32 holds
            levels = (values << 16) | _noise(chosen, pixels, self._key).reshape(values.shape) | 1
            out[start : start + step] = levels.astype(np.float32) * np.float32(2.0**-24)
        return out


def dequantise(images: Array, seed: Seed = 0) -> npt.NDArray[np.float32]:
    """y = (b + u)/256 with u ~ U[0, 1), a function of the seed and of the row number.

    u is one of the 2¹⁵ odd multiples of 2⁻¹⁶, so that float32 holds y exactly: 0 < y < 1 always, and ⌊256 y⌋ = b (in
    plain float32 arithmetic some white pixels would become 1 and some others the next grey).

    Args:
        images: (N, …), uint8; not changed.
        seed: a number, or several for unrelated streams: (0, 1) and (0, 2).

    Returns:
        The same shape, float32.

    Example:
        >>> images = np.array([[0, 255]], np.uint8)
        >>> y = dequantise(images, seed=0)
        >>> np.floor(256 * y)
        array([[  0., 255.]], dtype=float32)
    """
    return ImageRows(images, seed)[:]


def to_bytes(images: npt.ArrayLike) -> npt.NDArray[np.uint8]:
    """Bytes of images in [0, 1], min(⌊256 y⌋, 255): undoes both :func:`dequantise` and division by 255.

    Each grey level has the same share of [0, 1]. Rounding 255 y instead would make samples of a model of dequantised
    images half a level too bright.

    Args:
        images: floats; values outside [0, 1] are clipped, with a :class:`ClippedPixelsWarning` if more than 1 % are.

    Example:
        >>> to_bytes([0.0, 0.2, 0.5, 1.0])
        array([  0,  51, 128, 255], dtype=uint8)
    """
    values = np.asarray(images)
    if values.dtype.kind != "f":
        raise DataError(f"Expected images as floats in [0, 1]; got type {values.dtype}. Bytes need no conversion.")
    if bad := int((~np.isfinite(values)).sum()):
        raise DataError(f"Expected images in [0, 1]; {bad:,} of {values.size:,} values are NaN or infinite.")
    outside = int(((values < 0) | (values > 1)).sum())
    if outside > _CLIPPED * values.size:
        warnings.warn(
            f"{outside / values.size:.1%} of the pixels were outside [0, 1] (from {values.min():.3g} to "
            f"{values.max():.3g}) and were clipped. Are they in units of pixels, after the logit layer?",
            ClippedPixelsWarning,
            stacklevel=2,
        )
    # in float64: 256 y of float16 would overflow for large y, and 256·(1/255) must not round below 1
    return np.clip(np.floor(256 * values.astype(np.float64)), 0, 255).astype(np.uint8)


def _noise(rows: Array, pixels: int, key: Array) -> Array:
    """16 random bits for each pixel of each row, (rows, pixels).

    SplitMix64 (Steele, Lea and Flood, 2014), whose i-th number is a hash of i: here i counts the words of all rows.
    """
    words = -(-pixels // 4)
    count = rows.astype(np.uint64)[:, None] * np.uint64(words) + np.arange(1, words + 1, dtype=np.uint64)
    z: Array = key + count * np.uint64(0x9E3779B97F4A7C15)  # modulo 2⁶⁴
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z.astype("<u8").view("<u2").reshape(len(rows), 4 * words)[:, :pixels]
