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
from typing import BinaryIO, cast

import numpy as np

from ._files import Array, DataError, MissingFileError
from ._image_parts import Part, Parts, part

_STEMS = {"train": "train", "test": "t10k"}
_BYTES = 8  # the code of the type uint8
_DEFLATE = 1032  # no gzip file holds more than this many times its size


def find_idx(folder: Path, which: str, what: str) -> Path | None:
    """The file of the 'train' or 'test' part, 'images' or 'labels', by any of its usual names."""
    stem, rank = _STEMS[which], 3 if what == "images" else 1
    for name in (f"{stem}-{what}-idx{rank}-ubyte", f"{stem}-{what}.idx{rank}-ubyte"):
        for file in (folder / name, folder / f"{name}.gz"):
            if file.is_file():
                return file
    return None


def read_idx_folder(folder: Path, advice: str, classes: int | None = None) -> Parts:
    """Both parts of a set in the format of MNIST."""
    parts: dict[str, Part] = {}
    notes = []
    for which, stem in _STEMS.items():
        file = find_idx(folder, which, "images")
        if file is None:
            raise MissingFileError(f"Expected '{stem}-images-idx3-ubyte' or the same .gz in '{folder}'.{advice}")
        images = read_idx(file, 3)[:, None]
        label_file = find_idx(folder, which, "labels")
        if label_file is None:
            notes.append(f"No labels: there is no '{stem}-labels-idx1-ubyte'.")
        parts[which] = part(images, None if label_file is None else read_idx(label_file, 1), file, classes)
    return Parts(parts["train"], test=parts["test"], notes=tuple(notes))


def read_idx(path: Path, rank: int) -> Array:
    """The array of an idx file of bytes, uint8.

    Args:
        path: plain or gzip, whatever its name says.
        rank: the number of dimensions that is expected.

    Raises:
        DataError: another magic number, or fewer or more values than the header says.
    """
    try:
        with open(path, "rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            most = path.stat().st_size * (_DEFLATE if packed else 1)
            if not packed:
                return _read(file, path, rank, most)
            with gzip.GzipFile(fileobj=file) as stream:
                return _read(cast(BinaryIO, stream), path, rank, most)
    except (OSError, EOFError, zlib.error) as error:
        if isinstance(error, MissingFileError):
            raise
        raise DataError(f"Expected an idx file; '{path}' cannot be read: {error}. Get it again.") from error


def _read(stream: BinaryIO, path: Path, rank: int, most: int) -> Array:
    header = stream.read(4 + 4 * rank)
    expected = bytes([0, 0, _BYTES, rank])
    if len(header) < 4 + 4 * rank or header[:4] != expected:
        raise DataError(
            f"Expected an idx file of bytes in {rank} dimensions, which begins with {expected.hex()}; '{path}' begins "
            f"with {header[:4].hex() or 'nothing'}. Is it another file under this name?"
        )
    shape = struct.unpack(f">{rank}I", header[4:])
    size = math.prod(shape)
    # the header is not believed before the file is known to be large enough: memory is asked for below
    data = stream.read(size + 1) if size <= most else b""
    if len(data) != size:
        got = "more" if len(data) > size else f"{len(data):,}" if data else "fewer"
        raise DataError(
            f"Expected {size:,} values in '{path}', whose header says {'×'.join(map(str, shape))}; got {got}. The file "
            "is damaged: get it again."
        )
    return np.frombuffer(data, dtype=np.uint8).reshape(shape)


__all__ = ["find_idx", "read_idx", "read_idx_folder"]
