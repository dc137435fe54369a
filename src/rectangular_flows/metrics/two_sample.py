r"""Whether two sets of points come from one distribution.

A distance between finite samples is never 0, so a value means little without its **floor**: the same distance between as
many real points and other real ones.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from .arrays import Array, same_columns

Metric = Callable[[Array, Array], float]

_BLOCK = 4_000_000  # projected values at a time: 32 MB, and a few times that in passing
_FOLDS, _MOST_ROWS = 5, 20_000  # of the classifier


def sliced_wasserstein(samples: ArrayLike, data: ArrayLike, *, projections: int = 256, seed: int = 0) -> float:
    r"""The squared sliced Wasserstein-2 distance: the mean squared 1-D distance over random directions θ of the unit sphere.

    .. math::
        SW_2^2 = \mathbb{E}_\theta\, W_2^2(\theta^\top X, \theta^\top Y), \qquad
        W_2^2(a, b) = \int_0^1 \bigl(F_a^{-1}(u) - F_b^{-1}(u)\bigr)^2\,du,

    each integral exact, for unequal numbers of points too, of samples (M, D) and data (N, D). The directions come as random
    orthonormal bases: each is uniform, so the mean is unbiased, and over a whole basis the effect of a shift v is exactly
    its mean ‖v‖²/D. In squared units of the columns: standardise them first if they differ in scale.

    Reference:
        Bonneel et al., *Sliced and Radon Wasserstein barycenters of measures* (2015); orthonormal directions: Rowland et
        al., *Orthogonal estimation of Wasserstein distances*, arXiv:1903.03784.

    Example:
        >>> x = np.random.default_rng(0).standard_normal((500, 3))
        >>> round(sliced_wasserstein(x + [2, 0, 0], x, projections=30), 6)  # ‖v‖²/D
        1.333333
    """
    x, y = same_columns(1, samples=samples, data=data)
    if projections < 1:
        raise ValueError(f"expected at least 1 projection; got {projections}")
    directions = _directions(x.shape[1], projections, seed)
    left, right, weight = _matched(len(x), len(y))
    size = max(1, _BLOCK // (len(x) + len(y)))
    total = 0.0
    for start in range(0, len(directions), size):
        block = directions[start : start + size]
        a, b = np.sort(block @ x.T, axis=1), np.sort(block @ y.T, axis=1)
        gap = a - b if len(x) == len(y) else a[:, left] - b[:, right]
        total += float((np.square(gap) @ weight).sum())
    return total / len(directions)


def classifier_two_sample(samples: ArrayLike, data: ArrayLike, *, seed: int = 0, trees: int = 100) -> float:
    """The classifier two-sample test: the held-out accuracy of gradient-boosted trees that classify samples and data.

    Samples (M, D) and data (N, D) are cut to equally many rows, at most 20,000, so that 0.5 is chance; each row is judged by
    trees fitted on the other four fifths. An accuracy clearly *below* 0.5 says that the two sets share rows: a row seen
    under one label in training is then met under the other.

    ``trees`` bounds the trees of a classifier.

    Reference:
        Lopez-Paz & Oquab, *Revisiting classifier two-sample tests*, arXiv:1610.06545.

    Example:
        >>> x = np.random.default_rng(0).standard_normal((200, 2))
        >>> classifier_two_sample(x[:100] + 9, x[100:]) > 0.95
        True
    """
    x, y = same_columns(2 * _FOLDS, samples=samples, data=data)
    size = min(len(x), len(y), _MOST_ROWS)
    random = np.random.default_rng(seed)
    rows = np.concatenate([_draw(x, size, random), _draw(y, size, random)])
    label = np.repeat([0, 1], size)
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=seed)
    model = HistGradientBoostingClassifier(random_state=seed, max_iter=trees)
    decisions = cross_val_predict(model, rows, label, cv=folds, method="decision_function")
    return float(((decisions > 0) == label).mean())


def real_floor(metric: Metric, data: ArrayLike, reference: ArrayLike, *, size: int, seed: int = 0) -> float:
    """What ``metric`` says of ``size`` rows of ``reference`` against as many of ``data``, both real, with no common row."""
    random = np.random.default_rng(seed)
    first, second = np.asarray(reference, dtype=np.float64), np.asarray(data, dtype=np.float64)
    most = min(len(first), len(second))
    if not 1 <= size <= most:
        raise ValueError(f"expected size from 1 to {most}, the rows there are on each side; got {size}")
    return metric(_draw(first, size, random), _draw(second, size, random))


def equally_many(samples: ArrayLike, data: ArrayLike, reference: ArrayLike, *, seed: int = 0) -> list[Array]:
    """As many rows of each set as the smallest has, drawn at random: distances of finite samples fall with their number."""
    parts = same_columns(10, samples=samples, data=data, reference=reference)
    random, size = np.random.default_rng(seed), min(map(len, parts))
    return [_draw(rows, size, random) for rows in parts]


def _draw(rows: Array, size: int, random: np.random.Generator) -> Array:
    """So many rows in random order, without replacement."""
    return rows[random.permutation(len(rows))[:size]]


def _directions(columns: int, count: int, seed: int) -> Array:
    """Unit vectors, (count, D), each uniform but for its sign, which no distance sees; orthonormal in groups of D."""
    if columns == 1:
        return np.ones((1, 1))
    random = np.random.default_rng(seed)
    width = min(columns, count)  # fewer directions than columns: one group, of which no more than needed is made
    groups = [np.linalg.qr(random.standard_normal((columns, width)))[0].T for _ in range(-(-count // width))]
    return np.concatenate(groups)[:count]


def _matched(n: int, m: int) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
    """Which sorted values of n and of m meet at each step of the two quantile functions, and the steps' lengths."""
    # steps end at i/n and j/m: whole numbers in units of 1/(nm), so that common ends are found exactly
    ends = np.union1d(np.arange(1, n + 1, dtype=np.int64) * m, np.arange(1, m + 1, dtype=np.int64) * n)
    return (ends - 1) // m, (ends - 1) // n, np.diff(ends, prepend=0) / (n * m)
