"""Weights of rows in the reconstruction error, so that the few that are far out count."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..data.rows import Rows, shuffled, take
from ..flows.linear import tail_weights as by_distance
from ..manifold import RectangularFlow

_ROWS = 10_000


@dataclass(frozen=True, eq=False)
class TailWeights:
    r"""The weight of a row y, in the model's units, by its distance from the centre of the training rows.

    .. math::
        w(y) = \|y - c\|^{2a} / s

    with s such that it is 1 on average. A mean of squared errors hardly knows of the few rows far out, which are then
    reconstructed worst, the more so as no training row may be near them; a = 1/2 gives a row ten times as far out ten
    times the weight.

    Attributes:
        exponent: a.
        centre: c, the mean of the training rows.
        scale: s.

    Example:
        >>> weights = TailWeights.of(torch.tensor([[0.0], [2.0], [4.0]]), 0.5)
        >>> weights(torch.tensor([[0.0], [2.0], [3.0]])).tolist()
        [1.5, 0.0, 0.75]
    """

    exponent: float
    centre: Tensor
    scale: Tensor

    @classmethod
    def of(cls, y: Tensor, exponent: float) -> TailWeights:
        """The weights for such rows, (N, …)."""
        centre = y.mean(dim=0)
        weights = cls(exponent, centre, torch.ones((), dtype=y.dtype, device=y.device))
        return cls(exponent, centre, weights(y).mean())

    def __call__(self, y: Tensor) -> Tensor:
        """(B,)."""
        return by_distance(y - self.centre, self.exponent) / self.scale


@torch.no_grad()
def tail_weights(flow: RectangularFlow, train: Rows, like: Tensor, exponent: float, seed: int) -> TailWeights | None:
    """Those of the training rows, from some of them; None where all rows count alike.

    Args:
        flow: whose units count.
        train: rows in the user's units.
        like: a tensor with the device and the precision of training.
        exponent: a, 0 for no weights.
        seed: of the choice.
    """
    if not exponent:
        return None
    some = take(train, shuffled(len(train), seed)[:_ROWS], like.device, like.dtype)
    return TailWeights.of(flow.to_model_units(some), exponent)
