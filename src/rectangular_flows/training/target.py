"""The reconstruction error that ``target_error="auto"`` asks for, and the start that it must not fall behind."""

from __future__ import annotations

import math

from ..atlas import Model
from .config import TrainingConfig
from .evaluation import SLACK, judged_by
from .run import Progress

_TOLERANCE = 1.1  # over what was reached before the likelihood counts
_LEAST_TARGET, _LEAST_BETA, _MOST_BETA = 1e-6, 1e-6, 1e6


def keeps_the_manifold(progress: Progress, error: float) -> bool:
    """Whether the error is no larger than at the start, where that was judged; h alone changes nothing of it."""
    start = progress.start
    return start is None or progress.latent_from is not None or error <= max(start[1], _LEAST_TARGET)


def set_target(progress: Progress, codimension: int) -> None:
    """The error to meet while the likelihood counts, from what was reached before; β as noise of that size has it."""
    nll, error = progress.start or (math.nan, math.inf)
    progress.target = max(min(_TOLERANCE * progress.least_error, error / SLACK), _LEAST_TARGET)
    progress.best = math.inf if math.isnan(nll) else judged_by(nll, error, progress.target)
    progress.beta = beta_of(progress.target, codimension)


def beta_of(target: float, codimension: int) -> float:
    """β as Gaussian noise has it, whose mean squared size in the normal directions is the target."""
    return min(max(codimension / (2 * target), 1.0), _MOST_BETA)


def least_beta(flow: Model, config: TrainingConfig, target: float | None) -> float:
    """The least that β may fall to: what it started from, where training adapts by itself.

    A smaller β may do for the mean error where few rows far out make up most of it. The likelihood then moves the manifold
    off the bulk of the rows, to where it is shorter, by as much as their noise; and charts leave the data at their ends.
    """
    if target is None or config.target_error != "auto":
        return _LEAST_BETA
    return beta_of(target, flow.ambient_dim - flow.latent_dim)
