"""What the readers of data files share: the error, finding a file, and writing one without leaving half of it."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..spelling import nearest

Array = npt.NDArray[Any]
CHUNK_BYTES = 64 * 2**20


class DataError(ValueError):
    """Data cannot be used: the message says what was expected, what was got and where, and what to do."""


class MissingFileError(DataError, FileNotFoundError):
    """A file is not there. It is both a :class:`DataError` and a ``FileNotFoundError``."""

    def __str__(self) -> str:
        return str(self.args[0])


def listing(items: Sequence[object], limit: int = 5, mark: str = "'") -> str:
    """The first few, in quotation marks, and how many more there are.

    Example:
        >>> listing(["a", "b", "c"], limit=2)
        "'a', 'b' and 1 more"
    """
    shown = ", ".join(f"{mark}{item}{mark}" for item in items[:limit])
    return shown if len(items) <= limit else f"{shown} and {len(items) - limit} more"


def existing_file(path: Path) -> Path:
    """The path if it is a readable file that is not empty; otherwise an error that names the nearest file there is."""
    if path.is_dir():
        names = sorted(entry.name for entry in path.iterdir() if entry.is_file())
        inside = f" It holds {listing(names)}." if names else ""
        raise DataError(f"Expected a file; got the folder '{path}'.{inside} Name one file.")
    if not path.exists():
        folder = path.parent
        if not folder.is_dir():
            raise MissingFileError(f"There is no file '{path}': its folder '{folder}' does not exist.")
        names = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
        raise MissingFileError(f"There is no file '{path}'.{nearest(path.name, names)}")
    if not os.access(path, os.R_OK):
        raise DataError(f"The file '{path}' may not be read: its permissions forbid it.")
    if path.is_file() and path.stat().st_size == 0:
        raise DataError(f"Expected a table; got '{path}', an empty file (0 bytes).")
    return path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path in the same folder, which takes the place of ``path`` only when the block ends well."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError as error:
        raise DataError(f"Cannot write '{path}': {error.strerror} (in folder '{path.parent}').") from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        # mkstemp makes files for the owner's eyes only; a result gets the permissions any new file would
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def chunks(values: Array) -> Iterator[Array]:
    """Runs of rows, small enough that a copy of one does no harm."""
    step = max(1, CHUNK_BYTES // max(1, values.itemsize * int(np.prod(values.shape[1:]))))
    for start in range(0, len(values), step):
        yield np.asarray(values[start : start + step])


def as_option(names: Sequence[str]) -> str:
    """Names of columns as ``--exclude`` and ``--columns`` of ``rnf fit`` take them, in quotes for the shell.

    Example:
        >>> print(as_option(["a", "b"]), as_option(["note, free"]))
        'a,b' '["note, free"]'
    """
    commas = any("," in name for name in names)
    text = json.dumps(list(names), ensure_ascii=False) if commas else ",".join(names)
    return "'" + text.replace("'", "'\\''") + "'"


def choose_columns(
    names: tuple[str, ...], columns: Sequence[str] | None, exclude: Sequence[str] | None, source: str
) -> list[int]:
    """The indices of the columns to keep; names, or positions counted from 1."""
    kept = list(range(len(names))) if columns is None else [_index(names, c, source) for c in columns]
    if len(set(kept)) < len(kept):
        raise DataError(f"Expected each column once; got {listing([str(c) for c in columns or ()], 12)}.")
    left_out = {_index(names, c, source) for c in exclude or ()}
    kept = [i for i in kept if i not in left_out]
    if not kept:
        raise DataError(f"Expected some column to be left; '{source}' has {listing(names)} and all were left out.")
    return kept


def _index(names: tuple[str, ...], column: str, source: str) -> int:
    column = str(column).strip()
    if column in names:
        return names.index(column)
    if column.isdecimal() and 1 <= int(column) <= len(names):
        return int(column) - 1
    raise DataError(
        f"'{source}' has no column '{column}': expected one of {listing(names, 12)}, or a position from 1 to "
        f"{len(names)}.{nearest(column, names)}"
    )
