r"""Data from elsewhere: how well a score separates them from a model's own.

Throughout, a **higher score means more in-distribution**: a log-density, or a reconstruction error with a minus sign. Scores
are 1-D arrays; −∞ and +∞ are allowed (a density may vanish), NaN is not. Each function costs a sort or two of its scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve
from sklearn.tree import DecisionTreeClassifier

from .arrays import Array, as_scores

_RECALL = 0.95
_TAIL = 0.1  # the share of the fitted values that the law of the tail is fitted to
_HEAVIEST = 0.5  # of the tail index ξ: below it the variance of the tail is finite


@dataclass(frozen=True)
class Detection:
    """How well a score separates inside from outside."""

    auroc: float
    """Of two points, one from each, the inside one scores higher with this probability."""
    aupr: float
    """Average precision with inside as the positive class; chance is the share of inside points."""
    fpr95: float
    """Share of outside points let in by the threshold that lets in 95 % of the inside ones."""
    accuracy: float | None
    """Of the paper's decision stump on the test sets; None without training sets."""


def detect(inside: ArrayLike, outside: ArrayLike) -> Detection:
    r"""How well a score separates inside from outside, without the stump, which needs training scores.

    AUROC is :math:`P(s_{in} > s_{out}) + \tfrac12 P(s_{in} = s_{out})`; the average precision
    :math:`\sum_t (R_t - R_{t-1}) P_t` over thresholds t; equal scores share a threshold.

    Args:
        inside: (N,), test scores of in-distribution points.
        outside: (M,), test scores of the others.

    Reference:
        Hanley & McNeil, *The meaning and use of the area under a ROC curve* (1982); Davis & Goadrich, *The relationship
        between precision-recall and ROC curves* (2006); Hendrycks & Gimpel, arXiv:1610.02136 (FPR at 95 %).

    Example:
        >>> detect([3.0, 2.0], [2.0, 1.0])
        Detection(auroc=0.875, aupr=0.8333333333333333, fpr95=0.5, accuracy=None)
    """
    a, b = as_scores(inside, "inside"), as_scores(outside, "outside")
    label = np.repeat([1, 0], [len(a), len(b)])
    rank = np.unique(np.concatenate([a, b]), return_inverse=True)[1]  # scikit-learn refuses infinities
    false, true, _ = roc_curve(label, rank, drop_intermediate=False)
    kept = int(np.argmax(true >= _RECALL - 1e-9))  # 0.95 · 20 may be a rounding above 19
    area, precision = roc_auc_score(label, rank), average_precision_score(label, rank)
    return Detection(float(area), float(precision), float(false[kept]), None)


def stump_accuracy(
    train_inside: ArrayLike, train_outside: ArrayLike, test_inside: ArrayLike, test_outside: ArrayLike
) -> float:
    """The paper's accuracy: a decision tree of depth 1 fitted on two training sets of scores, judged on two test sets.

    The accuracy is over both test sets together, so with unequal sizes the larger one counts for more. The stump is free
    to find that *outside* scores higher; an accuracy well above 0.5 beside an AUROC below 0.5 says so.

    All four are scores, 1-D, of any lengths.

    Reference:
        Caterini et al., *Rectangular Flows for Manifold Learning*, arXiv:2106.01413, table of out-of-distribution accuracy.

    Example:
        >>> stump_accuracy([2.0, 3.0], [0.0, 1.0], [4.0, 5.0], [-1.0, 1.8])
        0.75
    """
    train = as_scores(train_inside, "train_inside"), as_scores(train_outside, "train_outside")
    test = as_scores(test_inside, "test_inside"), as_scores(test_outside, "test_outside")
    # scikit-learn's trees work in float32, which would merge log-densities near −10⁶ and refuses infinities; hence a
    # map to the ranks of the training scores, cut where the tree would have cut: half-way
    largest = np.finfo(np.float64).max
    known = np.unique(np.concatenate(train).clip(-largest, largest))
    middles = np.minimum(known[:-1] / 2 + known[1:] / 2, np.nextafter(known[1:], -np.inf))

    def ranks(parts: tuple[Array, Array]) -> NDArray[np.intp]:
        return np.searchsorted(middles, np.concatenate(parts), side="left")[:, None]

    tree: Any = DecisionTreeClassifier(max_depth=1, random_state=0)
    tree.fit(ranks(train), np.repeat([1, 0], [len(part) for part in train]))
    return float(np.mean(tree.predict(ranks(test)) == np.repeat([1, 0], [len(part) for part in test])))


class CombinedScore:
    r"""One score out of log-density on the manifold and squared distance from it, fitted on in-distribution data only.

    Both become the probability that an in-distribution point is at least as bad, combined as in Fisher's method:

    .. math::
        s(x) = \log \hat P(\log p \le \log p(x)) + \log \hat P(e \ge e(x)), \qquad s \le 0,

    rising in log p and falling in e. Within the bulk of the fitted values, P̂ is the empirical tail probability (ties count
    half), interpolated log-linearly; over their worst tenth it is a generalised Pareto law with index ξ in [0, ½], which
    keeps falling beyond the worst value seen, so that far and farther differ.

    Fit it on held-out data: the model's own training data score too well.

    Args:
        log_density: of in-distribution points, (N,), N ≥ 2, finite.
        squared_distance: of the same points, (N,).

    Cost: O(N log N), and O(M log N) for M points.

    Reference:
        Fisher, *Statistical methods for research workers* (1925); Hosking & Wallis, *Parameter and quantile estimation
        for the generalized Pareto distribution* (1987).

    Example:
        >>> random = np.random.default_rng(0)
        >>> score = CombinedScore(random.standard_normal(1000), random.exponential(size=1000))
        >>> usual, unlikely, off_manifold = score([0.0, -9.0, 0.0], [0.5, 0.5, 20.0])
        >>> bool(usual > unlikely and usual > off_manifold)
        True
    """

    def __init__(self, log_density: ArrayLike, squared_distance: ArrayLike) -> None:
        density, distance = _pair(log_density, squared_distance)
        finite = np.isfinite(density) & np.isfinite(distance)
        if len(density) < 2 or not finite.all():
            raise ValueError(
                f"expected at least 2 points, all finite, to fit; got {len(density)}, {int(finite.sum())} of them finite"
            )
        self._density, self._distance = Tail(-density), Tail(distance)

    def __call__(self, log_density: ArrayLike, squared_distance: ArrayLike) -> Array:
        """The score s, (M,), of points; higher is more in-distribution, 0 the best."""
        density, distance = _pair(log_density, squared_distance)
        return self._density(-density) + self._distance(distance)


def _pair(log_density: ArrayLike, squared_distance: ArrayLike) -> tuple[Array, Array]:
    density, distance = as_scores(log_density, "log_density"), as_scores(squared_distance, "squared_distance")
    if density.shape != distance.shape:
        raise ValueError(f"expected one squared_distance for each log_density; got {len(distance)} for {len(density)}")
    return density, distance


class Tail:
    """v ↦ log P(V ≥ v), falling without end: empirical up to the threshold u, generalised Pareto beyond it.

    Args:
        values: that the law is fitted to, (N,), N ≥ 2, finite.
    """

    def __init__(self, values: Array) -> None:
        self.knots, counts = np.unique(values, return_counts=True)
        above = len(values) - np.cumsum(counts)
        self.logs = np.log((above + counts / 2) / len(values))
        self.threshold = float(np.quantile(values, 1 - _TAIL, method="lower"))
        excess = np.sort(values[values > self.threshold]) - self.threshold
        self.index, self.scale = _pareto(excess)
        if self.scale == 0:  # the largest value is the commonest: no tail to learn from, so take the whole for a scale
            self.scale = float(values.std()) or 1.0

    def __call__(self, v: Array) -> Array:
        y = np.maximum(v - self.threshold, 0) / self.scale
        fall = np.log1p(self.index * y) / self.index if self.index > 0 else y
        return np.interp(np.minimum(v, self.threshold), self.knots, self.logs) - fall


def _pareto(excess: Array) -> tuple[float, float]:
    """Index ξ, kept in [0, ½], and scale of rising excesses by probability-weighted moments; scale 0 if there are none."""
    n = len(excess)
    if not n:
        return 0.0, 0.0
    first = float(excess.mean())
    second = float((excess * (1 - (np.arange(1, n + 1) - 0.35) / n)).mean())
    gap = first - 2 * second  # positive but for rounding and the plotting positions of very few values
    index = 2 - first / gap if gap > 0 else 0.0
    index = min(max(index, 0.0), _HEAVIEST)
    return index, first * (1 - index)  # the scale that keeps the mean, whatever the index was clipped to
