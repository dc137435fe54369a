r"""How good generated images are, by their features (N, F): FID, KID, precision and recall, beside what real images score.

FID, precision and recall change with n: :func:`compare_images` puts everything at one n and real images beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import pairwise_distances_chunked

from .arrays import Array, same_columns
from .frechet import fid_like

_SUBSET = 1000  # images of KID at a time
_MEGABYTES = 64  # of a block of distances


@dataclass(frozen=True)
class Compared:
    """A measure of generated images beside that of other real images."""

    value: float
    floor: float


class PrecisionRecall(NamedTuple):
    """Shares of generated images that lie where real ones do (quality), and of real ones where generated do (variety)."""

    precision: float
    recall: float


@dataclass(frozen=True)
class ImageQuality:
    """Generated images against real ones, n of each, every measure beside that of other real images.

    FID and KID are low for good images; FID is too large at finite n, by about its floor, the mean of KID is not.
    """

    n: int
    fid: Compared
    kid: Compared
    kid_standard_error: float
    kid_floor_standard_error: float
    precision: Compared
    recall: Compared

    def numbers(self) -> dict[str, float]:
        """The measures and their standard errors as plain numbers, each floor as NAME_floor."""
        fields = {name: value for name, value in vars(self).items() if name != "n"}
        found = {name: getattr(value, "value", value) for name, value in fields.items()}
        floors = {f"{name}_floor": value.floor for name, value in fields.items() if isinstance(value, Compared)}
        return found | floors


def polynomial_mmd(a: Array, b: Array) -> float:
    r"""The unbiased estimate of the squared maximum mean discrepancy with the kernel k(x, y) = (xᵀy/F + 1)³.

    .. math::
        \frac{1}{m(m-1)} \sum_{i \ne j} k(a_i, a_j) + \frac{1}{n(n-1)} \sum_{i \ne j} k(b_i, b_j)
        - \frac{2}{mn} \sum_{i, j} k(a_i, b_j)

    It may be negative: its mean is 0 for sets from one distribution (Gretton et al., *A kernel two-sample test*, 2012).
    """
    return _within(a) + _within(b) - 2 * float(_kernel(a, b).mean())


def kid(a: ArrayLike, b: ArrayLike, *, subsets: int = 100, seed: int = 0) -> tuple[float, float]:
    r"""The kernel inception distance, the mean of :func:`polynomial_mmd` over random subsets, and its standard error.

    With s the standard deviation over S subsets of m rows, drawn from both sets without replacement, n the rows of the
    smaller set and m = 1,000, or n/2 if that is less, the standard error is

    .. math::
        s \sqrt{\frac{1}{S} + \frac{m}{n - m}},

    the chance of the subsets and, by the delete-d jackknife (d = n − m), that of the n images: subsets share images. Between
    sets of one distribution it is too large rather than too small.

    Reference:
        Bińkowski, Sutherland, Arbel & Gretton, *Demystifying MMD GANs*, arXiv:1801.01401; the standard error: Shao & Wu,
        *A general theory for jackknife variance estimation* (1989).

    Example:
        >>> x = np.random.default_rng(0).standard_normal((400, 4))
        >>> value, error = kid(x[:200], x[200:] + 1, subsets=20)
        >>> value > 5 * error
        True
    """
    x, y = same_columns(4, dtype=None, a=a, b=b)
    n = min(len(x), len(y))
    size = min(_SUBSET, n // 2)
    if subsets < 2:
        raise ValueError(f"expected at least 2 subsets; got {subsets}")
    random = np.random.default_rng(seed)
    subset = partial(_draw, size=size, random=random)
    values = [polynomial_mmd(subset(x).astype(np.float64), subset(y).astype(np.float64)) for _ in range(subsets)]
    return float(np.mean(values)), float(np.std(values, ddof=1) * math.sqrt(1 / subsets + size / (n - size)))


def precision_recall(real: ArrayLike, generated: ArrayLike, *, k: int = 3) -> PrecisionRecall:
    r"""Improved precision and recall: which images lie within the manifold of the others, made of k-nearest-neighbour balls.

    With r_k(x; X) the distance of x to its k-th nearest neighbour in X, itself not counted,

    .. math::
        \text{precision} = \frac{1}{|G|} \bigl|\{g \in G : \exists x \in R,\ \|g - x\| \le r_k(x; R)\}\bigr|, \qquad
        \text{recall} = \frac{1}{|R|} \bigl|\{x \in R : \exists g \in G,\ \|x - g\| \le r_k(g; G)\}\bigr|.

    Distances equal to rounding in float64 count as equal. Both values depend on k and n, and are below 1 for real images:
    compare values of one k and n only.

    Reference:
        Kynkäänniemi et al., *Improved precision and recall metric for assessing generative models*, arXiv:1904.06991.

    Example:
        >>> line = np.arange(6.0)[:, None]
        >>> precision_recall(line, line[:2] + 0.5, k=1)  # balls of radius 1: all of the two, and three of the six
        PrecisionRecall(precision=1.0, recall=0.5)
    """
    if k < 1:
        raise ValueError(f"expected k of at least 1; got {k}")
    x, g = same_columns(k + 1, dtype=None, real=real, generated=generated)
    centre = x.mean(0, dtype=np.float64)  # squared distances are ‖a‖² + ‖b‖² − 2aᵀb, which cancels far from 0
    x, g = x - centre, g - centre
    # the k-th nearest neighbour of each row, which itself comes first
    of_real, of_generated = (
        np.concatenate([np.partition(squared, k, axis=1)[:, k] for squared in _distances(rows, rows)])
        for rows in (x, g)
    )
    rounding = 4 * np.finfo(np.float64).eps * x.shape[1]
    norms, others = np.square(x).sum(1), np.square(g).sum(1)
    real_inside, generated_inside = np.zeros(len(x), dtype=bool), np.zeros(len(g), dtype=bool)
    start = 0
    for squared in _distances(x, g):
        rows = slice(start, start + len(squared))
        squared -= rounding * (norms[rows, None] + others)
        generated_inside |= (squared <= of_real[rows, None]).any(0)
        real_inside[rows] = (squared <= of_generated).any(1)
        start += len(squared)
    return PrecisionRecall(float(generated_inside.mean()), float(real_inside.mean()))


def compare_images(
    generated_features: ArrayLike, real_features: ArrayLike, floor_features: ArrayLike, *, seed: int = 0
) -> ImageQuality:
    """Generated images against real ones by FID, KID, precision and recall, each beside its floor at the same n.

    All sets are cut to the rows of the smallest, drawn at random. What other real images, ``floor_features``, score against
    ``real_features``, perfect images would; for precision and recall, of which more is better, it is a ceiling.

    Example:
        >>> x = np.random.default_rng(0).standard_normal((300, 4))
        >>> quality = compare_images(x[:100] * 2, x[100:200], x[200:])
        >>> quality.n, quality.fid.value > 5 * quality.fid.floor, quality.precision.value < quality.precision.floor
        (100, True, True)
    """
    names = {"generated_features": generated_features, "real_features": real_features, "floor_features": floor_features}
    generated, real, floor = same_columns(4, dtype=None, **names)
    n = min(len(generated), len(real), len(floor))
    random = np.random.default_rng(seed)
    generated, real, floor = (_draw(rows, n, random) for rows in (generated, real, floor))
    kids = [kid(rows, real, seed=seed) for rows in (generated, floor)]
    shares = [precision_recall(real, rows) for rows in (generated, floor)]
    return ImageQuality(
        n=n,
        fid=Compared(fid_like(generated, real), fid_like(floor, real)),
        kid=Compared(kids[0][0], kids[1][0]),
        kid_standard_error=kids[0][1],
        kid_floor_standard_error=kids[1][1],
        precision=Compared(shares[0].precision, shares[1].precision),
        recall=Compared(shares[0].recall, shares[1].recall),
    )


def _kernel(x: Array, y: Array) -> Array:
    base: Array = x @ y.T / x.shape[1] + 1
    return np.square(base) * base


def _within(x: Array) -> float:
    """The mean of the kernel over pairs of different rows."""
    kernel = _kernel(x, x)
    np.fill_diagonal(kernel, 0)
    return float(kernel.sum() / (len(x) * (len(x) - 1)))


def _distances(x: Array, y: Array) -> Iterator[Array]:
    """Squared distances between the rows of x and those of y, in blocks of rows of x."""
    blocks: Iterator[Array] = pairwise_distances_chunked(
        x, y, metric="euclidean", squared=True, working_memory=_MEGABYTES
    )
    return blocks


def _draw(rows: NDArray[Any], size: int, random: np.random.Generator) -> NDArray[Any]:
    return rows[random.choice(len(rows), size, replace=False)]
