"""The contract of a file with a table: its columns, and its rows a part at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ._files import Array
from ._npy import gather


class TableFile(ABC):
    """A table in a file, of which a part at a time is in memory.

    Attributes:
        path: of the file.
        columns: names of all columns; x1, x2, … where the file has none.
        named: whether the names come from the file.
        row_name: what a row is called in messages.
    """

    path: Path
    columns: tuple[str, ...]
    named: bool = True
    row_name = "row"

    def number(self, row: int) -> int:
        """The number of a row (0-based) in messages."""
        return row + 1

    @abstractmethod
    def parts(self, order: Sequence[int]) -> Iterator[Array]:
        """Columns by position, in that order, as parts (n, columns) that follow one another."""

    @abstractmethod
    def cells(self, order: Sequence[int]) -> Iterator[tuple[str, ...]]:
        """Columns by position as text, as they stand, row by row."""

    def values(self, order: Sequence[int]) -> Array:
        """All rows; where they are many, in a temporary file on disk."""
        return gather(self.parts(order), (-1, len(order)), np.dtype(np.float64))
