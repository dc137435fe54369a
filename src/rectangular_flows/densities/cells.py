r"""Cells of a column: where its density is nearly constant, and around values that occur again and again.

Bayesian blocks: of all ways to cut the values into cells, the one with the largest

.. math:: \sum_k \Bigl[N_k \log\frac{N_k}{T_k} - c\Bigr],

N_k values in cell k of width T_k, found by dynamic programming. The price c of a cell is that of one false edge in twenty
columns without structure.

Reference: Scargle et al., Studies in astronomical time series analysis VI, arXiv:1207.5578.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

FINEST = 1e-3  # width of the narrowest cell, in standard deviations of the column
_ROWS = 2_000  # that the cells are found from: the search takes their square
_OFTEN, _LEAST = 0.01, 5  # share and number of rows with the same value that give it a cell of its own

Array = NDArray[np.float64]


def cell_edges(values: Array, most: int = 64, seed: int = 0) -> Array:
    """Edges of the cells of a column, rising, (cells + 1,).

    A value that at least 1 % of the rows share has a cell of its own, as wide as the least distance between two values of
    the column: what a density of such a column means is a convention, and this one is that of uniform noise of one step.

    Args:
        values: of the column, (N,), finite, of which at most 2,000 are used to find the cells between such values.
        most: cells.
        seed: of the choice of these.

    Example:
        >>> grid = np.concatenate([np.zeros(500), np.linspace(2.0, 3.0, 500)])
        >>> edges = cell_edges(grid)
        >>> edges[:2].round(3).tolist()
        [-0.001, 0.001]
    """
    distinct = np.unique(values)
    finest = max(FINEST * float(values.std()), 1e-12 * float(np.abs(values).max()))
    if len(distinct) < 2 or finest == 0:
        return np.array([distinct[0] - 0.5, distinct[-1] + 0.5])
    step, often = max(float(np.diff(distinct).min()), finest), shared_values(values, most)
    some = distinct if len(distinct) <= _ROWS else np.random.default_rng(seed).choice(distinct, _ROWS, replace=False)
    edges = _blocks(np.sort(some))
    if len(often):  # a cell of its own is not cut
        edges = edges[np.abs(edges[:, None] - often).min(axis=1) > step / 2]
    edges = np.unique(np.concatenate([edges, often - step / 2, often + step / 2]))
    edges = edges[np.concatenate([[True], np.diff(edges) > finest / 2])]
    edges[-1], edges[0] = max(edges[-1], distinct[-1]), min(edges[0], distinct[0])
    if len(edges) < 2:
        edges = np.append(edges, distinct[-1])
    while len(edges) > most + 1:  # join the narrowest cell with its narrower neighbour
        widths = np.diff(edges)
        inner = widths[:-1] + widths[1:]
        edges = np.delete(edges, 1 + int(inner.argmin()))
    return edges


def shared_values(values: Array, most: int = 64) -> Array:
    """Values that at least 1 % of the rows share, and 5 of them; at most half as many as there may be cells."""
    distinct, counts = np.unique(values, return_counts=True)
    often = distinct[counts >= max(_OFTEN * len(values), _LEAST)]
    if len(often) <= most // 2:
        return often
    return distinct[np.sort(np.argsort(-counts, kind="stable")[: most // 2])]


def _blocks(values: Array) -> Array:
    """Bayesian blocks of distinct values, rising, (N,): the edges."""
    count = len(values)
    edges = np.concatenate([values[:1], (values[1:] + values[:-1]) / 2, values[-1:]])
    price = 4 - math.log(73.53 * 0.05 * count**-0.478)
    best, last = np.zeros(count), np.zeros(count, dtype=np.int64)
    number = np.arange(count, 0, -1, dtype=np.float64)
    log_number = np.log(number)
    for right in range(count):
        inside = slice(count - 1 - right, None)
        widths = np.maximum(edges[right + 1] - edges[: right + 1], 1e-300)
        fitness = number[inside] * (log_number[inside] - np.log(widths)) - price
        fitness[1:] += best[:right]
        last[right] = fitness.argmax()
        best[right] = fitness[last[right]]
    cuts = [count]
    while cuts[-1] > 0:
        cuts.append(int(last[cuts[-1] - 1]))
    return edges[cuts[::-1]]
