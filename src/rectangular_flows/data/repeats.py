"""Rows that repeat others: where they are copies, rows held out of training are not new to the model."""

from __future__ import annotations

import numpy as np

from ..errors import warn
from ._files import Array

MOST = 200_000  # rows that are compared
_LEAST = 20
_MANY = 0.5  # share of rows that repeat others, at which it warns


class RepeatedRowsWarning(UserWarning):
    """Half of the rows or more repeat others."""


def warn_of_repeats(rows: Array) -> None:
    """Warn where half of the rows, or more, repeat others.

    Args:
        rows: finite, (N, D); the first 200,000 are compared.

    Example:
        >>> warn_of_repeats(np.arange(10.0)[:, None])
    """
    rows = np.ascontiguousarray(rows[:MOST] + 0.0)  # −0 becomes 0
    whole = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    repeated = len(rows) - len(np.unique(whole))
    if len(rows) >= _LEAST and repeated >= _MANY * len(rows):
        warn(
            RepeatedRowsWarning,
            f"{repeated} of {len(rows)} rows repeat others. If they are copies and not new measurements, rows held out of "
            "training are not new to the model, and its densities and p-values promise too much: remove the copies first",
        )
