"""A run on the circle beside the truth, and a group of them in a few numbers."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ..metrics import CircleFit
from ..plots import CircleResult
from ..runs.display import duration
from ..runs.jobs import Job


@dataclass(frozen=True)
class Outcome:
    """One run of the circle and how it compares with the truth."""

    job: Job
    result: CircleResult
    seconds: float

    @property
    def fit(self) -> CircleFit:
        """The comparison."""
        return self.result.fit


def summary(group: Sequence[Outcome]) -> list[str]:
    """KL, total variation, mean and largest distance, mass and time of a group: one value, or median (worst)."""
    cells = []
    for field in ("kl", "total_variation", "mean_distance", "max_distance"):
        values = [getattr(outcome.fit, field) for outcome in group]
        cells.append(_cell(values, max(values)))
    mass = [outcome.fit.mass for outcome in group]
    cells.append(_cell(mass, max(mass, key=lambda m: abs(m - 1))))
    return [*cells, duration(statistics.median(outcome.seconds for outcome in group))]


def _cell(values: Sequence[float], worst: float) -> str:
    middle = f"{statistics.median(values):.4f}"
    return middle if len(values) == 1 else f"{middle} ({worst:.4f})"


__all__ = ["Outcome", "summary"]
