r"""How far apart two sets of points are in mean and covariance: the paper's FID-like score."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arrays import Array, same_columns

_CHUNK = 65_536  # rows turned into float64 at a time


def frechet_distance(mean1: ArrayLike, cov1: ArrayLike, mean2: ArrayLike, cov2: ArrayLike) -> float:
    r"""The squared Wasserstein-2 distance between two Gaussians with means (D,) and covariances (D, D), in O(D³).

    .. math::
        \|\mu_1 - \mu_2\|^2 + \mathrm{tr}\bigl(\Sigma_1 + \Sigma_2 - 2(\Sigma_1\Sigma_2)^{1/2}\bigr)
        = \|\mu_1 - \mu_2\|^2 + \min_{U^\top U = I} \|\Sigma_1^{1/2} - \Sigma_2^{1/2} U\|_F^2

    It is computed as the right-hand side, U being the polar factor of :math:`\Sigma_2^{1/2}\Sigma_1^{1/2}`: a sum of
    squares, hence never negative, without cancellation between equal covariances, and right for singular ones.

    Reference:
        Dowson & Landau, *The Fréchet distance between multivariate normal distributions* (1982); the form with U:
        Bhatia, Jain & Lim, *On the Bures–Wasserstein distance between positive definite matrices*, arXiv:1712.01504.

    Example:
        >>> frechet_distance([0.0, 0.0], [[1.0, 0.0], [0.0, 0.0]], [3.0, 0.0], [[4.0, 0.0], [0.0, 0.0]])
        10.0
    """
    A, B = _root(cov1), _root(cov2)
    P, _, Qt = np.linalg.svd(B @ A)
    return float(np.square(np.subtract(mean1, mean2)).sum() + np.square(A - B @ (P @ Qt)).sum())


def fid_like(samples: ArrayLike, data: ArrayLike) -> float:
    r"""The paper's FID-like score of samples (M, D) against data (N, D): :func:`frechet_distance` of their moments.

    The distance of the means is **squared**, covariances have 1/(n − 1), the data themselves are the statistic, as in the
    paper's appendix. It is in squared units of the columns, so standardise them first if they differ in scale. It does not
    vanish between finite samples of one distribution: for n points each from a standard Gaussian it is about
    (2D + D(D + 1)/2)/n.

    Reference:
        Caterini et al., *Rectangular Flows for Manifold Learning*, arXiv:2106.01413; Heusel et al., arXiv:1706.08500.

    Example:
        >>> x = np.random.default_rng(0).standard_normal((1000, 3))
        >>> round(fid_like(x + [1, 0, 0], x), 6)
        1.0
    """
    x, y = same_columns(2, dtype=None, samples=samples, data=data)
    return frechet_distance(*moments(x), *moments(y))


def moments(rows: NDArray[np.number]) -> tuple[Array, Array]:
    r"""Mean and covariance with 1/(n − 1) of rows (N, D), in float64, with copies of 65,536 rows at a time.

    With chunk b after the rows a, δ = μ_b − μ_a and S the sum of squares about the mean,

    .. math::
        \mu = \mu_a + \delta\,\tfrac{n_b}{n}, \qquad S = S_a + S_b + \delta\delta^\top\tfrac{n_a n_b}{n},

    which does not cancel as Σxxᵀ − nμμᵀ does when the mean is large (Chan, Golub & LeVeque, 1983).
    """
    mean, scatter = np.zeros(rows.shape[1]), np.zeros((rows.shape[1], rows.shape[1]))
    for start in range(0, len(rows), _CHUNK):
        chunk = rows[start : start + _CHUNK].astype(np.float64)
        centre, share = chunk.mean(0), len(chunk) / (start + len(chunk))
        centred, delta = chunk - centre, centre - mean
        mean = mean + delta * share
        scatter = scatter + centred.T @ centred + np.outer(delta, delta) * (start * share)
    return mean, scatter / (len(rows) - 1)


def _root(cov: ArrayLike) -> Array:
    """The symmetric square root."""
    eigenvalues, vectors = np.linalg.eigh(np.asarray(cov, dtype=np.float64))
    # an eigenvalue of 0 comes out as ±ε, and the root of that is no rounding any more: 1e-8 of the largest
    eigenvalues[eigenvalues <= 10 * len(vectors) * np.finfo(np.float64).eps * eigenvalues[-1]] = 0
    return (vectors * np.sqrt(eigenvalues)) @ vectors.T
