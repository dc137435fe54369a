"""What there is to say of scored rows in the end, added up part by part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..metrics.arrays import Array
from .explain import Reason, UnusualRow

SHOWN = 5
"""Unusual rows."""
_MEANS = ("log_density", "reconstruction_error")


@dataclass(frozen=True)
class Totals:
    """Sums over the rows so far.

    Attributes:
        log_density: of the rows where both are finite.
        reconstruction_error: of the same.
        finite: how many these are.
        broken: how many the others are.
        most_unusual: rows, and why.
    """

    log_density: float = 0.0
    reconstruction_error: float = 0.0
    finite: int = 0
    broken: int = 0
    most_unusual: list[UnusualRow] = field(default_factory=list)

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Totals:
        """The inverse of ``dataclasses.asdict``."""
        unusual = [
            UnusualRow(**{**row, "reasons": [Reason(**reason) for reason in row["reasons"]]})
            for row in state.get("most_unusual", ())
        ]
        return cls(**{**state, "most_unusual": unusual})

    @classmethod
    def sum(cls, every: Iterable[Totals]) -> Totals:
        """Of the rows of several tables; the most unusual ones are left out, since a table has its own names of rows."""
        found = [*every, cls()]
        names = (*_MEANS, "finite", "broken")
        return cls(**{name: sum(getattr(one, name) for one in found) for name in names})

    def plus(self, columns: Mapping[str, Array], unusual: Sequence[UnusualRow] = ()) -> Totals:
        """With more rows, name of a score → (n,)."""
        fine = np.isfinite(columns[_MEANS[0]]) & np.isfinite(columns[_MEANS[1]])
        log_density, error = (getattr(self, name) + float(columns[name][fine].sum()) for name in _MEANS)
        return Totals(
            log_density,
            error,
            self.finite + int(fine.sum()),
            self.broken + int((~fine).sum()),
            sorted([*self.most_unusual, *unusual], key=lambda row: -row.score)[:SHOWN],
        )

    @property
    def means(self) -> dict[str, float]:
        """Of the rows where both are finite."""
        return {name: getattr(self, name) / self.finite if self.finite else float("nan") for name in _MEANS}

    @property
    def notes(self) -> list[str]:
        """What the reader should know."""
        if not self.broken:
            return []
        return [
            f"no finite log-density under the model: {self.broken} row{'s' * (self.broken != 1)}, far from its data. "
            "Log-density -inf, and the smallest p-value there is; the means are those of the other rows"
        ]


@dataclass(frozen=True)
class Written:
    """What there is to say of scores that were written: how many rows, their totals, and what the reader should know."""

    rows: int
    totals: Totals
    notes: list[str]

    @property
    def means(self) -> dict[str, float]:
        """Of the log-density and the reconstruction error of the rows where both are finite."""
        return self.totals.means

    @property
    def most_unusual(self) -> list[UnusualRow]:
        """Rows, and why."""
        return self.totals.most_unusual
