"""Rectangular flows by scikit-learn's conventions: a transformer with a density, and an outlier detector."""

from .base import RectangularFlowEstimator
from .detector import RectangularFlowOutlierDetector

__all__ = ["RectangularFlowEstimator", "RectangularFlowOutlierDetector"]
