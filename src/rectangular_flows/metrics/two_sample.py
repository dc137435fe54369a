r"""Whether two sets of points come from one distribution: three distances, each beside what real data score.

A distance between finite samples is never 0, so a value means little without its **floor**: the same distance between as
many real points and other real ones. See :func:`equally_many`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import StratifiedKFold

from .arrays import Array, as_table, same_columns

Metric = Callable[[Array, Array], float]

_BLOCK = 4_000_000  # projected values at a time: 32 MB, and a few times that in passing
_FOLDS, _MOST_ROWS = 5, 20_000  # of the classifier


def sliced_wasserstein(samples: ArrayLike, data: ArrayLike, *, projections: int = 256, seed: int = 0) -> float:
    r"""The squared sliced Wasserstein-2 distance: the mean squared 1-D distance over random directions θ of the unit sphere.

    .. math::
        SW_2^2 = \mathbb{E}_\theta\, W_2^2(\theta^\top X, \theta^\top Y), \qquad
        W_2^2(a, b) = \int_0^1 \bigl(F_a^{-1}(u) - F_b^{-1}(u)\bigr)^2\,du,

    each integral exact, for unequal numbers of points too. The directions come as random orthonormal bases: each is
    uniform, so the mean is unbiased, and over a whole basis the effect of a shift v is exactly its mean ‖v‖²/D. With one
    column there is one direction. In squared units of the columns: standardise them first if they differ in scale.

    Args:
        samples: (M, D).
        data: (N, D).
        projections: how many directions; the relative error of what is left to chance is of the order of their inverse root.
        seed: of the directions; the same seed gives the same value.

    Cost: O(projections · (M + N)(D + log(M + N))), memory for about 4 million projected values: 1 to 2 s for 50,000 rows
    each, D = 6 and 256 directions on one core.

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

    Samples and data are cut to equally many rows, at most 20,000, drawn without replacement, so that 0.5 is chance; each
    row is judged by trees fitted on the other four fifths. An accuracy clearly *below* 0.5 says that the two sets share
    rows: a row seen under one label in training is then met under the other.

    Args:
        samples: (M, D), M ≥ 10.
        data: (N, D), N ≥ 10.
        seed: of subsets, folds and trees.
        trees: of a classifier.

    Cost: five fits of up to 100 trees; a few seconds in all for 20,000 rows each and D = 6.

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
    splitter: Any = StratifiedKFold(_FOLDS, shuffle=True, random_state=seed)
    right = 0
    for train, test in splitter.split(rows, label):
        model: Any = HistGradientBoostingClassifier(random_state=seed, max_iter=trees)
        model.fit(rows[train], label[train])
        right += int(((model.decision_function(rows[test]) > 0) == label[test]).sum())
    return right / len(rows)


def real_floor(metric: Metric, data: ArrayLike, reference: ArrayLike, *, size: int, seed: int = 0) -> float:
    """What ``metric`` says of real data against real data: its value for perfect samples.

    Distances of finite samples fall with their number, so use the ``size`` that the samples had.

    Args:
        metric: of two arrays (n, D) and (n, D), such as :func:`sliced_wasserstein`.
        data: (N, D).
        reference: (M, D), real data as well (a test set, say), no row of which is a row of ``data``.
        size: n, rows on each side.
        seed: of the rows drawn.

    Cost: one call of ``metric``.

    Example:
        >>> from rectangular_flows.metrics import fid_like
        >>> x, y = np.random.default_rng(0).standard_normal((2, 1000, 2))
        >>> real_floor(fid_like, x, y, size=1000) < 0.02 < real_floor(fid_like, x, y, size=20)
        True
    """
    random = np.random.default_rng(seed)
    first, second = as_table(reference, "reference", 1), as_table(data, "data", 1)
    most = min(len(first), len(second))
    if not 1 <= size <= most:
        raise ValueError(f"expected size from 1 to {most}, the rows there are on each side; got {size}")
    return metric(_draw(first, size, random), _draw(second, size, random))


def equally_many(samples: ArrayLike, data: ArrayLike, reference: ArrayLike, *, seed: int = 0) -> list[Array]:
    """As many rows of each set as the smallest has, drawn at random: distances of finite samples fall with their number.

    Args:
        samples: (M, D), M ≥ 10, from the model.
        data: (N, D), real; held out from the model's training unless memorising is of no concern.
        reference: (K, D), other real rows, whose distance from ``data`` is the floor.
        seed: of the rows.

    Example:
        >>> x = np.random.default_rng(0).standard_normal((180, 2))
        >>> [part.shape for part in equally_many(x[:60], x[60:160], x[160:])]
        [(20, 2), (20, 2), (20, 2)]
    """
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
    """Which sorted values of n and of m meet at each step of the two quantile functions, and the steps' lengths.

    The steps end at i/n and j/m; counted in units of 1/(nm) they are whole numbers, so that common ends are found exactly.
    """
    ends = np.union1d(np.arange(1, n + 1, dtype=np.int64) * m, np.arange(1, m + 1, dtype=np.int64) * n)
    return (ends - 1) // m, (ends - 1) // n, np.diff(ends, prepend=0) / (n * m)
