r"""Columns that are angles: (cos, sin) pairs in the model's units, the user's period and range in the user's.

.. math:: (\cos\theta, \sin\theta) \leftrightarrow x = x_0 + \Bigl(\frac{P\theta}{2\pi} - x_0\Bigr) \bmod P .

The manifold of such a model lies on the circles by construction: its last links are :class:`OnCircles`, angles to pairs,
which changes no volume, and :class:`Periodic`, pairs to the user's columns. Distances between rows in the model's units
know nothing of where an angle starts, and densities in the user's units are with respect to the angle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from .injection import Bijection, TangentMap
from .pad import Pad
from .spaces import Embedding, Space


class OnCircles(Embedding):
    """Angles and other coordinates, in this order, to (cos, sin) pairs and the same other coordinates.

    Args:
        angles: how many there are.
        lines: how many other coordinates.

    Example:
        >>> OnCircles(1, 1)(torch.tensor([[0.0, 5.0]]))
        tensor([[1., 0., 5.]])
    """

    covers = True

    def __init__(self, angles: int, lines: int):
        super().__init__(str(Space(("circle",) * angles + ("line",) * lines)))


class Periodic(Bijection):
    """(cos, sin) pairs, then other coordinates, to the user's columns: a bijection of circles and lines to these.

    Values of a periodic column come back in [start, start + period), whatever turn they had, and pairs that are not of
    length one as if they were.

    Args:
        features: D, of the user's columns.
        columns: which of them are periodic, by number.
        periods: of these.
        starts: the least value of each, where its range begins.

    Example:
        >>> hours = Periodic(2, columns=[1], periods=[24.0], starts=[0.0])
        >>> hours.inverse(torch.tensor([[7.0, 6.0]])).round(decimals=3).abs().tolist()
        [[0.0, 1.0, 7.0]]
        >>> hours(hours.inverse(torch.tensor([[7.0, 30.0]])))
        tensor([[7., 6.]])
    """

    changes_units = True
    takes_float64 = True

    def __init__(self, features: int, columns: Sequence[int], periods: Sequence[float], starts: Sequence[float]):
        columns = list(columns)
        if len(set(columns)) < len(columns) or not set(columns) <= set(range(features)) or not columns:
            raise ValueError(f"expected different columns from 0 to {features - 1}; got {columns}")
        if not len(columns) == len(periods) == len(starts):
            raise ValueError(f"expected a period and a start for each of {len(columns)} periodic columns")
        if not all(0 < period < math.inf for period in periods) or not all(map(math.isfinite, starts)):
            raise ValueError(f"expected positive, finite periods and finite starts; got {[*periods]} and {[*starts]}")
        super().__init__(features + len(columns), features)
        self.columns = columns
        others = [i for i in range(features) if i not in columns]
        self.periods, self.starts = [float(p) for p in periods], [float(s) for s in starts]
        self._order = [*columns, *others]  # of the user's columns, as the model has them
        self._places = [self._order.index(i) for i in range(features)]

    @property
    def angles(self) -> int:
        """How many columns are periodic."""
        return len(self.columns)

    @property
    def column_of(self) -> list[int]:
        """The user's column to which each of the model's belongs."""
        return [i for i in self.columns for _ in range(2)] + self._order[self.angles :]

    def _facts(self, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Periods, starts, and radians in one unit of the user's, (k,) each."""
        period, start = (torch.tensor(v, dtype=like.dtype, device=like.device) for v in (self.periods, self.starts))
        return period, start, 2 * math.pi / period

    def _pairs(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return y[..., : 2 * self.angles].unflatten(-1, (-1, 2)), y[..., 2 * self.angles :]

    def forward(self, z: Tensor) -> Tensor:
        (pairs, others), (period, start, radians) = self._pairs(z), self._facts(z)
        value = start + torch.remainder(torch.atan2(pairs[..., 1], pairs[..., 0]) / radians - start, period)
        value = torch.where(value < start + period, value, start)  # which rounding may reach
        return torch.cat((value, others), dim=-1)[..., self._places]

    def inverse(self, x: Tensor) -> Tensor:
        angle = self._angle(x)
        pairs = torch.stack((angle.cos(), angle.sin()), dim=-1).flatten(-2)
        return torch.cat((pairs, x[..., self._order[self.angles :]]), dim=-1)

    def _angle(self, x: Tensor) -> Tensor:
        """In radians, once whole turns are taken off, which is exact."""
        period, _, radians = self._facts(x)
        return torch.remainder(x[..., self.columns], period) * radians

    def difference(self, a: Tensor, b: Tensor) -> Tensor:
        """a − b in the user's units, (…, D), with periodic columns the short way round, in [−period/2, period/2)."""
        period, _, _ = self._facts(a)
        turned = torch.remainder((a - b)[..., self.columns] + period / 2, period) - period / 2
        index = torch.tensor(self.columns, dtype=torch.long, device=a.device)
        return (a - b).index_copy(-1, index, turned)

    def linearize(self, z: Tensor) -> tuple[Tensor, TangentMap]:
        pairs, _ = self._pairs(z)
        radians = self._facts(z)[2]
        across = torch.stack((-pairs[..., 1], pairs[..., 0]), dim=-1) / pairs.square().sum(-1, keepdim=True)

        def apply(tangents: Tensor) -> Tensor:
            turned, others = self._pairs(tangents)
            angles = (turned * across.unsqueeze(1)).sum(-1) / radians
            return torch.cat((angles, others), dim=-1)[..., self._places]

        return self.forward(z), apply

    def linearize_inverse(self, x: Tensor) -> tuple[Tensor, TangentMap]:
        angle, radians = self._angle(x), self._facts(x)[2]
        along = torch.stack((-angle.sin(), angle.cos()), dim=-1) * radians[:, None]

        def apply(tangents: Tensor) -> Tensor:
            pairs = (tangents[..., self.columns].unsqueeze(-1) * along.unsqueeze(1)).flatten(-2)
            return torch.cat((pairs, tangents[..., self._order[self.angles :]]), dim=-1)

        return self.inverse(x), apply

    def forward_with_log_det(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """With respect to the angles in radians, which the pairs stand for."""
        return self.forward(z), -self._facts(z)[2].log().sum().expand(len(z))

    def inverse_with_log_det(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.inverse(x), self._facts(x)[2].log().sum().expand(len(x))


def stereographic(angle: Tensor) -> tuple[Tensor, Tensor]:
    """t = 2 tan(θ/2) of angles in [−π, π), and log dt/dθ, entry by entry: a circle without one point to the line."""
    half = angle / 2
    return 2 * half.tan(), -2 * half.cos().abs().clamp_min(torch.finfo(angle.dtype).tiny).log()


def angle_of(t: Tensor) -> Tensor:
    """The inverse of :func:`stereographic`."""
    return 2 * (t / 2).atan()


def order_on(space: Space, angles: int, size: int) -> list[int] | Literal["random"]:
    """An order of padding that puts circles of a latent space where angles are, and lines where they are not."""
    if not angles:
        return "random"
    free = {"circle": iter(range(angles)), "line": iter(range(angles, size))}
    places = [next(free.get(factor, iter(())), -1) for factor in space.factors]
    if -1 in places:
        raise ValueError(
            f"the latent space {space} has no place among {angles} periodic columns and {size - angles} others: it may have "
            f"at most {angles} circles, {size - angles} lines and no sphere"
        )
    return [*places, *free["circle"], *free["line"]]


def check_places(space: Space, pad: Pad, angles: int) -> None:
    """Refuse padding that puts a circle where no angle is, or a line where one is."""
    places = pad.order[: len(space.factors)].tolist()
    if [factor == "circle" for factor in space.factors] != [place < angles for place in places]:
        raise ValueError(
            f"expected padding that puts the circles of {space} in the first {angles} places, where angles are; got {places}"
        )
