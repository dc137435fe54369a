r"""The shape of a cloud of points by its neighbours: its pieces, points that lie where no others do, how flat it is."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from sklearn.neighbors import NearestNeighbors

from ..partition import LINK, NEIGHBOUR, USUAL, linked
from .arrays import Array, same_columns

_CELLS = 2**24  # of the largest array at a time
_COUNTED = 200  # points whose neighbours are counted


def crowding(points: ArrayLike, reference: ArrayLike | None = None) -> Array:
    """Distance of every point from its third nearest reference point, (N,); without reference, among the points themselves.

    Args:
        points: (N, D).
        reference: (R, D), other points.

    Example:
        >>> crowding([[0.0], [1.0], [2.0], [9.0]])
        array([9., 8., 7., 9.])
    """
    x, y = same_columns(1, points=points, reference=points if reference is None else reference)
    own = 1 if reference is None else 0
    search = NearestNeighbors(n_neighbors=min(NEIGHBOUR + own, len(y))).fit(y)
    distance: Array = search.kneighbors(x)[0][:, -1]
    return distance


def usual_distance(distances: ArrayLike) -> float:
    """The distance that 99 % of points have from their neighbours, at most."""
    return float(np.quantile(np.asarray(distances, dtype=np.float64), USUAL))


def count_pieces(points: ArrayLike, length: float) -> int:
    """Connected components of the graph that links points closer than ``length``, of those with 5 % of the points.

    Args:
        points: (N, D); all distances are computed, so a few thousand at most.
        length: of the longest link.

    Example:
        >>> x = np.arange(100.0)[:, None]
        >>> count_pieces(x, 1.5), count_pieces(np.where(x < 50, x, x + 7), 1.5)
        (1, 2)
    """
    (x,) = same_columns(1, points=points)
    return len(linked(x, length)[1])


def link_length(points: ArrayLike) -> float:
    """How far apart neighbours in one piece may lie: three times the usual distance from the third nearest of them."""
    return LINK * usual_distance(crowding(points))


def off_planes(points: ArrayLike, reference: ArrayLike, dimension: int, reach: float = 0.0) -> Array:
    """Squared distance of every point from the plane through its neighbours, (N,).

    The neighbours are as many of the nearest reference points as most points have within reach, at least 2d + 8 and at most
    a quarter of all; the plane has their mean and their d first principal directions. What is left is noise, if the reach
    is beyond it, and how much the cloud bends within that neighbourhood.

    Args:
        points: (N, D).
        reference: (R, D), other points.
        dimension: d, of the plane.
        reach: a distance.

    Example:
        >>> angle = np.arange(0.0, 6.28, 0.005)
        >>> circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        >>> bool(off_planes(circle[:1] * 1.1, circle, 1)[0].round(3) == 0.01)
        True
    """
    x, y = same_columns(1, points=points, reference=reference)
    near, few = NearestNeighbors().fit(y), x[:_COUNTED]
    found = near.radius_neighbors(few, reach, return_distance=False) if reach > 0 and len(few) else [()]
    within = int(np.median([len(each) for each in found]))
    count = min(max(2 * dimension + 8, min(within, len(y) // 4)), len(y))
    step = max(1, _CELLS // (count * x.shape[1]))
    squared = [np.zeros(0)]
    for part in (x[i : i + step] for i in range(0, len(x), step)):
        around = y[near.kneighbors(part, count, return_distance=False)]
        centre = around.mean(axis=1)
        around, off = around - centre[:, None], part - centre
        if few_columns := x.shape[1] <= count:  # of two matrices with the same eigenvalues the smaller
            value, vector = np.linalg.eigh(around.transpose(0, 2, 1) @ around)
        else:
            value, vector = np.linalg.eigh(around @ around.transpose(0, 2, 1))
        value, vector = value[:, -dimension:], vector[:, :, -dimension:]
        size = np.where(value > 1e-12 * value[:, -1:], 1.0 if few_columns else value, np.inf)
        if not few_columns:
            vector = around.transpose(0, 2, 1) @ vector
        along = np.square(np.einsum("nd,ndj->nj", off, vector)) / size
        squared.append(np.maximum(np.square(off).sum(axis=1) - along.sum(axis=1), 0))
    return np.concatenate(squared)
