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
from ._image_parts import Part, Parts, part

_STEMS = {"train": "train", "test": "t10k"}
_BYTES = 8  # the code of the type uint8


def find_idx(folder: Path, which: str, what: str) -> Path | None:
    """The file of the 'train' or 'test' part, 'images' or 'labels', by any of its usual names."""
    stem, rank = _STEMS[which], 3 if what == "images" else 1
    for name in (f"{stem}-{what}-idx{rank}-ubyte", f"{stem}-{what}.idx{rank}-ubyte"):
        for file in (folder / name, folder / f"{name}.gz"):
            if file.is_file():
                return file
    return None


def read_idx_folder(folder: Path) -> Parts:
    """Both parts of a set in the format of MNIST."""
    parts: dict[str, Part] = {}
    notes = []
    for which, stem in _STEMS.items():
        file = find_idx(folder, which, "images")
        if file is None:
            raise MissingFileError(f"Expected '{stem}-images-idx3-ubyte' or the same .gz in '{folder}'.")
        label_file = find_idx(folder, which, "labels")
        if label_file is None:
            notes.append(f"No labels: there is no '{stem}-labels-idx1-ubyte'.")
        parts[which] = part(read_idx(file, 3)[:, None], None if label_file is None else read_idx(label_file, 1), file)
    return Parts(parts["train"], test=parts["test"], notes=tuple(notes))


def read_idx(path: Path, rank: int) -> Array:
    """The array of an idx file of bytes, uint8.

    Args:
        path: plain or gzip, whatever its name says.
        rank: the expected number of dimensions.

    Raises:
        DataError: another magic number, or fewer or more values than the header says.
    """
    data = path.read_bytes()
    try:
        data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"Expected an idx file; cannot read '{path}': {error}. Get it again.") from error
    start, expected = 4 + 4 * rank, bytes([0, 0, _BYTES, rank])
    if len(data) < start or data[:4] != expected:
        raise DataError(
            f"Expected an idx file of bytes in {rank} dimensions, which begins with {expected.hex()}; '{path}' begins "
            f"with {data[:4].hex() or 'nothing'}. Is it another file under this name?"
        )
    shape = struct.unpack(f">{rank}I", data[4:start])
    if len(data) - start != math.prod(shape):
        raise DataError(
            f"Expected {math.prod(shape):,} values in '{path}', whose header says {'×'.join(map(str, shape))}; got "
            f"{len(data) - start:,}. The file is damaged: get it again."
        )
    return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(shape)
