"""Rectangular flows: learn a low-dimensional manifold in data and the density on it, by maximum likelihood."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._lazy import lazy
from ._version import __version__

if TYPE_CHECKING:
    from . import densities, errors, flows, volume
    from .estimator import RectangularFlowEstimator, RectangularFlowOutlierDetector
    from .manifold import RectangularFlow
    from .runs.saved import SavedRun
    from .storage.models import load_model as load
    from .storage.models import save_model as save
    from .training import Run, TrainingConfig, fit

_HOMES = {
    "RectangularFlow": ".manifold",
    "RectangularFlowEstimator": ".estimator",
    "RectangularFlowOutlierDetector": ".estimator",
    "Run": ".training.run",
    "SavedRun": ".runs.saved",
    "TrainingConfig": ".training.config",
    "densities": "",
    "errors": "",
    "fit": ".training.loop",
    "flows": "",
    "load": ".storage.models:load_model",
    "save": ".storage.models:save_model",
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
    "SavedRun",
    "TrainingConfig",
    "__version__",
    "densities",
    "errors",
    "fit",
    "flows",
    "load",
    "save",
    "volume",
]
