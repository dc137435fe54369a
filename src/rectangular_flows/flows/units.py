r"""Data layers: the last links of a chain, between the model's units and the user's.

They are ordinary bijections, so that a density in the user's units is simply the density of the whole chain, and they
say ``changes_units = True``, so that training can measure reconstruction before them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import check_finite
from .injection import Bijection, Shape, TangentMap, as_shape
from .linear import AffineMap


class Standardise(AffineMap):
    """x = μ + σ ⊙ z with fixed μ and σ > 0: the model sees standardised data, the user the original units.

    μ and σ are float64 whatever the type of the flow. Rows given in float64 are standardised before they are rounded to
    that type, so that the model sees the same numbers in whatever units a column is written. Where μ is large beside σ, a
    second number has what rounding took from it, so that the model also sees the same numbers wherever zero is.

    Args:
        mean: μ, broadcastable to ``shape``.
        scale: σ, broadcastable to ``shape``.
        shape: event shape; that of ``mean`` unless given.
        rest: what rounding took from μ, broadcastable to ``shape``; 0 unless given.

    Example:
        >>> import torch
        >>> layer = Standardise(mean=torch.tensor([1.0, 20.0]), scale=torch.tensor([0.5, 10.0]))
        >>> layer(torch.zeros(1, 2))
        tensor([[ 1., 20.]])
    """

    changes_units = True
    takes_float64 = True
    mean: Tensor
    scale: Tensor
    rest: Tensor

    def __init__(self, mean: Tensor, scale: Tensor, shape: int | Shape | None = None, rest: Tensor | None = None):
        shape = tuple(mean.shape) if shape is None else as_shape(shape)
        super().__init__(shape)
        if not bool(((scale > 0) & torch.isfinite(scale)).all()) or not bool(torch.isfinite(mean).all()):
            raise ValueError(
                "expected a finite mean and positive, finite scales; a constant column has scale 0: drop it"
            )
        rest = torch.zeros(()) if rest is None else rest
        for name, values in (("mean", mean), ("scale", scale), ("rest", rest)):
            self.register_buffer(name, values.expand(shape).to(torch.float64, copy=True))

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *others: Any) -> None:
        state_dict.setdefault(f"{prefix}rest", torch.zeros_like(self.rest))  # older files have none
        super()._load_from_state_dict(state_dict, prefix, *others)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        exact = dict(self.named_buffers(recurse=False))
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, old in exact.items():
            new = getattr(self, name)
            setattr(self, name, new.double() if old.is_meta or new.is_meta else old.to(new.device))
        return self

    def forward(self, z: Tensor) -> Tensor:
        return (self.mean + torch.addcmul(self.rest, z.double(), self.scale)).to(z.dtype)

    def inverse(self, x: Tensor) -> Tensor:
        return ((x.double() - self.mean - self.rest) / self.scale).to(x.dtype)

    def linearize(self, z: Tensor) -> tuple[Tensor, TangentMap]:
        return self.forward(z), lambda tangents: tangents * self.scale.to(tangents.dtype)

    def linearize_inverse(self, x: Tensor) -> tuple[Tensor, TangentMap]:
        return self.inverse(x), lambda tangents: tangents / self.scale.to(tangents.dtype)

    def log_abs_det(self) -> Tensor:
        return self.scale.log().sum()

    def steps(self, dtype: torch.dtype) -> Tensor:
        """How many numbers of a type lie in one standard deviation of each column, near its mean.

        Example:
            >>> Standardise(torch.tensor([0.0, 1e6]), torch.ones(2)).steps(torch.float32).log10().int().tolist()
            [6, 0]
        """
        return self.scale / (torch.finfo(dtype).eps * (self.mean.abs() + self.scale))

    def out_of_range(self, dtype: torch.dtype) -> Tensor:
        """Which columns are too small or too large for numbers of a type, with room to spare, (D,).

        Example:
            >>> Standardise(torch.zeros(2), torch.tensor([1.0, 1e30])).out_of_range(torch.float32).tolist()
            [False, True]
        """
        facts = torch.finfo(dtype)
        return (self.scale < facts.tiny**0.75) | (self.mean.abs() + self.scale > facts.max**0.75)


class Logit(Bijection):
    r"""x = (σ(z) − λ)/(1 − 2λ), whose inverse is z = logit(λ + (1 − 2λ)x): pixels in [0, 1] to the whole line.

    Args:
        shape: event shape.
        margin: λ; 1e-6 for MNIST and FMNIST and 0.05 for CIFAR-10 and SVHN in the paper. In float32 a λ near 1e-6 leaves
            few digits next to x = 1.

    Example:
        >>> import torch
        >>> Logit(1, margin=0.05).inverse(torch.tensor([[0.5]]))
        tensor([[0.]])
    """

    changes_units = True
    saturates = True

    def __init__(self, shape: int | Shape, margin: float = 1e-6):
        super().__init__(as_shape(shape))
        if not 0 <= margin < 0.5:
            raise ValueError(f"expected 0 ≤ margin < 0.5; got {margin}")
        self.margin = margin

    def forward(self, z: Tensor) -> Tensor:
        return (torch.sigmoid(z) - self.margin) / (1 - 2 * self.margin)

    def inverse(self, x: Tensor) -> Tensor:
        p = self.margin + (1 - 2 * self.margin) * x
        z = p.log() - torch.log1p(-p)
        check_finite(
            z,
            "logit",
            "Pixels must lie in [0, 1] (dequantise, then divide by the number of grey levels); the flow's own output may "
            f"round to the edge in {z.dtype}: use float64 or a larger margin.",
        )
        return z

    def _log_slope(self, z: Tensor) -> Tensor:
        return F.logsigmoid(z) + F.logsigmoid(-z) - math.log(1 - 2 * self.margin)

    def linearize(self, z: Tensor) -> tuple[Tensor, TangentMap]:
        slope = self._log_slope(z).exp().unsqueeze(1)
        return self.forward(z), lambda tangents: tangents * slope

    def linearize_inverse(self, x: Tensor) -> tuple[Tensor, TangentMap]:
        z = self.inverse(x)
        slope = (-self._log_slope(z)).exp().unsqueeze(1)
        return z, lambda tangents: tangents * slope

    def forward_with_log_det(self, z: Tensor) -> tuple[Tensor, Tensor]:
        return self.forward(z), self._log_slope(z).flatten(1).sum(dim=1)

    def inverse_with_log_det(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z = self.inverse(x)
        return z, -self._log_slope(z).flatten(1).sum(dim=1)
