"""Weights of rows in the reconstruction error, so that the few far out count."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..atlas import Model
from ..data.rows import Rows, shuffled, take
from ..flows.orthonormal import tail_weights as by_distance

_ROWS = 10_000


@dataclass(frozen=True, eq=False)
class TailWeights:
    r"""The weight of a row y, in the model's units, by its distance from the centre of the training rows.

    .. math::
        w(y) = \|y - c\|^{2a} / s

    with s such that it is 1 on average. The few rows far out hardly count in a plain mean of squared errors, and are
    reconstructed worst; a = 1/2 gives a row ten times as far out ten times the weight.

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
        return cls(exponent, centre, by_distance(y - centre, exponent).mean())

    def __call__(self, y: Tensor) -> Tensor:
        """(B,)."""
        return by_distance(y - self.centre, self.exponent) / self.scale


@torch.no_grad()
def tail_weights(flow: Model, train: Rows, like: Tensor, exponent: float, seed: int) -> TailWeights | None:
    """Those of the training rows, from a random choice of them, on the device of ``like``; None for an exponent of 0."""
    if not exponent:
        return None
    some = take(train, shuffled(len(train), seed)[:_ROWS], like.device, like.dtype)
    return TailWeights.of(flow.to_model_units(some), exponent)
