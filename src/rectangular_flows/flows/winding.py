r"""The start of a manifold on circles and lines: which angles are its coordinates, how often others wind with them.

.. math:: \theta = N y + \mu \ (\mathrm{mod}\ 2\pi), \qquad x = U y',

with N of whole numbers and determinant ±1, so that it is a bijection of the torus, and U orthogonal: what principal
components are for a plane. Couplings only ever turn an angle by a function of the others, and no such function winds.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .linear import FixedMatrix

_ROWS, _MOST_TURNS = 10_000, 2


class Winding(FixedMatrix):
    """A fixed linear map whose first coordinates :meth:`initialise` lays along the data; the identity before.

    Args:
        angles: k, the first coordinates.
        features: of all coordinates.
        circles: c of the angles are coordinates of the manifold, and the others functions of these.
        lines: how many of the other coordinates are.

    Example:
        >>> angle = torch.linspace(-3, 3, 50)[:, None]
        >>> rows = torch.cat((angle, 1 - 2 * angle), dim=1)  # a curve that winds twice the other way
        >>> Winding(2, 2, circles=1, lines=0).initialise(rows)[:, 1].abs().max() < 1e-5
        tensor(True)
    """

    def __init__(self, angles: int, features: int, circles: int, lines: int):
        super().__init__(features)
        if not (0 <= circles <= angles and 0 <= lines <= features - angles):
            raise ValueError(
                f"expected at most {angles} circles and {features - angles} lines; got {circles} and {lines}"
            )
        self.angles, self.circles, self.lines = angles, circles, lines

    @torch.no_grad()
    def initialise(self, x: Tensor) -> Tensor:
        k, rows = self.angles, x[:_ROWS].double().cpu()
        whole = torch.eye(x.shape[1], dtype=torch.float64)
        shift = torch.zeros(x.shape[1], dtype=torch.float64)
        if self.circles < self.angles:
            whole[:k, :k], shift[:k] = self._windings(rows[:, :k])
        if 0 < self.lines < x.shape[1] - k:
            seen = rows[:, :k] @ torch.linalg.inv(whole[:k, :k]).mT[:, : self.circles]
            whole[k:, k:] = _directions(seen, rows[:, k:])
        self.weight.copy_(whole)
        self.shift.copy_(shift)
        return self.inverse(x)

    def _windings(self, angles: Tensor) -> tuple[Tensor, Tensor]:
        """N and μ: the angle that follows another most closely, or is nearest to constant, is dropped, and so on."""
        k, turns = angles.shape[1], [n for n in range(-_MOST_TURNS, _MOST_TURNS + 1) if n]
        phases = torch.polar(torch.ones_like(angles), angles)
        # how closely angle j follows n times angle i: the length of the mean of exp i(θ_j − n θ_i)
        windings = [torch.polar(torch.ones_like(angles), -n * angles) for n in turns]
        close = torch.stack([(phases.mT @ winding).abs() / len(angles) for winding in windings])
        alone = phases.mean(dim=0).abs()
        kept = list(range(k))

        def follows(j: int) -> float:
            others = [i for i in kept if i != j]
            return max(float(alone[j]), float(close[:, j, others].max()) if others else 0.0)

        while len(kept) > self.circles:
            kept.remove(max(kept, key=follows))
        whole, shift = torch.zeros(k, k, dtype=torch.float64), torch.zeros(k, dtype=torch.float64)
        for place, j in enumerate([*kept, *(j for j in range(k) if j not in kept)]):
            whole[j, place] = 1
            if j in kept:
                continue
            rest = angles[:, j]
            if kept and follows(j) > float(alone[j]):
                n, i = divmod(int(close[:, j, kept].argmax()), len(kept))
                whole[j, i] = turns[n]
                rest = rest - turns[n] * angles[:, kept[i]]
            shift[j] = torch.atan2(rest.sin().mean(), rest.cos().mean())
        return whole, shift


def _directions(angles: Tensor, lines: Tensor) -> Tensor:
    """An orthogonal basis by falling variance of what is left of lines, once angles have explained their part."""
    seen = torch.cat((torch.ones_like(lines[:, :1]), angles.cos(), angles.sin()), dim=1)
    left = lines - seen @ torch.linalg.lstsq(seen, lines, driver="gelsd").solution
    return torch.linalg.eigh(left.mT @ left)[1].flip(1)
