"""How good a fit is: against a known truth, by samples, by what it says of other data; and the dimension of data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy

if TYPE_CHECKING:
    from .dimension import Dimensions, estimate_dimension
    from .frechet import fid_like, frechet_distance
    from .geometry import CircleFit, circle_fit
    from .image_quality import ImageQuality, compare_images, fid, kid, precision_recall
    from .inception import features, find_inception, load_inception
    from .out_of_distribution import CombinedScore, Detection, detect
    from .two_sample import Compared, classifier_two_sample, compare, sliced_wasserstein

_HOMES = {
    "CircleFit": ".geometry",
    "CombinedScore": ".out_of_distribution",
    "Compared": ".two_sample",
    "Detection": ".out_of_distribution",
    "Dimensions": ".dimension",
    "ImageQuality": ".image_quality",
    "circle_fit": ".geometry",
    "classifier_two_sample": ".two_sample",
    "compare": ".two_sample",
    "compare_images": ".image_quality",
    "detect": ".out_of_distribution",
    "estimate_dimension": ".dimension",
    "features": ".inception",
    "fid": ".image_quality",
    "fid_like": ".frechet",
    "find_inception": ".inception",
    "frechet_distance": ".frechet",
    "kid": ".image_quality",
    "load_inception": ".inception",
    "precision_recall": ".image_quality",
    "sliced_wasserstein": ".two_sample",
}
__getattr__, __dir__ = lazy(__name__, _HOMES)

__all__ = [
    "CircleFit",
    "CombinedScore",
    "Compared",
    "Detection",
    "Dimensions",
    "ImageQuality",
    "circle_fit",
    "classifier_two_sample",
    "compare",
    "compare_images",
    "detect",
    "estimate_dimension",
    "features",
    "fid",
    "fid_like",
    "find_inception",
    "frechet_distance",
    "kid",
    "load_inception",
    "precision_recall",
    "sliced_wasserstein",
]
