"""The latent dimension of a table, where the user gives none: by what a short training keeps of rows held out."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ..adam import EagerAdam
from ..data.periodic import PeriodicColumn
from ..data.rows import Rows, shuffled, take
from ..kinds import Chosen, Nothing
from ..manifold import squared_distance
from ..metrics.arrays import Array
from ..metrics.dimension import DuplicateRowsWarning, estimate_dimension
from ..partition import LANDMARKS, separate_pieces
from ..settings import ModelSettings
from ..training.atlas import objective_of
from ..training.config import auto_rate
from ..volume import Exact
from .build import build_flow

LOST = 0.05  # share of the variance that a manifold may lose, on rows held out
_ROWS, _FEW = 5_000, 30
_STEPS, _BATCH, _RATE, _LAYERS = 100, 250, 5e-3, 3
_ROUNDING = 1e-13  # deviation of a column over its values, where it may be all rounding


@dataclass(frozen=True)
class Dimension:
    """A latent dimension, and why."""

    value: int
    reason: str


def choose_dimension(
    settings: ModelSettings,
    train: Rows,
    seed: int,
    dtype: torch.dtype = torch.float32,
    periodic: Sequence[PeriodicColumn] = (),
) -> Dimension:
    """The smallest latent dimension whose manifold keeps 95 % of the variance of rows held out.

    Between the intrinsic dimension of the rows, which a curved manifold may reach, and the number of principal components
    that do it, a short training of the reconstruction alone decides.

    Args:
        settings: of the model; its latent_dim is not used.
        train: rows of a table, (N, D).
        seed: of the rows that are held out, and of the trainings.
        dtype: of the trainings.
        periodic: columns that are angles: each takes a dimension, and of the others the principal components count.
    """
    columns = train.shape[1]
    if periodic:
        return _beside_angles(train, seed, {found.column for found in periodic})
    if columns == 1:
        return Dimension(1, "there is one column")
    if len(train) < 3:
        return Dimension(1, "there are few rows")
    rows = take(train, shuffled(len(train), seed)[:_ROWS], dtype=torch.float64)
    kept, held_out = _split(rows)
    linear = _linear(kept, held_out)
    if len(rows) < _FEW:
        return Dimension(
            linear, f"{linear} principal components keep {_kept(kept, held_out, linear)}; there are few rows"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DuplicateRowsWarning)
        try:
            intrinsic = estimate_dimension(rows.numpy()).suggestion
        except ValueError:  # too few distinct rows
            intrinsic = linear
    settings = replace(settings, charts=_charts(settings, rows.numpy()))
    tried = sorted({intrinsic, (intrinsic + linear) // 2} - {linear}) if intrinsic < linear else []
    for dim in tried:
        lost = _lost(replace(settings, latent_dim=dim), kept, held_out, seed, dtype)
        if lost <= LOST:
            curved = f"a curved manifold of {dim} dimensions keeps {1 - lost:.0%} of the variance of rows held out"
            enough = _left(kept, held_out)[linear - 1] <= LOST + 1e-9
            return Dimension(dim, f"{curved}; PCA needs {'' if enough else 'more than '}{linear}")
    return Dimension(linear, f"{linear} of {columns} principal components keep {_kept(kept, held_out, linear)}")


def _beside_angles(train: Rows, seed: int, angles: set[int]) -> Dimension:
    """A dimension for every angle, and one for each principal component that the other columns need."""
    others = [i for i in range(train.shape[1]) if i not in angles]
    each = f"{len(angles)} periodic column{'s' * (len(angles) > 1)}"
    if not others:
        return Dimension(len(angles), f"one for each of {each}")
    rows = take(train, shuffled(len(train), seed)[:_ROWS], dtype=torch.float64)[:, others]
    linear = 1 if len(others) == 1 else _linear(*_split(rows))
    kept = f"{linear} of {len(others)} principal components of the others, which keep 95 % of their variance"
    return Dimension(len(angles) + linear, f"one for each of {each}, and {kept}")


def estimated(rows: Any, seed: int) -> Dimension:
    """The intrinsic dimension by its estimates, for images, which lie on a curved manifold or on none."""
    return Dimension(estimate_dimension(rows, seed=seed).suggestion, "by the distances of nearest neighbours")


def _charts(settings: ModelSettings, rows: Any) -> int:
    """As many as are asked for; where that is open, three for each separate piece, or one."""
    if settings.charts != "auto":
        return settings.charts
    spread = rows.std(axis=0)
    pieces = int(separate_pieces(rows[:LANDMARKS] / np.where(spread > 0, spread, 1)).max()) + 1
    return 1 if pieces == 1 else 3 * pieces


def _split(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows to fit and a fifth held out, without columns that are constant in the former: these have no unit there."""
    cut = max(1, len(rows) // 5)
    held_out, kept = rows[:cut], rows[cut:]
    varies = kept.std(dim=0, correction=0) > _ROUNDING * kept.abs().amax(dim=0)
    return kept[:, varies], held_out[:, varies]


def _linear(kept: torch.Tensor, held_out: torch.Tensor) -> int:
    """Principal components of standardised rows that keep 95 % of the variance of others; fewer than there are columns."""
    if kept.shape[1] < 2:
        return 1
    left = _left(kept, held_out)
    enough = np.flatnonzero(left <= LOST + 1e-9)
    count = int(enough[0]) + 1 if len(enough) else len(left)
    return max(1, min(count, kept.shape[1] - 1, len(kept) - 1))


def _left(kept: torch.Tensor, held_out: torch.Tensor) -> Array:
    """Share of the variance of other rows that is left after so many principal components of standardised rows."""
    mean, deviation = kept.mean(dim=0), kept.std(dim=0, correction=0)
    fitted, judged = (((part - mean) / deviation).numpy() for part in (kept, held_out))
    directions = np.linalg.svd(fitted, full_matrices=False)[2]
    total = float(np.square(judged).sum()) or 1.0
    left: Array = 1 - np.cumsum(np.square(judged @ directions.T).sum(axis=0)) / total
    return left


def _kept(kept: torch.Tensor, held_out: torch.Tensor, count: int) -> str:
    """What so many of them keep, for people."""
    if kept.shape[1] < 2:
        return "all of the variance of rows held out"
    return f"{1 - _left(kept, held_out)[count - 1]:.0%} of the variance of rows held out"


def _lost(settings: ModelSettings, kept: torch.Tensor, held_out: torch.Tensor, seed: int, dtype: torch.dtype) -> float:
    """Share of the variance of other rows that a manifold loses after a short training of the reconstruction alone."""
    ambient = settings.ambient.settings
    fewer: Any = replace(ambient, layers=min(ambient.layers, _LAYERS)) if hasattr(ambient, "layers") else ambient
    simple: Any = replace(settings, ambient=Chosen(settings.ambient.name, fewer), latent=Chosen("identity", Nothing()))
    flow = build_flow(simple, kept, seed, dtype=dtype)
    kept, held_out = kept.to(flow.row_dtype), held_out.to(flow.row_dtype)
    objective, views = objective_of(flow, Exact(), 1.0), [chart.in_model_units for chart in flow.charts]
    with torch.no_grad():
        judged = flow.to_model_units(held_out)
    parameters = [p for p in flow.parameters() if p.requires_grad]
    optimiser = EagerAdam(parameters, auto_rate(kept.shape[1], _RATE))
    least = float("inf")
    for step in range(_STEPS):
        for parameter in parameters:
            parameter.grad = None
        objective(kept[shuffled(len(kept), seed, step)[:_BATCH]], part="reconstruction").loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 5.0)
        optimiser.step()
        if step % 25 == 24:
            with torch.no_grad():
                away = torch.stack([squared_distance(judged, view.project(judged)) for view in views])
                least = min(least, float(away.min(dim=0).values.mean()))
    return least / float(judged.double().square().sum(dim=1).mean())
