"""Columns that an estimator leaves out, since they hold one value or repeat another, and rows that break these rules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..data.columns import UsedColumns
from ..errors import LeftOutWarning, warn
from ..evaluation.explain import Explanation
from ..runs.calibration import Calibration
from .frames import Array


def used_in(values: Array, names: Sequence[str], fixed: bool) -> UsedColumns:
    """The columns of X that the model is to see, with a warning where these are not all.

    Args:
        values: (N, D).
        names: of the columns.
        fixed: whether none may be left out, because columns are known by their positions.

    Raises:
        ValueError: fewer than two would be left, or none may be left out.
    """
    used = UsedColumns.of(values)
    if used.all:
        return used
    reasons = used.reasons(names)
    if fixed or len(used.kept) < 2:
        raise ValueError(f"expected columns of X that vary and differ from each other; {reasons}. Leave them out")
    warn(LeftOutWarning, f"columns of X are left out: {reasons}")
    return used


class Broken:
    """What rows add to their scores where they break the rules of columns left out.

    Args:
        used: the columns that the model sees.
        values: all columns of the rows, (N, D).
        trained_on: n, rows that kept every rule. A row adds log(n + 2) nats for each rule it breaks, by Laplace's rule of
            succession.
    """

    def __init__(self, used: UsedColumns, values: Array, trained_on: int | None):
        self.used, self.values, self.off = used, values, used.off(values)
        self.nats: Array = (self.off != 0).sum(axis=1) * math.log((trained_on or 0) + 2)
        self.error: Array = np.square(self.off).sum(axis=1)

    def added(
        self, scores: dict[str, Array], calibration: Calibration | None, unusual: Array | None
    ) -> dict[str, Array]:
        """The scores by name, with what the rows add.

        Args:
            scores: by the columns that the model sees.
            calibration: of the model.
            unusual: the outlier scores by these columns, where there are p-values.
        """
        if not self.off.any():
            return scores
        signs = {"outlier_score": self.nats, "log_density_ambient": -self.nats, "reconstruction_error": self.error}
        found = {name: value + signs[name] if name in signs else value for name, value in scores.items()}
        if "p_value" in found and calibration is not None and unusual is not None:
            found["p_value"] = calibration.p_value(unusual + self.nats)
        return found

    def explained(self, found: Explanation, names: Sequence[str], calibration: Calibration | None) -> Explanation:
        """An explanation by the columns that the model sees, with the others."""
        if self.used.all or calibration is None:
            return found
        found = found.with_columns(self.used, self.values, names, self.nats)
        return replace(found, p_value=calibration.p_value(found.score))
