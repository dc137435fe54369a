"""Compressed files, unpacked as far as :func:`~rectangular_flows.storage.limits.most_bytes` allows and no further."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import IO

from ..storage.limits import VARIABLE, in_words, most_bytes
from ._files import DataError


class _Bounded(io.RawIOBase):
    """A stream that refuses to go on after so many bytes."""

    def __init__(self, stream: IO[bytes], path: Path):
        self._stream, self._path = stream, path
        self._most = self._left = most_bytes()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._stream.read(len(buffer))
        self._left -= len(data)
        if self._left < 0:
            raise DataError(
                f"'{self._path}' unpacks to more than {in_words(self._most)}, half of this machine's memory unless "
                f"{VARIABLE} says otherwise. If you trust it, set {VARIABLE}, or unpack it yourself."
            )
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._stream.close()
        super().close()


def open_gzip(path: Path) -> io.BufferedReader:
    """The bytes of a gzip file, as many as are allowed."""
    return io.BufferedReader(_Bounded(gzip.open(path, "rb"), path), 2**16)  # type: ignore[arg-type]


def unpack_gzip(path: Path) -> bytes:
    """All of them."""
    with open_gzip(path) as file:
        return file.read()
