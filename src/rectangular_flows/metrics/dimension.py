r"""How many dimensions data have: nearest-neighbour estimates of the intrinsic one, and the linear one for comparison.

Around a point of a d-dimensional manifold, the number of neighbours within a small distance r grows as r^d. The estimates
differ in how far they look: the first two neighbours, or the first twenty. Noise off the manifold counts as dimensions at
the scale at which it is seen, so few rows and distant neighbours see less of it.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.neighbors import NearestNeighbors

from .arrays import Array, as_table

_FRACTION = 0.9  # of the ratios, the smallest, that two_nn uses
_NEIGHBOURS = (10, 20)  # the least and the greatest number, of maximum_likelihood
_MOST_ROWS = 20_000
_BLOCK = 4_000_000  # numbers in a block of differences: 32 MB
_SHARED = math.sqrt(2)  # standard errors over those of independent points; 1.1 to 1.35 in simulations of flat tori


class DuplicateRowsWarning(UserWarning):
    """Equal rows were dropped: they have distance 0, which says nothing of dimension."""


@dataclass(frozen=True)
class Estimate:
    """An intrinsic dimension."""

    value: float
    standard_error: float
    """From the finite number of rows; curvature, noise and edges are not in it."""
    curve: tuple[tuple[int, float], ...] = ()
    """(k, estimate) for each number of neighbours; flat if the estimate does not hang on the scale."""


@dataclass(frozen=True, eq=False)
class Dimensions:
    """What the data say about the dimension of their manifold."""

    two_nn: Estimate
    mle: Estimate
    pca_95: int
    """Principal components with 95 % of the variance."""
    suggestion: int
    """A latent dimension d, 1 ≤ d < D."""
    rows: int
    """Distinct rows the estimates are from."""
    spectrum: Array
    """The share of the variance of standardised columns along each principal component, (D,), falling."""


def two_nn(x: ArrayLike) -> Estimate:
    r"""The intrinsic dimension from the first two neighbours of each point.

    The ratios :math:`\mu_i = r_{i2}/r_{i1}` follow :math:`P(\mu > t) = t^{-d}` where the density is locally constant. The
    largest are left out, as in the paper, which fits a line through the origin to −log(1 − F) against log μ; here the
    same slope is estimated by likelihood, with m = ⌊0.9 N⌋ and the rest known to be larger only:

    .. math::
        \hat d = (m - 1) \Big/ \Bigl(\sum_{i \le m} \log\mu_{(i)} + (N - m)\log\mu_{(m)}\Bigr),

    which has somewhat less spread than the line, and a standard error: d/√(m − 2) for independent points. It is given times
    √2, because many points are each other's neighbours.

    Args:
        x: (N, D), N ≥ 5 distinct rows; equal rows are dropped with a :class:`DuplicateRowsWarning`.

    Cost: a neighbour search, O(N log N) for few columns and O(N² D) for many (over 15).

    Reference:
        Facco, d'Errico, Rodriguez & Laio, *Estimating the intrinsic dimension of datasets by a minimal neighborhood
        information*, Scientific Reports 7 (2017).

    Example:
        >>> x = np.random.default_rng(0).uniform(size=(2000, 2)) @ [[1, 2, 3], [0, 1, 0]]  # a plane in R³
        >>> round(two_nn(x).value)
        2
    """
    distances = _neighbours(_distinct(x, 5), 2)
    ratios = np.sort(np.log(distances[:, 1] / distances[:, 0]))
    used = int(_FRACTION * len(ratios) + 1e-9)
    total = float(ratios[:used].sum() + (len(ratios) - used) * ratios[used - 1])
    if total == 0:
        raise ValueError(
            "expected neighbours at different distances; got equal ones throughout: the rows lie on a grid"
        )
    value = (used - 1) / total
    return Estimate(value, _SHARED * value / math.sqrt(used - 2))


def maximum_likelihood(x: ArrayLike) -> Estimate:
    r"""The intrinsic dimension from the first k neighbours of each point, the mean over k from 10 to 20.

    .. math::
        \hat d_k = \Bigl[\frac{1}{N(k - 1)} \sum_{i=1}^{N} \sum_{j=1}^{k-1} \log\frac{T_k(x_i)}{T_j(x_i)}\Bigr]^{-1},

    T_j being the distance to the j-th neighbour. Levina & Bickel average the dimensions of the points; this averages their
    inverses, which is the likelihood of all points together and has far less bias for small k.

    Args:
        x: (N, D), more than 20 distinct rows; equal rows are dropped with a :class:`DuplicateRowsWarning`.

    Returns:
        The mean over k, with the estimate of each k as ``curve``. The standard error is d√2/√(N(k − 1)), at the middle k:
        the √2 is for points being each other's neighbours.

    Cost: a neighbour search, O(N log N) for few columns and O(N² D) for many (over 15).

    Reference:
        Levina & Bickel, *Maximum likelihood estimation of intrinsic dimension* (NIPS 2004); MacKay & Ghahramani, *Comments
        on 'Maximum likelihood estimation of intrinsic dimension'* (2005).

    Example:
        >>> angle = np.random.default_rng(0).uniform(0, 6.28, 1000)
        >>> round(maximum_likelihood(np.stack([np.cos(angle), np.sin(angle)], axis=1)).value)
        1
    """
    least, most = _NEIGHBOURS
    rows = _distinct(x, most + 1)
    logs = np.log(_neighbours(rows, most))
    curve = []
    for count in range(least, most + 1):
        inverse = float((logs[:, count - 1 : count] - logs[:, : count - 1]).mean())
        if inverse == 0:
            raise ValueError(f"expected neighbours at different distances; got the first {count} equal throughout")
        curve.append((count, 1 / inverse))
    value = float(np.mean([estimate for _, estimate in curve]))
    return Estimate(value, _SHARED * value / math.sqrt(len(rows) * (least + most - 2) / 2), tuple(curve))


def pca_spectrum(x: ArrayLike) -> Array:
    """The share of the variance along each principal component, (D,), falling, with sum 1.

    Args:
        x: (N, D), N ≥ 2, not all rows equal.

    Cost: O(N D²), an SVD of the centred rows (not of their covariance, which would bury what is below 1e-16).

    Example:
        >>> pca_spectrum([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]]).round(3).tolist()
        [0.9, 0.1]
    """
    rows = as_table(x, "x", 2)
    values = np.square(np.linalg.svd(rows - rows.mean(0), compute_uv=False))
    if np.ptp(rows, axis=0).max() == 0:
        raise ValueError(f"expected rows that differ; got {len(rows)} equal rows")
    spectrum = np.zeros(rows.shape[1])
    spectrum[: len(values)] = values / values.sum()
    return spectrum


def estimate_dimension(x: ArrayLike, *, seed: int = 0) -> Dimensions:
    """All estimates for standardised columns, and a suggestion for the latent dimension d of a flow.

    The suggestion is the middle of :func:`two_nn` and :func:`maximum_likelihood`, rounded and kept within 1 and D − 1. Both
    are biased when dimensions are many and rows few: down by edges of the data, up by curvature.

    Args:
        x: (N, D), D ≥ 2, with at least 22 distinct rows among those used. Constant columns count in D, not in distances.
        seed: of the 20,000 rows drawn, where there are more.

    Cost: that of two neighbour searches; seconds for 20,000 rows.

    Example:
        >>> z = np.random.default_rng(0).standard_normal((1000, 2))
        >>> estimate_dimension(np.concatenate([z, np.sin(z), z**2], axis=1)).suggestion
        2
    """
    rows = as_table(x, "x", 22)
    if rows.shape[1] < 2:
        raise ValueError("expected at least 2 columns, for a manifold of lower dimension; got 1")
    if len(rows) > _MOST_ROWS:
        rows = rows[np.sort(np.random.default_rng(seed).choice(len(rows), _MOST_ROWS, replace=False))]
    varies = np.ptp(rows, axis=0) > 0  # the deviation of a constant column may be a rounding above 0
    deviation = np.where(varies, rows.std(0), 1.0)
    rows = _distinct(np.where(varies, (rows - rows.mean(0)) / deviation, 0.0), 22)
    nearest, likelihood = two_nn(rows), maximum_likelihood(rows)
    middle = round((nearest.value + likelihood.value) / 2)
    suggestion = min(max(middle, 1), rows.shape[1] - 1)
    spectrum = pca_spectrum(rows)
    components = int(np.searchsorted(np.cumsum(spectrum), 0.95 - 1e-12)) + 1
    return Dimensions(nearest, likelihood, components, suggestion, len(rows), spectrum)


def _distinct(x: ArrayLike, least: int) -> Array:
    """The rows without repetitions, which are counted in a warning."""
    rows = as_table(x, "x", least)
    unique: Array = np.unique(rows + 0.0, axis=0)  # −0 becomes 0
    if len(unique) < least:
        raise ValueError(f"expected at least {least} distinct rows in x; got {len(unique)} among {len(rows)}")
    if len(unique) < len(rows):
        warnings.warn(
            f"{len(rows) - len(unique)} of {len(rows)} rows repeat others and were left out. If they are many, the data may "
            "be rounded, and distances below the rounding mean nothing: add noise of its size or use fewer rows",
            DuplicateRowsWarning,
            stacklevel=3,
        )
    return unique


def _neighbours(rows: Array, count: int) -> Array:
    """Distances to the nearest neighbours, rising, (N, count), all above 0."""
    centred = rows - rows.mean(0)
    search: Any = NearestNeighbors(n_neighbors=count)
    search.fit(centred)
    index = search.kneighbors(return_distance=False)
    # with many columns the search takes ‖a‖² + ‖b‖² − 2ab for squared distances, which cancels for near points: hence anew
    step = max(1, _BLOCK // (count * rows.shape[1]))
    parts = [
        np.linalg.norm(rows[start : start + step, None] - rows[index[start : start + step]], axis=2)
        for start in range(0, len(rows), step)
    ]
    distances: Array = np.sort(np.concatenate(parts), axis=1)
    if not distances[:, 0].min() > 0:
        raise ValueError("expected distances above 0 between distinct rows; got 0 by underflow: scale the columns up")
    return distances
