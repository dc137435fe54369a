r"""The start of a manifold with a closed latent space: the affine image of the space that is nearest to the data.

.. math:: x = c + A y, \qquad \min_{A, c} \sum_n \bigl\|x_n - c - A_m\, e(z_n)\bigr\|^2,

with e the embedding, A_m the columns it occupies, and z the nearest points: what principal components are for a plane. Found
by turns of z and (A, c), from several starts.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .linear import FixedMatrix
from .spaces import EMBEDDED, Embedding

_ROWS, _TURNS, _STARTS = 3_000, 30, 12
_WORST = 1e-3  # of the singular values of A, the least to the largest


class Alignment(FixedMatrix):
    """A fixed affine map whose first columns :meth:`initialise` lays along the data; the identity before.

    Args:
        space: the latent space, such as "torus:2".
        features: D.
        ring: whether two circles are embedded as a torus in R³.

    Example:
        >>> angle = torch.linspace(0, 6, 50)
        >>> ellipse = torch.stack((3 + 2 * angle.cos(), angle.sin()), dim=1)
        >>> Alignment("circle", 2).initialise(ellipse).norm(dim=1).sub(1).abs().max() < 1e-3
        tensor(True)
    """

    def __init__(self, space: str, features: int, ring: bool = False):
        super().__init__(features)
        self.embedding = Embedding(space, ring)
        if self.embedding.out_shape[0] > features:
            raise ValueError(
                f"expected at least {self.embedding.out_shape[0]} dimensions for the latent space {space}; got {features}"
            )

    @torch.no_grad()
    def initialise(self, x: Tensor) -> Tensor:
        rows = x[:_ROWS].double().cpu()
        tried = [self._turns(rows, start) for start in self._starts(rows)]
        found = [each for each in tried if each is not None]
        if found:  # else the data have fewer dimensions than the space: the identity will do as well
            _, A, shift = min(found, key=lambda each: each[0])
            size = A.shape[1]
            length = A.norm(dim=0).log().mean().exp()
            rest = torch.linalg.qr(A, mode="complete")[0][:, size:] * length
            self.weight.copy_(torch.cat((A, rest), dim=1))
            self.shift.copy_(shift)
        return self.inverse(x)

    def _starts(self, rows: Tensor) -> list[Tensor]:
        """Coordinates of the rows to start from, (N, m) each: columns as they are or standardised, principal ones, turns."""
        size, centred = self.embedding.out_shape[0], rows - rows.mean(dim=0)
        directions = torch.linalg.eigh(centred.mT @ centred)[1].flip(1)[:, :size]
        white = centred @ directions
        white = white / white.std(dim=0).clamp_min(1e-30)
        generator = torch.Generator().manual_seed(0)
        turned = []
        for _ in range(_STARTS):
            draw = torch.randn(size, size, dtype=torch.float64, generator=generator)
            turned.append(white @ torch.linalg.qr(draw)[0])
        plain = centred[:, :size] / centred[:, :size].std(dim=0).clamp_min(1e-30)
        scales = torch.cat([torch.full((EMBEDDED[f],), EMBEDDED[f] ** -0.5) for f in self.embedding.space.factors])
        return [rows[:, :size], *(start * scales[:size].double() for start in (plain, white, *turned))]

    def _turns(self, rows: Tensor, v: Tensor) -> tuple[float, Tensor, Tensor] | None:
        """(error, A, c) of the best turn; None if there is none that is not singular."""
        best, least = None, math.inf
        for _ in range(_TURNS):
            seen = self.embedding(self.embedding.inverse(v))
            design = torch.cat((seen, torch.ones_like(seen[:, :1])), dim=1)
            solution = torch.linalg.lstsq(design, rows, driver="gelsd").solution
            A, shift = solution[:-1].mT, solution[-1]
            values = torch.linalg.svdvals(A)
            if not bool(values[-1] > _WORST * values[0]):
                break
            error = float((rows - design @ solution).square().sum())
            if error >= least * (1 - 1e-6):
                break
            best, least = (error, A, shift), error
            v = (rows - shift) @ torch.linalg.pinv(A).mT
        return best
