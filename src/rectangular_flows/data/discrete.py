"""Columns with few distinct values: a density of them is unbounded, and every classifier knows samples by them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ._files import Array

_REPEATS = 20  # rows for each distinct value, on average, that make a column discrete
_LEAST_ROWS = 100
_MOST = 1_000  # values of a column that samples are rounded to


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
    def of(cls, rows: Array, without: Collection[int] = (), most: float = _MOST) -> Levels:
        """Of the columns of a table, but for some, and for those with more values than ``most``.

        Example:
            >>> x = np.stack([np.arange(400.0) % 3, np.arange(400.0)], axis=1)
            >>> levels = Levels.of(x)
            >>> levels.columns, levels.nearest(np.array([[1.4, 1.4]])).tolist(), levels.step
            ((0,), [[1.0, 1.4]], 1.0)
        """
        return cls.of_parts([rows], without, most)

    @classmethod
    def of_parts(cls, parts: Iterable[Array], without: Collection[int] = (), most: float = _MOST) -> Levels:
        """The same of a table that comes part by part; rare values count, wherever they are."""
        found: dict[int, Array] | None = None
        count = 0
        for rows in parts:
            if found is None:
                found = {i: rows[:0, i] for i in range(rows.shape[1]) if i not in without}
            count += len(rows)
            for i in list(found):
                found[i] = np.unique(np.concatenate([found[i], np.unique(rows[:, i])]))
                if len(found[i]) > most:
                    del found[i]
        few = {i: values for i, values in (found or {}).items() if len(values) * _REPEATS <= count}
        return cls(tuple(few), tuple(few.values())) if count >= _LEAST_ROWS else cls()

    @property
    def step(self) -> float:
        """The largest of the usual distances between values that follow each other; 0 without such columns."""
        return max((float(np.median(np.diff(v))) for v in self.values if len(v) > 1), default=0.0)

    def precision(self, kind: Any) -> np.dtype[Any]:
        """The type of number, as wide as ``kind`` or wider, that has all of the values.

        Example:
            >>> [str(Levels((0,), (np.array(values),)).precision(np.float32)) for values in ([0.5, 2.0], [0.1, 0.2])]
            ['float32', 'float64']
        """
        exact = all(bool((values.astype(kind) == values).all()) for values in self.values)
        return np.dtype(kind if exact else np.float64)

    def nearest(self, rows: Array) -> Array:
        """Rows with these columns rounded to the nearest of their values, in a precision that has them."""
        rounded = rows.astype(self.precision(rows.dtype))
        for column, values in zip(self.columns, self.values, strict=True):
            middles, drawn = (values[1:] + values[:-1]) / 2, rows[:, column]
            rounded[:, column] = np.where(np.isfinite(drawn), values[np.searchsorted(middles, drawn)], drawn)
        return rounded

    def listed(self) -> dict[str, list[float]]:
        """As plain data, for files."""
        pairs = zip(self.columns, self.values, strict=True)
        return {str(column): [float(v) for v in values] for column, values in pairs}

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
    steps, levels = torch.zeros(rows.shape[1], dtype=torch.float64), Levels.of(rows.double().numpy(), most=math.inf)
    for column, values in zip(levels.columns, levels.values, strict=True):
        if len(values) > 1:
            steps[column] = float(np.diff(values).min())
    return steps


def in_double(values: Array) -> Array:
    """The numbers in float64 that are written with the digits of these: 0.1 of float32 as 0.1, not 0.10000000149.

    Example:
        >>> in_double(np.array([0.1, 3.0], dtype=np.float32))
        array([0.1, 3. ])
    """
    return values if values.dtype == np.float64 else values.astype(np.str_).astype(np.float64)


def dequantised(rows: Tensor, steps: Tensor, seed: int = 0) -> Tensor:
    """The rows with uniform noise of one step, centred, in the columns that have one."""
    noise = torch.rand(rows.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) - 0.5
    return (rows.double() + (noise * steps).to(rows.device)).to(rows.dtype)
