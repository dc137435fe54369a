"""A user's own images in a .npy or .npz file."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np

from ._arrays import MMAP_BYTES, load_npy, load_npz
from ._files import Array, DataError, listing

_CHANNELS = (1, 3)
# what the parts are called: here, in Keras's files and in MedMNIST's
_NAMES = {
    "train": ("train", "x_train", "train_images"),
    "validation": ("validation", "x_val", "val_images"),
    "test": ("test", "x_test", "test_images"),
}
_WHOLE = ("images", "data", "X", "x")


def as_images(array: Array, source: str) -> Array:
    """Images as (N, C, H, W), from an array (N, H, W), (N, H, W, C) or (N, C, H, W) of uint8; C is 1 or 3.

    Example:
        >>> as_images(np.zeros((5, 8, 6, 3), np.uint8), "an array").shape
        (5, 3, 8, 6)
    """
    if array.dtype != np.uint8:
        advice = {
            "f": "(255 * array).round().astype(np.uint8) if they lie in [0, 1]",
            "b": "255 * array.astype(np.uint8)",
        }.get(array.dtype.kind, "array.astype(np.uint8) if they lie in 0 … 255")
        raise DataError(
            f"Expected images of uint8, 0 to 255, in '{source}'; got type {array.dtype}. Save them as {advice}."
        )
    if array.ndim == 3 and array.shape[2] not in _CHANNELS:
        return array[:, None]
    if array.ndim == 4:
        first, last = array.shape[1] in _CHANNELS, array.shape[3] in _CHANNELS
        if first != last:
            return array if first else array.transpose(0, 3, 1, 2)
    meant = " It looks like one picture; several are needed." if array.ndim == 3 else ""
    raise DataError(
        f"Expected images as (N, height, width), (N, height, width, C) or (N, C, height, width), with C = 1 or 3, in "
        f"'{source}'; got shape {array.shape}.{meant}"
    )


def read_image_array(path: Path) -> dict[str, Array]:
    """Images of a .npy file, or of a .npz file with its parts, if it has any.

    A .npz file holds 'images', or 'train', 'test' and perhaps 'validation'. The names of Keras and MedMNIST work too,
    and so does any name if there is only one array.
    """
    if path.suffix.lower() == ".npy":
        return {"train": as_images(load_npy(path, mmap=path.stat().st_size > MMAP_BYTES), str(path))}
    arrays = load_npz(path)
    found = {which: next((arrays[name] for name in names if name in arrays), None) for which, names in _NAMES.items()}
    if found["train"] is None:
        named = [arrays[name] for name in _WHOLE if name in arrays]
        if not named and len(arrays) != 1:
            shapes = [f"{name} {array.shape}" for name, array in arrays.items()]
            raise DataError(
                f"Expected an array 'images', or 'train' and 'test', in '{path}'; got {listing(shapes, 12) or 'nothing'}. "
                "Save the right one as 'images'."
            )
        found = {"train": (named or list(arrays.values()))[0]}
    return {which: as_images(array, str(path)) for which, array in found.items() if array is not None}


def array_heads(path: Path) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
    """Shapes and types of the arrays in a .npy or .npz file, from their headers; none for any other or a damaged file."""
    try:
        if path.suffix.lower() == ".npy":
            return [_head(path.open("rb"))]
        if path.suffix.lower() == ".npz":
            with zipfile.ZipFile(path) as archive:
                return [_head(archive.open(name)) for name in archive.namelist()]
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error):
        pass  # the reader says what is wrong
    return []


def _head(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    with file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, kind = read(file)
    return shape, kind
