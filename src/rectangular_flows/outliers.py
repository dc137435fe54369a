"""An outlier detector by scikit-learn's conventions."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import OutlierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from .estimator import Array, RectangularFlowEstimator
from .metrics.out_of_distribution import CombinedScore


class RectangularFlowOutlierDetector(OutlierMixin, RectangularFlowEstimator):
    """Rows that do not belong: far from the manifold, or where its density is low, judged together.

    ``score_samples`` is here the combined score, from the tail probabilities of log-density and distance among rows that
    were held out of training; the log-density alone is :meth:`log_density`. Arguments are those of
    :class:`RectangularFlowEstimator` and ``contamination``.

    Args:
        contamination: the share of the rows that ``predict`` calls outliers.
        settings: see :class:`RectangularFlowEstimator`.

    Attributes:
        offset_: ``decision_function`` is ``score_samples`` less this.

    Example:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).normal(size=(200, 3)) * [1, 1, 0.01]
        >>> detector = RectangularFlowOutlierDetector(latent_dim=2, epochs=2, random_state=0).fit(X)
        >>> detector.predict([[0.0, 0.0, 5.0]])
        array([-1])
    """

    def __init__(
        self,
        *,
        contamination: float = 0.1,
        latent_dim: int | Literal["auto"] = 2,
        layers: int = 6,
        hidden: tuple[int, ...] = (64, 64),
        latent: str = "spline",
        beta: float = 50.0,
        target_error: float | None = None,
        volume: Literal["exact", "stochastic"] = "exact",
        probes: int = 1,
        epochs: int | Literal["auto"] = "auto",
        batch_size: int = 500,
        learning_rate: float = 2e-3,
        patience: int | None = None,
        validation_fraction: float = 0.1,
        dtype: Literal["float32", "float64"] = "float32",
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ):
        settings = {
            name: value for name, value in locals().items() if name not in ("self", "contamination", "__class__")
        }
        super().__init__(**settings)
        self.contamination = contamination

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Learn what is usual from the rows of X, and the threshold that calls ``contamination`` of them outliers."""
        if not 0 < self.contamination <= 0.5:
            raise ValueError(f"expected 0 < contamination ≤ 0.5; got {self.contamination}")
        super().fit(X, y)
        self.offset_ = float(np.quantile(self.score_samples(X), self.contamination))
        return self

    def _judge(self, rows: Tensor) -> None:
        scores = self._of_rows(rows.to(getattr(torch, self.dtype)))
        self._usual = scores
        self._combined = CombinedScore().fit(*scores)

    def log_density(self, X: ArrayLike) -> Array:
        """Log-density of the projection of every row, (N,)."""
        return super().score_samples(X)

    def score_samples(self, X: ArrayLike) -> Array:
        """The higher, the more usual, (N,)."""
        check_is_fitted(self)
        return self._combined(*self._scores(X))

    def decision_function(self, X: ArrayLike) -> Array:
        """Negative for outliers, (N,)."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: ArrayLike) -> Array:
        """−1 for outliers and 1 for the others, (N,)."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    def _scores(self, X: ArrayLike) -> tuple[Array, Array]:
        check_is_fitted(self)
        return self._of_rows(self._rows(X))

    def _of_rows(self, rows: Tensor) -> tuple[Array, Array]:
        parts = (self._over(function, rows) for function in (self.flow_.log_prob, self.flow_.reconstruction_error))
        log_density, error = (part.astype(np.float64) for part in parts)
        return log_density, error

    def _facts(self) -> dict[str, Any]:
        return {"offset": self.offset_, "usual": [part.tolist() for part in self._usual]}

    def _take_facts(self, fitted: dict[str, Any]) -> None:
        if "offset" not in fitted:
            raise ValueError(
                "a plain RectangularFlowEstimator was saved there; load it with RectangularFlowEstimator.load"
            )
        self.offset_ = fitted["offset"]
        log_density, error = fitted["usual"]
        self._usual = np.array(log_density), np.array(error)
        self._combined = CombinedScore().fit(*self._usual)


__all__ = ["RectangularFlowOutlierDetector"]
