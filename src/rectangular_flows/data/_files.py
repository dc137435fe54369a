"""What the readers of data files share: errors, finding a file, choosing columns."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy.typing as npt

from ..spelling import nearest

Array = npt.NDArray[Any]


class DataError(ValueError):
    """Data cannot be used. The message says what was expected, what was found and where, and what to do."""


class MissingFileError(DataError, FileNotFoundError):
    """A file does not exist. Both a :class:`DataError` and a ``FileNotFoundError``."""

    def __str__(self) -> str:
        return str(self.args[0])


@contextmanager
def reading(path: Path, expected: str) -> Iterator[None]:
    """Turn whatever a damaged file leads to into a :class:`DataError` that names the file."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        raise DataError(
            f"Expected {expected}; cannot read '{path}' ({type(error).__name__}: {error}). Is it damaged, or another "
            "file under this name?"
        ) from error


def listing(items: Sequence[object], limit: int = 5, mark: str = "'") -> str:
    """The first few items, in quotation marks, and how many more there are: "'a', 'b' and 1 more"."""
    shown = ", ".join(f"{mark}{item}{mark}" for item in items[:limit])
    return shown if len(items) <= limit else f"{shown} and {len(items) - limit} more"


def by(shape: Sequence[int]) -> str:
    """A shape for a message: '3×32×32'."""
    return "×".join(map(str, shape))


def check_file(path: Path) -> None:
    """Refuse what is not a readable file with content, with the nearest file name where there is none."""
    if path.is_dir():
        names = sorted(entry.name for entry in path.iterdir() if entry.is_file())
        inside = f" It holds {listing(names)}." if names else ""
        raise DataError(f"Expected a file; got the folder '{path}'.{inside} Name one file.")
    if not path.parent.is_dir():
        raise MissingFileError(f"There is no file '{path}': its folder '{path.parent}' does not exist.")
    if not path.exists():
        names = sorted(entry.name for entry in path.parent.iterdir() if entry.is_file())
        raise MissingFileError(f"There is no file '{path}'.{nearest(path.name, names)}")
    if not os.access(path, os.R_OK):
        raise DataError(f"Cannot read the file '{path}': its permissions forbid it.")
    if path.is_file() and path.stat().st_size == 0:
        raise DataError(f"Expected a table; got '{path}', an empty file (0 bytes).")


def as_option(names: Sequence[str]) -> str:
    """Column names as ``--exclude`` and ``--columns`` of ``rnf fit`` take them, quoted for the shell."""
    commas = any("," in name for name in names)
    text = json.dumps(list(names), ensure_ascii=False) if commas else ",".join(names)
    return "'" + text.replace("'", "'\\''") + "'"


def choose_columns(
    names: tuple[str, ...], columns: Sequence[str] | None, exclude: Sequence[str] | None, source: str
) -> list[int]:
    """The indices of the columns to keep, which are given by name or by position from 1."""
    kept = list(range(len(names))) if columns is None else [_index(names, c, source) for c in columns]
    if len(set(kept)) < len(kept):
        raise DataError(f"Expected each column once; got {listing([str(c) for c in columns or ()], 12)}.")
    left_out = {_index(names, c, source) for c in exclude or ()}
    kept = [i for i in kept if i not in left_out]
    if not kept:
        raise DataError(f"Expected at least one column; '{source}' has {listing(names)}, and all are left out.")
    return kept


def check_names(names: Sequence[str], source: str) -> None:
    """Refuse column names that repeat."""
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise DataError(f"Expected different column names; {source} repeats {listing(twice)}. Rename them.")


def check_width(count: int, source: str) -> None:
    """Refuse more columns than any model can have."""
    if count > _MOST_COLUMNS:
        raise DataError(
            f"Expected at most {_MOST_COLUMNS:,} columns; {source} has {count:,}. Is it another kind of file?"
        )


_MOST_COLUMNS = 1_000_000


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
