"""An outlier detector by scikit-learn's conventions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import OutlierMixin

from .base import RectangularFlowEstimator
from .frames import Array

_AUTO_SHARE = 0.01  # of usual rows that contamination = "auto" lets be called outliers


@dataclass(kw_only=True, eq=False, repr=False)
class RectangularFlowOutlierDetector(OutlierMixin, RectangularFlowEstimator):
    """Rows that do not belong: unlikely under the density in all columns, or far from every known row.

    ``score_samples`` is here minus the outlier score of ``rnf score``, from tail probabilities among rows that were held
    out of training (see :class:`~rectangular_flows.runs.calibration.Calibration`); the log-density on the manifold alone
    is :meth:`log_density`.

    Args:
        contamination: the share of new rows like those of ``fit`` that ``predict`` calls outliers, from 0 to 0.5. It is a
            promise about rows that the model has not seen; of the rows of ``fit`` themselves, somewhat fewer exceed the
            threshold. 0 calls those outliers that are more unusual than every known row; "auto" is 0.01.
        settings: every other argument of :class:`RectangularFlowEstimator`.

    Attributes:
        offset_: ``decision_function`` is ``score_samples`` less this.

    Example:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).normal(size=(200, 3)) * [1, 1, 0.01]
        >>> detector = RectangularFlowOutlierDetector(latent_dim=2, epochs=2, random_state=0).fit(X)
        >>> detector.predict([[0.0, 0.0, 5.0]])
        array([-1])
    """

    contamination: float | Literal["auto"] = 0.1
    offset_: float = field(init=False)

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Learn what is usual from the rows of X, and the threshold that calls ``contamination`` of them outliers."""
        share = _AUTO_SHARE if self.contamination == "auto" else self.contamination
        if isinstance(share, str) or not 0 <= share <= 0.5:
            raise ValueError(f"expected 0 ≤ contamination ≤ 0.5, or 'auto'; got {self.contamination!r}")
        super().fit(X, y)
        if self.calibration_ is None:
            raise ValueError("no row has a finite density under the model: check the data for extreme values")
        self.offset_ = -self.calibration_.threshold(share)
        return self

    def p_value(self, X: ArrayLike) -> Array:
        """Share of usual rows that are at least as unusual as each row, (N,): conformal p-values."""
        return self.scores(X, "p_value")["p_value"]

    def log_density(self, X: ArrayLike) -> Array:
        """Log-density of the projection of every row, (N,)."""
        return super().score_samples(X)

    def score_samples(self, X: ArrayLike) -> Array:
        """The higher, the more usual, (N,)."""
        return -self.scores(X, "outlier_score")["outlier_score"]

    def decision_function(self, X: ArrayLike) -> Array:
        """Negative for outliers, (N,)."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: ArrayLike) -> Array:
        """−1 for outliers and 1 for the others, (N,)."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    def _facts(self) -> dict[str, Any]:
        return {"offset": self.offset_}

    def _take_facts(self, fitted: dict[str, Any]) -> None:
        if "offset" not in fitted:
            raise ValueError(
                "a plain RectangularFlowEstimator was saved there; load it with RectangularFlowEstimator.load"
            )
        self.offset_ = fitted["offset"]
