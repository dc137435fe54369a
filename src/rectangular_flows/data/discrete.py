"""Columns with few distinct values: a density of them is unbounded, and every classifier knows samples by them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ._files import Array

_REPEATS = 20  # rows for each distinct value, on average, that make a column discrete
_LEAST_ROWS = 100
_MOST_KEPT = 200  # values of a column that are kept with a model


@dataclass(frozen=True, eq=False)
class Levels:
    """The values of columns that have few of them: one distinct value for every 20 rows, or fewer.

    Attributes:
        columns: which.
        values: of each, rising.
    """

    columns: tuple[int, ...] = ()
    values: tuple[Array, ...] = ()

    @classmethod
    def of(cls, rows: Array, without: Collection[int] = ()) -> Levels:
        """Of the columns of a table, but for some.

        Example:
            >>> x = np.stack([np.arange(400.0) % 3, np.arange(400.0)], axis=1)
            >>> levels = Levels.of(x)
            >>> levels.columns, levels.nearest(np.array([[1.4, 1.4]])).tolist(), levels.step
            ((0,), [[1.0, 1.4]], 1.0)
        """
        if len(rows) < _LEAST_ROWS:
            return cls()
        found = {i: np.unique(column) for i, column in enumerate(rows.T) if i not in without}
        few = {i: values for i, values in found.items() if len(values) * _REPEATS <= len(rows)}
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

    def listed(self) -> dict[str, list[float]]:
        """As plain data, for files; columns with very many values are left out."""
        pairs = zip(self.columns, self.values, strict=True)
        return {str(column): [float(v) for v in values] for column, values in pairs if len(values) <= _MOST_KEPT}

    @classmethod
    def from_list(cls, listed: Mapping[str, Sequence[float]], columns: int) -> Levels:
        """The inverse of :meth:`listed`, for a table of so many columns.

        Raises:
            ValueError: it is no such thing.
        """
        found = {int(name): np.array(values, dtype=np.float64) for name, values in listed.items()}
        for column, values in found.items():
            rising = values.ndim == 1 and len(values) > 0 and bool((np.diff(values) > 0).all())
            if not 0 <= column < columns or not rising or not np.isfinite(values).all():
                raise ValueError(f"column {column} of {columns} has no list of rising values")
        return cls(tuple(found), tuple(found.values()))


def discrete_steps(rows: Tensor) -> Tensor:
    """The least distance between two values of each column that has few of them, (D,); 0 for other columns.

    Example:
        >>> rows = torch.stack([torch.arange(200.0) % 4, torch.arange(200.0)], dim=1)
        >>> discrete_steps(rows)
        tensor([1., 0.], dtype=torch.float64)
    """
    steps, levels = torch.zeros(rows.shape[1], dtype=torch.float64), Levels.of(rows.double().numpy())
    for column, values in zip(levels.columns, levels.values, strict=True):
        if len(values) > 1:
            steps[column] = float(np.diff(values).min())
    return steps


def dequantised(rows: Tensor, steps: Tensor, seed: int = 0) -> Tensor:
    """The rows with uniform noise of one step, centred, in the columns that have one."""
    noise = torch.rand(rows.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) - 0.5
    return (rows.double() + (noise * steps).to(rows.device)).to(rows.dtype)
