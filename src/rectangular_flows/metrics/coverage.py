r"""Whether a density is calibrated, where the truth is known.

The region of highest density at a nominal level α is the smallest that holds a share α of the model's probability,
:math:`\{x : p(x) \ge t_\alpha\}`. Of points drawn from the truth it holds as many if the model is right. The level of a
point, :math:`u(x) = P(p(X) \ge p(x))` with X from the model, is then uniform on (0, 1); so are the truth's probability
integral transforms of the model's samples (see :mod:`rectangular_flows.data.truths`).

Reference: Hyndman, *Computing and graphing highest density regions*, The American Statistician 50 (1996).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..data.datasets import find_dataset
from ..data.truths import Truth
from ..manifold import RectangularFlow

Array = npt.NDArray[Any]

LEVELS = (0.5, 0.9, 0.99)
"""The nominal levels that are reported."""
_DRAWS, _SAMPLES = 50_000, 10_000  # from the truth, and from the model


@dataclass(frozen=True, eq=False)
class Coverage:
    """A model beside the truth, by points of the truth that it was not trained on and samples of its own."""

    truth: Truth
    levels: Array
    """Of the smallest region of highest density of the model that holds each point of the truth, (N,)."""
    true_levels: Array
    """The same of the truth's own regions: what a perfect model would have of these points."""
    uniforms: Array
    """The truth's probability integral transforms of samples, (M, d)."""
    true_uniforms: Array
    """Those of the points of the truth, (N, d)."""
    distances: Array
    """Of samples from the true manifold, (M,)."""

    def share(self, nominal: float) -> float:
        """Of the points in the model's region of that level."""
        return float((self.levels <= nominal).mean())

    def true_share(self, nominal: float) -> float:
        """Of the points in the truth's region of that level."""
        return float((self.true_levels <= nominal).mean())

    def standard_error(self, nominal: float) -> float:
        """Of such a share, where the model is right."""
        return float(np.sqrt(nominal * (1 - nominal) / len(self.levels)))


def truth_of(source: str | None, flow: RectangularFlow) -> Truth | None:
    """The known truth of a data set for a model of its dimension; None where there is none."""
    entry = None if source is None else find_dataset(source)
    truth = None if entry is None else entry.known_truth()
    return truth if truth is not None and truth.latent_dim == flow.latent_dim else None


@torch.no_grad()
def coverage(flow: RectangularFlow, truth: Truth, points: Tensor, seed: int = 0) -> Coverage:
    """Compare a model with the truth.

    Args:
        flow: the model.
        truth: what it should be.
        points: of the truth, not trained on, (N, D).
        seed: of the draws, from the model and from the truth.
    """
    samples = flow.sample(_SAMPLES, generator=torch.Generator().manual_seed(seed))
    rows, drawn = (part.double().numpy() for part in (points, samples))
    true = truth.place(truth.draw(_DRAWS, np.random.default_rng(seed)))
    return Coverage(
        truth,
        levels(flow.log_prob(points, check=False).double().numpy(), flow.log_prob(samples).double().numpy()),
        levels(truth.log_density(rows), truth.log_density(true)),
        truth.uniforms(drawn),
        truth.uniforms(rows),
        truth.distance(drawn),
    )


def levels(values: Array, draws: Array) -> Array:
    """Levels of points with these log-densities, by the log-densities of draws: the share of draws that are no less likely.

    Example:
        >>> levels(np.array([3.0, -1.0, 0.5]), np.array([0.0, 1.0, 2.0, 0.5]))
        array([0.  , 1.  , 0.75])
    """
    below = np.searchsorted(np.sort(draws), values, side="left")
    return 1 - below / len(draws)


def uniform_distance(values: Array) -> float:
    """The largest difference between the distribution function of numbers and that of the uniform one (Kolmogorov's).

    Example:
        >>> uniform_distance(np.array([0.1, 0.6]))
        0.4
    """
    ordered, count = np.sort(values), len(values)
    steps = np.arange(count + 1) / count
    return float(max((steps[1:] - ordered).max(), (ordered - steps[:-1]).max()))
