"""Rows on their way: taken in parts of a fixed size, from any row on, each with its number in its file and its texts.

Those of a file are read when they are asked for, and let go of: what is in memory does not grow with the file.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..storage.files import fingerprint
from ._files import Array, DataError, choose_columns
from ._invalid import InvalidRows
from ._npy import after, forget
from .rows import Rows
from .tables import column_order, open_table, unnamed


class Part(NamedTuple):
    """Some rows, (n, *shape), and their numbers in the file, from 1, (n,)."""

    numbers: Array
    rows: Rows


class Cells(ABC):
    """Texts of rows, taken in the order of the rows."""

    @abstractmethod
    def at(self, numbers: Array) -> dict[str, list[str]]:
        """Name → the texts of the rows of these numbers, which are larger than those before."""


class RowStream(ABC):
    """Rows that are taken a part at a time.

    Attributes:
        texts: names of the texts that go with each row.
        more: names of columns of the rows beyond those of the model.
        dropped: rows that are left out.
    """

    texts: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    dropped: int = 0

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def parts(self, at_once: int, start: int = 0) -> Iterator[Part]:
        """Parts of so many rows, the last one perhaps of fewer, from a row on (0-based)."""

    @abstractmethod
    def cells(self) -> Cells:
        """The texts, from the first row on."""

    @abstractmethod
    def digest(self) -> str:
        """What shows whether the rows have changed."""


class HeldRows(RowStream):
    """Rows that are held: in memory, as images, or as a memory-mapped array.

    Args:
        rows: (N, *shape).
        numbers: in their file, from 1, (N,); None where these are all.
        texts: name → N texts.
        dropped: how many rows of the file are not among them.
    """

    def __init__(
        self,
        rows: Rows,
        numbers: Array | None = None,
        texts: Mapping[str, Sequence[str]] | None = None,
        dropped: int = 0,
    ):
        self._rows, self.dropped, self._held = rows, dropped, dict(texts or {})
        self._numbers = np.arange(1.0, len(rows) + 1) if numbers is None else numbers.astype(np.float64)
        self.texts = tuple(self._held)

    def __len__(self) -> int:
        return len(self._rows)

    def parts(self, at_once: int, start: int = 0) -> Iterator[Part]:
        for first in range(start, len(self), at_once):
            which = slice(first, first + at_once)
            yield Part(self._numbers[which], self._rows[which])
            forget(self._rows)

    def cells(self) -> Cells:
        return _HeldCells(self._held, self._numbers)

    def digest(self) -> str:
        return hashlib.sha256(fingerprint(self._rows).encode() + self._numbers.tobytes()).hexdigest()


class _HeldCells(Cells):
    def __init__(self, texts: Mapping[str, Sequence[str]], numbers: Array):
        self._texts, self._numbers = texts, numbers

    def at(self, numbers: Array) -> dict[str, list[str]]:
        index = np.searchsorted(self._numbers, numbers)
        return {name: [cells[i] for i in index] for name, cells in self._texts.items()}


class FileRows(RowStream):
    """The rows of a file, which is read from its beginning once before, to count and check them.

    Args:
        path: see :func:`~rectangular_flows.data.tables.read_table`.
        expected: names of the columns, matched as :func:`~rectangular_flows.data.tables.match_columns` does.
        drop_invalid: leave out rows with missing or infinite values.
        texts: columns that are kept as text, by name or position from 1.
        whole: names of all columns of the table that ``expected`` are some of. Those of the others that the file has follow
            the expected ones, see :attr:`more`; and a file without names may have as many columns as that table.

    Raises:
        DataError: a column is missing, a cell is no number, or a row is invalid; the message says where.
    """

    def __init__(
        self,
        path: str | Path,
        expected: Sequence[str],
        drop_invalid: bool = False,
        texts: Sequence[str] = (),
        whole: Sequence[str] = (),
    ):
        self._file = open_table(path)
        names = self._file.columns
        others, by_name = [name for name in whole if name not in expected], {*expected} <= {*names}
        if others and not by_name and len(names) == len(whole) and (not self._file.named or unnamed(whole)):
            order = column_order(names, whole, str(path), self._file.named)
            self.more = tuple(others)
            self._order = [order[whole.index(name)] for name in (*expected, *others)]
        else:
            self.more = tuple(name for name in others if by_name and name in names)
            self._order = column_order(names, expected, str(path), self._file.named)
            self._order += [names.index(name) for name in self.more]
        self._texts = choose_columns(names, texts, None, str(path)) if texts else []
        self.texts = tuple(names[i] for i in self._texts)
        invalid = InvalidRows(self._file, [names[i] for i in self._order])
        for part in self._file.parts(self._order):
            invalid.add(part)
        invalid.check(drop_invalid)
        self.dropped, self._rows = invalid.count, invalid.total - invalid.count

    def __len__(self) -> int:
        return self._rows

    def parts(self, at_once: int, start: int = 0) -> Iterator[Part]:
        held: list[Part] = []
        for part in self._valid(start):
            held.append(part)
            while sum(len(part.numbers) for part in held) >= at_once:
                whole = _joined(held)
                held = [Part(whole.numbers[at_once:], whole.rows[at_once:])]
                yield _in_rows(whole.numbers[:at_once], whole.rows[:at_once])
        if held and len((whole := _joined(held)).numbers):
            yield _in_rows(*whole)

    def _valid(self, start: int) -> Iterator[Part]:
        """The valid rows from one on, in parts of any size."""
        skipped = 0 if self.dropped else start  # where all are valid, those before need not be looked at
        first, left = skipped + 1.0, start - skipped
        for part in after(self._file.parts(self._order), skipped):
            numbers = np.arange(first, first + len(part))
            first += len(part)
            if self.dropped:
                good = np.isfinite(part).all(axis=1)
                part, numbers = part[good], numbers[good]
            yield Part(numbers[left:], part[left:])
            left = max(0, left - len(numbers))

    def cells(self) -> Cells:
        return _FileCells(self.texts, self._file.cells(self._texts) if self._texts else iter(()), self._file.path)

    def digest(self) -> str:
        with self._file.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


class _FileCells(Cells):
    def __init__(self, names: Sequence[str], cells: Iterator[tuple[str, ...]], path: Path):
        self._names, self._cells, self._path, self._read = names, cells, path, 0

    def at(self, numbers: Array) -> dict[str, list[str]]:
        if not self._names or not len(numbers):
            return {name: [] for name in self._names}
        last = int(numbers[-1])
        block = list(islice(self._cells, last - self._read))
        if len(block) < last - self._read:
            missing = f"Expected {last} identifiers in '{self._path}'; got {self._read + len(block)}."
            raise DataError(f"{missing} Has it changed?")
        index, self._read = numbers.astype(int) - 1 - self._read, last
        return {name: [block[i][k] for i in index] for k, name in enumerate(self._names)}


def _in_rows(numbers: Array, rows: Rows) -> Part:
    """With the cells of a row side by side: sums over them are rounded otherwise where they are not."""
    return Part(numbers, np.ascontiguousarray(rows))


def _joined(parts: Sequence[Part]) -> Part:
    if len(parts) == 1:
        return parts[0]
    return Part(np.concatenate([part.numbers for part in parts]), np.concatenate([part.rows for part in parts]))
