"""A user's own images in a .npy or .npz file."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np

from ._arrays import MMAP_BYTES, load_npy, load_npz
from ._files import Array, DataError, listing
from ._image_parts import Part, Parts, part

_CHANNELS = (1, 3)
# what the parts and their labels are called: here, in Keras's files and in MedMNIST's
_NAMES = {
    "train": (("train", "x_train", "train_images"), ("train_labels", "y_train")),
    "validation": (("validation", "x_val", "val_images"), ("validation_labels", "y_val", "val_labels")),
    "test": (("test", "x_test", "test_images"), ("test_labels", "y_test")),
}
_WHOLE = (("images", "data", "X", "x"), ("labels", "y"))


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


def read_image_array(path: Path) -> Parts:
    """Images of a .npy file, or of a .npz file with labels and parts, if it has any.

    A .npz file holds 'images' (and 'labels'), or 'train', 'test' and perhaps 'validation' (and 'train_labels', …). The
    names of Keras and MedMNIST work too, and so does any name if there is only one array.
    """
    if path.suffix.lower() == ".npy":
        return Parts(part(as_images(load_npy(path, mmap=path.stat().st_size > MMAP_BYTES), str(path)), None, path))
    arrays = load_npz(path)
    found = {name: got for name, keys in _NAMES.items() if (got := _part(arrays, keys, path)) is not None}
    if "train" in found:
        return Parts(found["train"], found.get("validation"), found.get("test"))
    whole = _part(arrays, _WHOLE, path)
    if whole is None and len(arrays) == 1:
        whole = part(as_images(next(iter(arrays.values())), str(path)), None, path)
    if whole is None:
        shapes = [f"{name} {array.shape}" for name, array in arrays.items()]
        raise DataError(
            f"Expected an array 'images' (and 'labels') or 'train' and 'test' in '{path}'; got "
            f"{listing(shapes, 12) or 'nothing'}. Save the right one as 'images'."
        )
    return Parts(whole)


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


def _part(arrays: dict[str, Array], keys: tuple[tuple[str, ...], tuple[str, ...]], path: Path) -> Part | None:
    images, labels = (next((arrays[name] for name in names if name in arrays), None) for names in keys)
    return None if images is None else part(as_images(images, str(path)), labels, path)
