"""The reconstruction error that ``target_error="auto"`` asks for, and the start that it must not fall behind."""

from __future__ import annotations

import math

from .evaluation import SLACK, judged_by
from .run import Progress

_TOLERANCE = 1.1  # over what was reached before the likelihood counts
_LEAST_TARGET, _MOST_BETA = 1e-6, 1e6


def keeps_the_manifold(progress: Progress, error: float) -> bool:
    """Whether the error is no larger than at the start, where that was judged; h alone changes nothing of it."""
    start = progress.start
    return start is None or progress.latent_from is not None or error <= max(start[1], _LEAST_TARGET)


def set_target(progress: Progress, codimension: int) -> None:
    """The error to meet while the likelihood counts, from what was reached before; β as noise of that size has it."""
    nll, error = progress.start or (math.nan, math.inf)
    progress.target = max(min(_TOLERANCE * progress.least_error, error / SLACK), _LEAST_TARGET)
    progress.best = math.inf if math.isnan(nll) else judged_by(nll, error, progress.target)
    progress.beta = min(max(codimension / (2 * progress.target), 1.0), _MOST_BETA)
