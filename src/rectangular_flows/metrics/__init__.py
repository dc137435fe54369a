"""How good a fit is: against a known truth, by samples, by what it says of other data; and the dimension of data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy

if TYPE_CHECKING:
    from .dimension import Dimensions, estimate_dimension
    from .frechet import fid_like, frechet_distance
    from .geometry import CircleFit, circle_fit
    from .out_of_distribution import CombinedScore, Detection, detect
    from .two_sample import Compared, classifier_two_sample, compare, sliced_wasserstein

_HOMES = {
    "CircleFit": ".geometry",
    "CombinedScore": ".out_of_distribution",
    "Compared": ".two_sample",
    "Detection": ".out_of_distribution",
    "Dimensions": ".dimension",
    "circle_fit": ".geometry",
    "classifier_two_sample": ".two_sample",
    "compare": ".two_sample",
    "detect": ".out_of_distribution",
    "estimate_dimension": ".dimension",
    "fid_like": ".frechet",
    "frechet_distance": ".frechet",
    "sliced_wasserstein": ".two_sample",
}
__getattr__, __dir__ = lazy(__name__, _HOMES)

__all__ = [
    "CircleFit",
    "CombinedScore",
    "Compared",
    "Detection",
    "Dimensions",
    "circle_fit",
    "classifier_two_sample",
    "compare",
    "detect",
    "estimate_dimension",
    "fid_like",
    "frechet_distance",
    "sliced_wasserstein",
]
