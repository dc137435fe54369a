"""The idx files of MNIST and of sets in its format, plain or gzip.

An idx file is a magic number (two zero bytes, the type, the number of dimensions), each dimension as a big-endian
32-bit number, and the values in row order: http://yann.lecun.com/exdb/mnist/.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from ._files import Array, DataError, MissingFileError

STEMS = {"train": "train", "test": "t10k"}
_MAGIC = bytes([0, 0, 8, 3])  # of bytes in three dimensions
_START = 16  # of the values


def find_idx(folder: Path, stem: str) -> Path | None:
    """The file of the images of a part, 'train' or 't10k', by any of its usual names."""
    for name in (f"{stem}-images-idx3-ubyte", f"{stem}-images.idx3-ubyte"):
        for file in (folder / name, folder / f"{name}.gz"):
            if file.is_file():
                return file
    return None


def read_idx_folder(folder: Path) -> dict[str, Array]:
    """Both parts of a set in the format of MNIST."""
    parts = {}
    for which, stem in STEMS.items():
        file = find_idx(folder, stem)
        if file is None:
            raise MissingFileError(f"Expected '{stem}-images-idx3-ubyte' or the same .gz in '{folder}'.")
        parts[which] = read_idx(file)[:, None]
    return parts


def read_idx(path: Path) -> Array:
    """The images of an idx file, (N, height, width), uint8; plain or gzip, whatever its name says.

    Raises:
        DataError: another magic number, or fewer or more values than the header says.
    """
    data = path.read_bytes()
    try:
        data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"Expected an idx file; cannot read '{path}': {error}. Get it again.") from error
    if len(data) < _START or data[:4] != _MAGIC:
        raise DataError(
            f"Expected an idx file of bytes in 3 dimensions, which begins with {_MAGIC.hex()}; '{path}' begins with "
            f"{data[:4].hex() or 'nothing'}. Is it another file under this name?"
        )
    shape = struct.unpack(">3I", data[4:_START])
    if len(data) - _START != math.prod(shape):
        raise DataError(
            f"Expected {math.prod(shape):,} values in '{path}', whose header says {'×'.join(map(str, shape))}; got "
            f"{len(data) - _START:,}. The file is damaged: get it again."
        )
    return np.frombuffer(data, dtype=np.uint8, offset=_START).reshape(shape)
