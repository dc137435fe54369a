"""Checks of the arrays that the metrics take, with messages that say what was expected and what was got."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def real(values: ArrayLike, name: str, dimensions: int, least: int) -> NDArray[Any]:
    """An array of real numbers with that many dimensions and at least ``least`` rows, in its own dtype."""
    array: NDArray[Any] = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"expected real numbers in {name}; got dtype {array.dtype}")
    if array.ndim != dimensions or 0 in array.shape[1:]:
        raise ValueError(f"expected {name} of shape {('(N,)', '(N, D)')[dimensions - 1]}; got {array.shape}")
    if len(array) < least:
        raise ValueError(f"expected at least {least} rows in {name}; got {len(array)}")
    return array


def as_table(x: ArrayLike, name: str, least: int, dtype: Any = np.float64) -> NDArray[Any]:
    """An array (N, D) of finite numbers in that dtype; None leaves the dtype as it is."""
    array = real(x, name, 2, least)
    finite = np.isfinite(array)
    if not finite.all():
        bad = np.flatnonzero(~finite.all(1))
        raise ValueError(
            f"expected finite numbers in {name}; got {int((~finite).sum())} that are not, in {len(bad)} of {len(array)} "
            f"rows (first rows: {bad[:5].tolist()})"
        )
    return array if dtype is None else array.astype(dtype, copy=False)


def same_columns(least: int, dtype: Any = np.float64, **tables: ArrayLike) -> list[NDArray[Any]]:
    """Tables of points with the same columns, by their names in messages."""
    found = [as_table(x, name, least, dtype) for name, x in tables.items()]
    widths = [table.shape[1] for table in found]
    if len(set(widths)) > 1:
        names, numbers = " and ".join(tables), " and ".join(map(str, widths))
        raise ValueError(f"expected the same columns in {names}; got {numbers}")
    return found


def as_scores(values: ArrayLike, name: str) -> Array:
    """Scores (N,), N ≥ 1, in float64; infinities are allowed, NaN is not."""
    array = real(values, name, 1, 1).astype(np.float64)
    if np.isnan(array).any():
        raise ValueError(f"expected no NaN in {name}; got {int(np.isnan(array).sum())} of {len(array)}")
    return array
