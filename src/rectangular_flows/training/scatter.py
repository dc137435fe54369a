"""The density of rows around a manifold, fitted at the end of a training."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ..atlas import Model
from ..data.discrete import dequantised, discrete_steps
from ..data.rows import Rows, shuffled, take
from ..errors import NumericalError, ScatterWarning, warn

_ROWS = 20_000
_COLUMN_ROWS = 400  # to train on, that allow a density of the columns one after another
_COLUMN_STEPS, _FEW, _MOST_STEPS = (1.2, 1.8), 2_000, 4_500  # for each step of the manifold, with few rows and others


def column_steps(flow: Model, rows: int, steps: int) -> int:
    """Most steps of the density of the columns, for so many rows and after so many of the manifold; 0: there is none."""
    one_by_one = flow.kind == "table" and flow.ambient_dim > 1 and not flow.angles  # cells would end where angles do
    if not flow.can_scatter or not one_by_one or rows < _COLUMN_ROWS:
        return 0
    return min(round(_COLUMN_STEPS[rows >= _FEW] * steps), _MOST_STEPS)


def fit_scatter(
    flow: Model,
    train: Rows,
    held_out: Tensor,
    seed: int,
    steps: int,
    on_step: Callable[[int, int], None] | None = None,
) -> bool:
    """Give the flow its density in R^D, where its layers allow one; whether it has one now.

    Args:
        flow: trained.
        train: rows that it was trained on.
        held_out: others, of its device and dtype.
        seed: of the rows drawn and of all that is fitted.
        steps: that the manifold was trained for; the density of the columns takes more.
        on_step: called after every step of that density with its number and how many there may be.
    """
    if not len(held_out) or not flow.can_scatter:
        return False
    rows = take(train, shuffled(len(train), seed)[:_ROWS], held_out.device, held_out.dtype)
    if flow.kind == "table":
        rows = dequantised(rows, discrete_steps(rows.cpu()), seed)
    try:
        flow.fit_scatter(rows, held_out[:_ROWS], seed, column_steps(flow, len(train), steps), on_step)
    except NumericalError as error:
        warn(ScatterWarning, f"no density in R^D was fitted: {error}")
        return False
    return True
