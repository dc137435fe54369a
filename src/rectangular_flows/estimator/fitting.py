"""From what an estimator was given to the settings and rows of its training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..data.columns import UsedColumns
from ..data.periodic import PeriodicColumn, periodic_columns
from ..data.repeats import warn_of_repeats
from ..data.rows import shuffled
from ..errors import LeftOutWarning, warn
from ..flows.spaces import Space
from ..settings import DEFAULT_PRESET, FitSettings, read_preset
from .frames import Array

if TYPE_CHECKING:
    from .base import RectangularFlowEstimator

_GIVEN = (
    *("latent_space", "charts", "layers", "hidden", "latent", "beta", "target_error", "volume", "probes"),
    *("epochs", "batch_size", "learning_rate", "patience", "time", "dtype", "device"),
)


def settings_of(estimator: RectangularFlowEstimator, seed: int, latent_dim: int) -> FitSettings:
    """Those of ``rnf fit``, and in their place what the estimator was given."""
    given = {name: plain(getattr(estimator, name)) for name in _GIVEN}
    if estimator.volume != "stochastic" and estimator.probes == 1:  # its default, which says nothing
        del given["probes"]
    if estimator.time is not None and estimator.epochs != "auto":
        raise ValueError(f"time plans the epochs, and epochs={estimator.epochs!r} fixes them: give one of the two")
    given |= {"latent_dim": latent_dim, "seed": seed}
    return FitSettings.from_flat(given, read_preset(DEFAULT_PRESET))


def periodic_of(estimator: RectangularFlowEstimator, rows: Tensor, names: Sequence[str]) -> tuple[PeriodicColumn, ...]:
    """The columns that are angles."""
    return periodic_columns(estimator.periodic, rows.numpy(), names, "X") if estimator.periodic else ()


def with_charts(settings: FitSettings, train: Tensor, seed: int, periodic: Sequence[PeriodicColumn]) -> FitSettings:
    """The settings with a number of charts, chosen from the rows where the estimator leaves it open."""
    if settings.model.charts != "auto":
        return settings
    from ..runs.charts import choose_charts

    count = choose_charts(settings, train, seed, periodic).count
    return replace(settings, model=replace(settings.model, charts=count))


def dimension_of(
    estimator: RectangularFlowEstimator, rows: Tensor, seed: int, periodic: Sequence[PeriodicColumn] = ()
) -> int:
    """The latent dimension: as given, of the latent space, or chosen from the rows."""
    columns, given = rows.shape[1], estimator.latent_dim
    if given == "auto" and estimator.latent_space is not None:
        return Space.of(estimator.latent_space).dimension
    if given == "auto":
        from ..runs.dimension import choose_dimension

        model, dtype = settings_of(estimator, seed, 1).model, getattr(torch, estimator.dtype)
        return choose_dimension(model, rows, seed, dtype, periodic).value
    if not isinstance(given, int | np.integer) or not 1 <= given <= columns:
        raise ValueError(
            f"expected latent_dim from 1 to the number of columns, or 'auto'; got {given!r} with n_features = {columns}"
        )
    return int(given)


def split_rows(count: int, share: float | Literal["auto"], seed: int) -> tuple[Array, Array]:
    """Which of so many rows to train on, in their order, and which validate, at random."""
    order = shuffled(count, seed).numpy()
    held_out = max(1, validation_rows(count) if isinstance(share, str) else round(share * count))
    return np.sort(order[held_out:]), order[:held_out]


def check_rows(train: int, count: int, latent_dim: int) -> None:
    """Refuse too few rows to train on, of so many."""
    if train <= latent_dim:
        raise ValueError(
            f"expected more rows to train on than latent_dim = {latent_dim}; got n_samples = {count}, of "
            f"which {count - train} validate. Give more rows, or a smaller latent_dim"
        )


def used_in(values: Array, names: Sequence[str], fixed: bool) -> UsedColumns:
    """The columns of X that the model is to see, with a warning where these are not all.

    Args:
        values: (N, D).
        names: of the columns.
        fixed: whether none may be left out, because columns are known by their positions.

    Raises:
        ValueError: fewer than two would be left, or none may be left out.
    """
    used = UsedColumns.of(values, units=not fixed)
    if not fixed:  # angles of few values repeat as they should
        warn_of_repeats(values)
    if used.all:
        return used
    reasons = used.reasons(names)
    if fixed or len(used.kept) < 2:
        raise ValueError(f"expected columns of X that vary and differ from each other; {reasons}. Leave them out")
    warn(LeftOutWarning, f"columns of X are left out: {reasons}")
    return used


def validation_rows(rows: int) -> int:
    """How many of so many rows are held out: a tenth, and up to a fifth where that makes fewer than 200."""
    return max(rows // 10, min(rows // 5, 200))


def plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, tuple | list):
        return [plain(part) for part in value]
    return value.item() if isinstance(value, np.generic) else value
