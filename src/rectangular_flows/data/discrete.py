"""Columns with few distinct values: a density of one is unbounded, and whoever overfits it seems best."""

from __future__ import annotations

import torch
from torch import Tensor

_REPEATS = 20  # rows for each distinct value, on average, that make a column discrete
_LEAST_ROWS = 100


def discrete_steps(rows: Tensor) -> Tensor:
    """The least distance between two values of each column that has few of them, (D,); 0 for other columns.

    Few means one distinct value for every 20 rows, or fewer.

    Example:
        >>> rows = torch.stack([torch.arange(200.0) % 4, torch.arange(200.0)], dim=1)
        >>> discrete_steps(rows)
        tensor([1., 0.], dtype=torch.float64)
    """
    steps = torch.zeros(rows.shape[1], dtype=torch.float64)
    if len(rows) < _LEAST_ROWS:
        return steps
    for i, column in enumerate(rows.double().T):
        values = column.unique()
        if 1 < len(values) <= len(rows) / _REPEATS:
            steps[i] = values.diff().min()
    return steps


def dequantised(rows: Tensor, steps: Tensor, seed: int = 0) -> Tensor:
    """The rows with uniform noise of one step, centred, in the columns that have one."""
    noise = torch.rand(rows.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) - 0.5
    return (rows.double() + (noise * steps).to(rows.device)).to(rows.dtype)
