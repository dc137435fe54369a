"""Rows that break the rules of columns left out of a model: that these hold one value, or repeat another."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ..data.columns import WholeTable
from ..metrics.arrays import Array
from ..runs.calibration import Calibration
from .explain import Explanation


class Broken:
    """What rows add to their scores where they break the rules of columns left out.

    A row adds log(n + 2) nats for each rule it breaks, by Laplace's rule of succession: n rows trained on kept it.

    Args:
        whole: the table that the model was trained on.
        values: all columns of the rows, (N, D).
    """

    def __init__(self, whole: WholeTable, values: Array):
        self.whole, self.values, self.off = whole, values, whole.used.off(values)
        self.nats: Array = (self.off != 0).sum(axis=1) * math.log(whole.rows + 2)
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

    def explained(self, found: Explanation, calibration: Calibration | None) -> Explanation:
        """An explanation by the columns that the model sees, with the others."""
        if self.whole.used.all or calibration is None:
            return found
        found = found.with_columns(self.whole.used, self.values, self.whole.names, self.nats)
        return replace(found, p_value=calibration.p_value(found.score))
