"""Columns with few distinct values: a density of them is unbounded, and every classifier knows samples by them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..metrics.arrays import Array

_SHARE, _ROWS = 0.05, 100  # distinct values for each row, and rows to tell by


@dataclass(frozen=True, eq=False)
class Levels:
    """The values of columns that have few of them.

    Attributes:
        columns: which.
        values: of each, rising.
    """

    columns: tuple[int, ...]
    values: tuple[Array, ...]

    @classmethod
    def of(cls, rows: Array) -> Levels:
        """Of the columns of a table that have at most one distinct value for twenty rows.

        Example:
            >>> x = np.stack([np.arange(400.0) % 3, np.arange(400.0)], axis=1)
            >>> levels = Levels.of(x)
            >>> levels.columns, levels.nearest(np.array([[1.4, 1.4]])).tolist(), levels.step
            ((0,), [[1.0, 1.4]], 1.0)
        """
        if len(rows) < _ROWS:
            return cls((), ())
        found = {i: np.unique(column) for i, column in enumerate(rows.T)}
        few = {i: values for i, values in found.items() if len(values) <= _SHARE * len(rows)}
        return cls(tuple(few), tuple(few.values()))

    @property
    def step(self) -> float:
        """The largest of the usual distances between values that follow each other; 0 without such columns."""
        return max((float(np.median(np.diff(v))) for v in self.values if len(v) > 1), default=0.0)

    def nearest(self, rows: Array) -> Array:
        """Rows with these columns rounded to the nearest of their values."""
        rounded = rows.copy()
        for column, values in zip(self.columns, self.values, strict=True):
            middles = (values[1:] + values[:-1]) / 2
            rounded[:, column] = values[np.searchsorted(middles, rows[:, column])]
        return rounded
