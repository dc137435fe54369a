r"""ActNorm: a learned shift and scale for each feature or channel, started from data.

.. math:: x = b + e^{s} \odot z, \qquad \log|\det J| = HW\textstyle\sum_c s_c .

It takes the place of batch normalisation, which would couple the rows of a batch.

Reference: Kingma and Dhariwal, Glow, arXiv:1807.03039.
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor, nn

from .injection import Shape, TangentMap, as_shape
from .linear import AffineMap


class ActNorm(AffineMap):
    """Shift and scale each feature (or channel of an image shape).

    Starts as the identity. :meth:`initialise` sets it so that f†(x) has mean 0 and variance 1 in every feature; it is
    called explicitly, never by a forward pass behind the user's back.

    Example:
        >>> import torch
        >>> layer = ActNorm(2)
        >>> z = layer.initialise(5 + 3 * torch.randn(1000, 2))
        >>> z.mean().abs() < 1e-5, (z.std() - 1).abs() < 1e-2
        (tensor(True), tensor(True))
    """

    def __init__(self, shape: int | Shape):
        shape = as_shape(shape)
        super().__init__(shape)
        self._rest = prod(shape[1:])
        self.bias = nn.Parameter(torch.zeros(shape[0], *[1] * (len(shape) - 1)))
        self.log_scale = nn.Parameter(torch.zeros_like(self.bias))

    @torch.no_grad()
    def initialise(self, x: Tensor) -> Tensor:
        channels = x.transpose(0, 1).flatten(1)
        deviation = channels.std(dim=1)
        if not bool((deviation > 0).all()):
            constant = (~(deviation > 0)).nonzero().flatten().tolist()
            raise ValueError(f"ActNorm cannot be initialised: no variation in features {constant}; drop them")
        self.bias.copy_(channels.mean(dim=1).view_as(self.bias))
        self.log_scale.copy_(deviation.log().view_as(self.log_scale))
        return self.inverse(x)

    def forward(self, z: Tensor) -> Tensor:
        return torch.addcmul(self.bias, z, self.log_scale.exp())

    def inverse(self, x: Tensor) -> Tensor:
        return (x - self.bias) * (-self.log_scale).exp()

    def linearize(self, z: Tensor) -> tuple[Tensor, TangentMap]:
        return self.forward(z), lambda tangents: tangents * self.log_scale.exp()

    def linearize_inverse(self, x: Tensor) -> tuple[Tensor, TangentMap]:
        return self.inverse(x), lambda tangents: tangents * (-self.log_scale).exp()

    def log_abs_det(self) -> Tensor:
        return self._rest * self.log_scale.sum()
