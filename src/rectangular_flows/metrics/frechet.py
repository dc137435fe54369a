r"""How far apart two sets of points are in mean and covariance: the paper's FID-like score.

The squared Wasserstein-2 distance between the Gaussians with those moments,

.. math::
    \|\mu_1 - \mu_2\|^2 + \mathrm{tr}\bigl(\Sigma_1 + \Sigma_2 - 2(\Sigma_1\Sigma_2)^{1/2}\bigr).
"""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

_CHUNK = 65_536  # rows turned into float64 at a time
_SLACK = 1e-5  # of the largest entry: what rounding to float32 does to symmetry and signs, and not much more


def frechet_distance(mean1: ArrayLike, cov1: ArrayLike, mean2: ArrayLike, cov2: ArrayLike) -> float:
    r"""The squared Wasserstein-2 distance between two Gaussians, in float64.

    .. math::
        \|\mu_1 - \mu_2\|^2 + \mathrm{tr}\bigl(\Sigma_1 + \Sigma_2 - 2(\Sigma_1\Sigma_2)^{1/2}\bigr)
        = \|\mu_1 - \mu_2\|^2 + \min_{U^\top U = I} \|\Sigma_1^{1/2} - \Sigma_2^{1/2} U\|_F^2

    It is computed as the right-hand side, U being the polar factor of :math:`\Sigma_2^{1/2}\Sigma_1^{1/2}`: a sum of
    squares, hence never negative, never complex, without the cancellation of the left-hand side between equal
    covariances, and right for singular covariances, where the square root of the product Σ₁Σ₂ need not even exist.
    Eigenvalues below 10 Dε of the largest, ε being the rounding unit of the covariance's own dtype, are taken for 0.

    Args:
        mean1: (D,).
        cov1: (D, D), symmetric positive semi-definite.
        mean2: (D,).
        cov2: (D, D).

    Raises:
        ValueError: if shapes differ, an entry is not finite, or a covariance is not symmetric positive semi-definite to
            the rounding of float32.

    Cost: O(D³), two symmetric eigenproblems and one SVD.

    Reference:
        Dowson & Landau, *The Fréchet distance between multivariate normal distributions* (1982); the form with U:
        Bhatia, Jain & Lim, *On the Bures–Wasserstein distance between positive definite matrices*, arXiv:1712.01504.

    Example:
        >>> frechet_distance([0.0, 0.0], [[1.0, 0.0], [0.0, 0.0]], [3.0, 0.0], [[4.0, 0.0], [0.0, 0.0]])
        10.0
    """
    m1, m2 = _mean(mean1, "mean1"), _mean(mean2, "mean2")
    if m1.shape != m2.shape:
        raise ValueError(f"expected means of one length; got {m1.shape} and {m2.shape}")
    A, B = _root(cov1, len(m1), "cov1"), _root(cov2, len(m1), "cov2")
    P, _, Qt = np.linalg.svd(B @ A)
    return float(np.square(m1 - m2).sum() + np.square(A - B @ (P @ Qt)).sum())


def fid_like(samples: ArrayLike, data: ArrayLike) -> float:
    r"""The paper's FID-like score of samples against data: :func:`frechet_distance` of their moments; 0 is best.

    .. math::
        \|\hat\mu - \hat\mu^{(g)}\|_2^2
        + \mathrm{tr}\bigl(\hat\Sigma + \hat\Sigma^{(g)} - 2(\hat\Sigma\hat\Sigma^{(g)})^{1/2}\bigr)

    exactly as in the paper's appendix on FID-like scores: the **squared** distance of the means, covariances with
    1/(n − 1), the data themselves as the statistic (T(x) = x). It is in squared units of the columns, so standardise
    them first if they differ in scale. It does not vanish between two finite samples of one distribution: for n points
    each from a standard Gaussian it is about (2D + D(D + 1)/2)/n. Hence
    :func:`~rectangular_flows.metrics.two_sample.real_floor`.

    Args:
        samples: (M, D), M ≥ 2.
        data: (N, D), N ≥ 2.

    Cost: O((M + N) D² + D³), with float64 copies of 65,536 rows at a time.

    Reference:
        Caterini et al., *Rectangular Flows for Manifold Learning*, arXiv:2106.01413; Heusel et al., arXiv:1706.08500.

    Example:
        >>> x = np.random.default_rng(0).standard_normal((1000, 3))
        >>> round(fid_like(x + [1, 0, 0], x), 6)
        1.0
    """
    return frechet_distance(*moments(samples, name="samples"), *moments(data, name="data"))


def moments(x: ArrayLike, *, name: str = "x") -> tuple[Array, Array]:
    r"""Mean (D,) and covariance (D, D) with 1/(n − 1) of the rows of ``x``, (N, D), in float64.

    Args:
        x: (N, D), N ≥ 2, finite.
        name: what error messages call it.

    Cost: O(N D²); copies of 65,536 rows at a time.

    Example:
        >>> mean, cov = moments([[0.0, 1.0], [2.0, 1.0]])
        >>> mean.tolist(), cov.tolist()
        ([1.0, 1.0], [[2.0, 0.0], [0.0, 0.0]])
    """
    rows = _shaped(x, name, 2)
    stream = StreamingMoments()
    for start in range(0, len(rows), _CHUNK):
        stream.update(rows[start : start + _CHUNK], name=name)
    return stream.moments()


class StreamingMoments:
    r"""Mean and covariance of rows that come in chunks of any size, as if they had come at once.

    With chunk b after the rows a, δ = μ_b − μ_a and S the sum of squares about the mean,

    .. math::
        \mu = \mu_a + \delta\,\tfrac{n_b}{n}, \qquad S = S_a + S_b + \delta\delta^\top\tfrac{n_a n_b}{n},

    which does not cancel as Σxxᵀ − nμμᵀ does when the mean is large.

    Cost: O(N D²) time in all, O(D²) memory besides a chunk.

    Reference:
        Chan, Golub & LeVeque, *Algorithms for computing the sample variance* (1983).

    Example:
        >>> stream = StreamingMoments()
        >>> for chunk in ([[0.0], [1.0]], [[5.0]]):
        ...     stream = stream.update(chunk)
        >>> stream.count, stream.mean.tolist(), stream.covariance.tolist()
        (3, [2.0], [[7.0]])
    """

    def __init__(self) -> None:
        self.count = 0
        self._mean: Array = np.zeros(0)
        self._scatter: Array = np.zeros((0, 0))

    def update(self, chunk: ArrayLike, *, name: str = "chunk") -> Self:
        """Take in the rows of ``chunk``, (n, D), n ≥ 0; returns itself."""
        rows = _table(chunk, name, 0)
        if not len(rows):
            return self
        mean = rows.mean(0)
        centred = rows - mean
        return self._add(len(rows), mean, centred.T @ centred)

    def merge(self, other: StreamingMoments) -> Self:
        """Take in all that ``other`` has seen, another process's share for instance; returns itself."""
        return self._add(other.count, other._mean, other._scatter)

    @property
    def mean(self) -> Array:
        """(D,)."""
        return self.moments()[0]

    @property
    def covariance(self) -> Array:
        """(D, D), with 1/(n − 1)."""
        return self.moments()[1]

    def moments(self) -> tuple[Array, Array]:
        """Mean and covariance of everything so far."""
        if self.count < 2:
            raise ValueError(f"expected at least 2 rows for a covariance; got {self.count}")
        return self._mean.copy(), self._scatter / (self.count - 1)

    def _add(self, count: int, mean: Array, scatter: Array) -> Self:
        if not count:
            return self
        if not self.count:
            self.count, self._mean, self._scatter = count, mean.copy(), scatter.copy()
            return self
        if mean.shape != self._mean.shape:
            raise ValueError(f"expected {len(self._mean)} columns, as in the rows before; got {len(mean)}")
        total = self.count + count
        delta = mean - self._mean
        self._mean = self._mean + delta * (count / total)
        self._scatter = self._scatter + scatter + np.outer(delta, delta) * (self.count * (count / total))
        self.count = total
        return self


def _mean(mean: ArrayLike, name: str) -> Array:
    vector = np.asarray(mean, dtype=np.float64)
    if vector.ndim != 1 or not len(vector):
        raise ValueError(f"expected {name} of shape (D,); got {vector.shape}")
    if not np.isfinite(vector).all():
        raise ValueError(f"expected finite {name}; got {int((~np.isfinite(vector)).sum())} values that are not")
    return vector


def _root(cov: ArrayLike, size: int, name: str) -> Array:
    """The symmetric square root."""
    given = np.asarray(cov)
    matrix = given.astype(np.float64)
    if matrix.shape != (size, size):
        raise ValueError(f"expected {name} of shape {(size, size)}; got {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise ValueError(f"expected finite {name}; got {int((~np.isfinite(matrix)).sum())} values that are not")
    scale, skew = np.abs(matrix).max(), np.abs(matrix - matrix.T).max()
    if skew > _SLACK * scale:
        raise ValueError(f"expected symmetric {name}; got entries that differ by {skew:.3g} from their mirror images")
    eigenvalues, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    if eigenvalues[0] < -_SLACK * scale * size:
        raise ValueError(f"expected positive semi-definite {name}; got an eigenvalue of {eigenvalues[0]:.3g}")
    # an eigenvalue of 0 comes out as ±ε, and the root of that is no rounding any more: 1e-8 of the largest
    unit = np.finfo(given.dtype if given.dtype.kind == "f" else np.float64).eps
    eigenvalues[eigenvalues <= 10 * size * unit * eigenvalues[-1]] = 0
    return (vectors * np.sqrt(eigenvalues)) @ vectors.T


def _shaped(x: ArrayLike, name: str, rows: int) -> NDArray[np.generic]:
    """As an array of real numbers (N, D) with at least so many rows and one column."""
    array: NDArray[np.generic] = np.asarray(x)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"expected real numbers in {name}; got dtype {array.dtype}")
    if array.ndim != 2 or not array.shape[1]:
        raise ValueError(f"expected {name} of shape (N, D); got {array.shape}")
    if len(array) < rows:
        raise ValueError(f"expected at least {rows} rows in {name}; got {len(array)}")
    return array


def _table(x: ArrayLike, name: str, rows: int) -> Array:
    """The same in float64, every entry finite."""
    array = _shaped(x, name, rows).astype(np.float64, copy=False)
    finite = np.isfinite(array)
    if not finite.all():
        bad = np.flatnonzero(~finite.all(1))
        raise ValueError(
            f"expected finite numbers in {name}; got {int((~finite).sum())} that are not, in {len(bad)} of {len(array)} "
            f"rows (first rows: {bad[:5].tolist()})"
        )
    return array


def _two_tables(samples: ArrayLike, data: ArrayLike, rows: int) -> tuple[Array, Array]:
    """Two sets of points with the same columns."""
    first, second = _table(samples, "samples", rows), _table(data, "data", rows)
    if first.shape[1] != second.shape[1]:
        raise ValueError(f"expected the same columns in samples and data; got {first.shape[1]} and {second.shape[1]}")
    return first, second


__all__ = ["StreamingMoments", "fid_like", "frechet_distance", "moments"]
