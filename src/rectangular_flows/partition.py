r"""Rows in parts, for charts to start from: separate pieces first, then parts of equal reach along the data.

Distances within a piece are those along its neighbour graph, so that a part is a patch of the data's manifold and not of the
space around it; parts are the cells of k medoids,

.. math:: \min_{m_1 \dots m_K} \sum_n \min_k D(x_n, m_k),

and rows where two distances are nearly the same belong to both, so that charts overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_matrix, csr_matrix
from scipy.sparse.csgraph import connected_components, dijkstra
from scipy.spatial import KDTree
from torch import Tensor

Array = NDArray[Any]
NEIGHBOUR = 3  # whose distance counts: one or two rows that lie together by chance make no crowd
_LEAST = 0.05  # share of the points that makes a piece
USUAL, LINK = 0.99, 3.0  # gaps along a curve of independent points exceed it once in 300 sets of 1,000
_NEIGHBOURS = 15  # in the graph along which distances are taken: enough to reach across a gap between random points
_ROUNDS = 20  # of medoids
_OVERLAP = 1.3  # times the distance from the own medoid, up to which another's part has a row too
LANDMARKS = 2_000


@dataclass(frozen=True, eq=False)
class Partition:
    """Parts of data, by the nearest of some rows.

    Attributes:
        landmarks: rows in the model's units, (M, D).
        members: whether each is in each part, (M, K); in one at least.
        pieces: into which the data fall: the number of the piece that each part lies in, (K,).
    """

    landmarks: Tensor
    members: Tensor
    pieces: Sequence[int]

    @property
    def count(self) -> int:
        """K."""
        return self.members.shape[1]

    def __call__(self, y: Tensor) -> Tensor:
        """Whether rows in the model's units are in each part, (B, D) → (B, K)."""
        known = self.landmarks.to(y)
        nearest = [torch.cdist(part, known).argmin(dim=1) for part in y.detach().flatten(1).split(1_000)]
        return self.members.to(y.device)[torch.cat(nearest)]

    def one_of(self, y: Tensor, seed: int) -> Tensor:
        """One part of each row, at random where it is in several, (B,)."""
        inside = self(y)
        draw = torch.rand(inside.shape, generator=torch.Generator().manual_seed(seed)).to(inside.device)
        return (draw * inside).argmax(dim=1)


def separate_pieces(points: ArrayLike) -> Array:
    """Which piece each point lies in, (N,), the largest piece first; points of no piece go with the nearest one's.

    Pieces are what remains connected when neighbours are linked up to three times their usual distance, and have 5 % of
    the points.

    Args:
        points: (N, D); a few thousand at most.

    Example:
        >>> x = np.arange(100.0)[:, None]
        >>> np.bincount(separate_pieces(np.where(x < 60, x, x + 40)))
        array([60, 40])
    """
    x = np.asarray(points, dtype=np.float64)
    tree: Any = KDTree(x)  # type: ignore[no-untyped-call]
    reach = LINK * float(np.quantile(tree.query(x, min(NEIGHBOUR + 1, len(x)))[0][:, -1], USUAL))
    labels, order = linked(x, reach)
    if not len(order):
        return np.zeros(len(x), dtype=np.int64)
    names = np.full(labels.max() + 1, -1)
    names[order] = np.arange(len(order))
    found = names[labels]
    inside = np.flatnonzero(found >= 0)
    search: Any = KDTree(x[inside])  # type: ignore[no-untyped-call]
    found[found < 0] = found[inside[search.query(x[found < 0])[1]]]
    return np.asarray(found, dtype=np.int64)


def linked(points: Array, length: float) -> tuple[Array, Array]:
    """Components of the graph that links points closer than ``length``.

    Args:
        points: (N, D); all distances are computed, so a few thousand at most.
        length: of the longest link.

    Returns:
        The component of each point, (N,), and those components that have 5 % of the points, the largest first.
    """
    tree: Any = KDTree(points)  # type: ignore[no-untyped-call]
    pairs, size = tree.query_pairs(length, output_type="ndarray"), len(points)
    graph: Any = coo_matrix((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(size, size))  # type: ignore[no-untyped-call]
    labels = connected_components(graph, directed=False)[1]
    sizes = np.bincount(labels)
    large = np.flatnonzero(sizes >= max(2.0, _LEAST * size))
    return labels, large[np.argsort(-sizes[large], kind="stable")]


def partition(points: ArrayLike, count: int) -> Partition:
    """Rows in so many parts.

    Args:
        points: rows in the model's units, (N, D), in random order, of which 2,000 are used.
        count: of parts. With fewer than there are pieces, the nearest pieces share one.

    Raises:
        ValueError: there are fewer rows than parts.

    Example:
        >>> angle = np.random.default_rng(0).uniform(0, 6.28, 500)
        >>> circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        >>> parts = partition(circle, 3)
        >>> parts.members.sum(dim=0).min() > 150, parts.pieces
        (tensor(True), [0, 0, 0])
    """
    x = np.asarray(points, dtype=np.float64)[:LANDMARKS]
    x = x.reshape(len(x), -1)
    if count < 1 or len(x) < 2 * count:
        raise ValueError(f"expected at least two rows for each of {count} parts; got {len(x)}")
    piece = _merged(x, separate_pieces(x), count)
    shares = _shares(np.bincount(piece), count)
    members, names = [], []
    for number, parts in enumerate(shares):
        inside = np.flatnonzero(piece == number)
        for cell in _cells(x[inside], parts).T:
            member = np.zeros(len(x), dtype=bool)
            member[inside[cell]] = True
            members.append(member)
            names.append(number)
    return Partition(torch.from_numpy(x), torch.from_numpy(np.stack(members, axis=1)), names)


def _merged(x: Array, piece: Array, most: int) -> Array:
    """Pieces, the nearest ones taken together until there are no more than ``most``."""
    while piece.max() + 1 > most:
        trees = [KDTree(x[piece == i]) for i in range(piece.max() + 1)]  # type: ignore[no-untyped-call]
        apart = {
            (i, j): float(trees[i].query(x[piece == j])[0].min())  # type: ignore[no-untyped-call]
            for j in range(len(trees))
            for i in range(j)
        }
        i, j = min(apart, key=lambda pair: apart[pair])
        piece = np.where(piece == j, i, piece)
        piece = np.where(piece > j, piece - 1, piece)
    return piece


def _shares(sizes: Array, count: int) -> list[int]:
    """How many parts each piece gets: one each, then one more where parts have most rows."""
    shares = np.ones(len(sizes), dtype=int)
    while shares.sum() < count:
        shares[int(np.argmax(sizes / shares))] += 1
    return [int(share) for share in shares]


def _cells(x: Array, count: int) -> Array:
    """Which of so many parts of one piece rows are in, (n, count)."""
    if count == 1:
        return np.ones((len(x), 1), dtype=bool)
    distance = geodesics(x)
    chosen = [int(distance.sum(axis=1).argmin())]
    chosen = [int(distance[chosen[0]].argmax())]
    while len(chosen) < count:  # each as far from the others as can be
        chosen.append(int(distance[chosen].min(axis=0).argmax()))
    for _ in range(_ROUNDS):
        cell = distance[chosen].argmin(axis=0)
        before = list(chosen)
        for k in range(count):
            inside = np.flatnonzero(cell == k)
            chosen[k] = int(inside[distance[np.ix_(inside, inside)].sum(axis=1).argmin()])
        if chosen == before:
            break
    near = distance[chosen].T
    return np.asarray(near <= _OVERLAP * near.min(axis=1, keepdims=True) + 1e-12)


def geodesics(x: Array) -> Array:
    """Distances along the graph of nearest neighbours, (n, n); pieces of it are joined where they are nearest."""
    tree: Any = KDTree(x)  # type: ignore[no-untyped-call]
    length, index = tree.query(x, min(_NEIGHBOURS + 1, len(x)))
    rows = np.repeat(np.arange(len(x)), length.shape[1] - 1)
    edges = [(rows, index[:, 1:].ravel(), np.maximum(length[:, 1:].ravel(), 1e-12))]
    while True:
        i, j, value = (np.concatenate(parts) for parts in zip(*edges, strict=True))
        graph: Any = csr_matrix((value, (i, j)), shape=(len(x), len(x)))  # type: ignore[no-untyped-call]
        pieces, label = connected_components(graph, directed=False)
        if pieces == 1:
            return np.asarray(dijkstra(graph, directed=False))
        first, others = np.flatnonzero(label == label[0]), np.flatnonzero(label != label[0])
        search: Any = KDTree(x[first])  # type: ignore[no-untyped-call]
        far, at = search.query(x[others])
        best = int(far.argmin())
        edges.append((others[best : best + 1], first[at[best : best + 1]], np.maximum(far[best : best + 1], 1e-12)))
