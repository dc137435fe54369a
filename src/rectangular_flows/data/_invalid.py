"""Rows with NaN or infinite cells: found part by part, and left out or refused."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ._files import Array, DataError
from ._table_file import TableFile

_SHOWN = 3


class InvalidRows:
    """Counts the rows of a file that have NaN or infinite cells.

    Args:
        file: the rows come from.
        columns: names of the columns that are looked at.
    """

    def __init__(self, file: TableFile, columns: Sequence[str]):
        self._file, self._columns = file, columns
        self._first: list[tuple[int, int, bool]] = []  # row, column, whether it is missing
        self.count = self.total = 0

    def add(self, part: Array) -> NDArray[np.bool_]:
        """Look at the next rows, (n, columns); which of them are finite, (n,)."""
        good: NDArray[np.bool_] = np.asarray(np.isfinite(part).all(axis=1))
        bad = np.flatnonzero(~good)
        for row in bad[: _SHOWN - len(self._first)]:
            column = int(np.flatnonzero(~np.isfinite(part[row]))[0])
            self._first.append((self.total + int(row), column, bool(np.isnan(part[row, column]))))
        self.count, self.total = self.count + len(bad), self.total + len(part)
        return good

    def check(self, drop: bool) -> None:
        """Refuse a file without rows, one without a valid row, and, unless they are to be left out, invalid rows.

        Raises:
            DataError: which rows and columns these are, and what to do.
        """
        path = self._file.path
        if not self.total:
            raise DataError(f"Expected rows of numbers; got '{path}' with {len(self._columns)} columns and no rows.")
        if drop and self.total == self.count:
            raise DataError(f"Expected rows without NaN or infinite cells; all {self.count} of '{path}' have one.")
        if drop or not self.count:
            return
        places = [
            f"{self._file.row_name} {self._file.number(row)}, column '{self._columns[column]}' "
            f"is {'missing or NaN' if missing else 'infinite'}"
            for row, column, missing in self._first
        ]
        raise DataError(
            f"Expected finite numbers; in '{path}' {self.count} of {self.total} rows have NaN or infinite cells "
            f"({'; '.join(places)}{'; …' if self.count > _SHOWN else ''}). Leave such rows out with --drop-invalid, or "
            "such columns with --exclude."
        )
