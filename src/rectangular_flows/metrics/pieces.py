r"""The shape of a cloud of points by the distances of neighbours: its pieces, and points that lie where no others do."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from sklearn.neighbors import NearestNeighbors

from ..partition import LINK, NEIGHBOUR, USUAL, linked
from .arrays import Array, same_columns


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
