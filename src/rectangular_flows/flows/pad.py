r"""Padding with zeros, the map that makes a square flow rectangular.

.. math:: \mathtt{pad}(z) = P\,(z, 0), \qquad \mathtt{pad}^\dagger(y) = (P^\top y)_{1..d},

with a fixed permutation P, drawn once and kept with the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Literal

import torch
from torch import Tensor

from .injection import Injection, Shape, TangentMap, as_shape


class Pad(Injection):
    """Place d coordinates among D, zeros elsewhere.

    Args:
        features: d.
        shape: D, or an event shape with D entries (the latent image of a multi-scale flow).
        order: which of the D places come first: "random" draws a permutation from torch's generator (as published),
            "first" keeps the natural order (z goes to the first d places), or a permutation of range(D).

    Example:
        >>> import torch
        >>> Pad(1, 3, order=[2, 0, 1])(torch.tensor([[5.0]]))
        tensor([[0., 0., 5.]])
    """

    isometric = True
    order: Tensor

    def __init__(self, features: int, shape: int | Shape, order: Literal["random", "first"] | Sequence[int] = "random"):
        shape = as_shape(shape)
        size = prod(shape)
        if not 1 <= features <= size:
            raise ValueError(f"expected a latent dimension d from 1 to D; got d = {features} and D = {size}")
        super().__init__((features,), shape)
        if order == "random":
            permutation = torch.randperm(size)
        elif order == "first":
            permutation = torch.arange(size)
        elif isinstance(order, str):
            raise ValueError(f"expected order 'random', 'first' or a permutation; got {order!r}")
        else:
            permutation = torch.as_tensor(order, dtype=torch.long)
            if sorted(permutation.tolist()) != list(range(size)):
                raise ValueError(f"expected a permutation of range({size}); got {permutation.tolist()}")
        self.register_buffer("order", permutation)

    @property
    def codimension(self) -> int:
        """D − d."""
        return prod(self.out_shape) - self.in_shape[0]

    def _spread(self, z: Tensor, leading: int) -> Tensor:
        zeros = z.new_zeros((*z.shape[:-1], self.codimension))
        padded = torch.cat((z, zeros), dim=-1).index_select(-1, self.order.argsort())
        return padded.unflatten(leading, self.out_shape) if len(self.out_shape) > 1 else padded

    def _gather(self, x: Tensor, leading: int, dropped: bool = False) -> Tensor:
        features = self.in_shape[0]
        return x.flatten(leading).index_select(-1, self.order[features:] if dropped else self.order[:features])

    def forward(self, z: Tensor) -> Tensor:
        return self._spread(z, 1)

    def inverse(self, x: Tensor) -> Tensor:
        return self._gather(x, 1)

    def dropped(self, x: Tensor) -> Tensor:
        """The D − d coordinates that the left inverse drops; zero exactly on the manifold. (B, D − d)."""
        return self._gather(x, 1, dropped=True)

    def place(self, z: Tensor, rest: Tensor) -> Tensor:
        """z and the D − d coordinates beside it in their places: the inverse of (:meth:`inverse`, :meth:`dropped`)."""
        whole = torch.cat((z, rest), dim=-1).index_select(-1, self.order.argsort())
        return whole.unflatten(-1, self.out_shape) if len(self.out_shape) > 1 else whole

    def dropped_tangents(self, tangents: Tensor) -> Tensor:
        """The same of a bundle of tangents, (B, K, *shape) → (B, K, D − d)."""
        return self._gather(tangents, 2, dropped=True)

    def _push(self, tangents: Tensor) -> Tensor:
        if len(tangents) > 1 and tangents.stride(0) == 0:  # the same for all rows, as a basis is: spread once
            once = self._spread(tangents[:1], 2)
            return once.expand(len(tangents), *once.shape[1:])
        return self._spread(tangents, 2)

    def linearize(self, z: Tensor) -> tuple[Tensor, TangentMap]:
        return self.forward(z), self._push

    def linearize_inverse(self, x: Tensor) -> tuple[Tensor, TangentMap]:
        return self.inverse(x), lambda tangents: self._gather(tangents, 2)
