"""Rectangular flows: learn a low-dimensional manifold in data and the density on it, by maximum likelihood."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._lazy import lazy
from ._version import __version__

if TYPE_CHECKING:
    from . import errors, flows, volume
    from .estimator import RectangularFlowEstimator
    from .manifold import RectangularFlow
    from .outliers import RectangularFlowOutlierDetector
    from .storage import load_model as load
    from .storage import save_model as save
    from .training import Run, TrainingConfig, fit

_HOMES = {
    "RectangularFlow": ".manifold",
    "RectangularFlowEstimator": ".estimator",
    "RectangularFlowOutlierDetector": ".outliers",
    "Run": ".training.run",
    "TrainingConfig": ".training.config",
    "errors": "",
    "fit": ".training.loop",
    "flows": "",
    "load": ".storage:load_model",
    "save": ".storage:save_model",
    "volume": "",
}
__getattr__, _names = lazy(__name__, _HOMES)


def __dir__() -> list[str]:
    return [*_names(), "__version__"]


__all__ = [
    "RectangularFlow",
    "RectangularFlowEstimator",
    "RectangularFlowOutlierDetector",
    "Run",
    "TrainingConfig",
    "__version__",
    "errors",
    "fit",
    "flows",
    "load",
    "save",
    "volume",
]
