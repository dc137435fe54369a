r"""Couplings some of whose coordinates are angles: these are only turned, and networks see them as (cos, sin).

.. math:: \theta_b = \varphi_b + t(\cos\varphi_a, \sin\varphi_a, y_a), \qquad
          x_b = y_b\,e^{s(\cos\varphi_a, \sin\varphi_a, y_a)} + t(\cos\varphi_a, \sin\varphi_a, y_a),

a bijection of a product of circles and lines to itself: nothing in it knows where an angle starts. Angles come first.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .factors import wrap
from .injection import Bijection, Rearrangement, TangentMap
from .networks import Network
from .transformers import Affine


class SeenAsPairs(Network):
    """A network that sees some of its inputs as (cos, sin).

    Args:
        network: of one more input for every angle.
        angles: which of the inputs are angles, by number.

    Example:
        >>> from rectangular_flows.flows import MLP
        >>> seen = SeenAsPairs(MLP(3, 2), angles=[0])
        >>> x = torch.tensor([[0.5, 1.0], [0.5 + 2 * torch.pi, 1.0]])
        >>> bool((seen(x)[0] - seen(x)[1]).abs().max() < 1e-5)
        True
    """

    def __init__(self, network: Network, angles: Sequence[int]):
        super().__init__()
        self.network, self.angles = network, list(angles)
        self.activation_size = network.activation_size

    def _seen(self, x: Tensor) -> Tensor:
        at = x[..., self.angles]
        return torch.cat((x.index_copy(-1, self._index(x), at.cos()), at.sin()), dim=-1)

    def _index(self, like: Tensor) -> Tensor:
        return torch.tensor(self.angles, dtype=torch.long, device=like.device)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.network(self._seen(x))
        return out

    def linearize(self, x: Tensor) -> tuple[Tensor, TangentMap]:
        at, index = x[..., self.angles].unsqueeze(1), self._index(x)
        sine, cosine = at.sin(), at.cos()
        y, network_map = self.network.linearize(self._seen(x))

        def apply(tangents: Tensor) -> Tensor:
            turned = tangents[..., self.angles]
            seen = torch.cat((tangents.index_copy(-1, index, -sine * turned), cosine * turned), dim=-1)
            return network_map(seen)

        return y, apply


class TurnsAngles(Affine):
    """An affine transformer that only shifts some of the coordinates, which are angles.

    Args:
        affine: what it does to the others.
        angles: for every coordinate, whether it is an angle.
    """

    def __init__(self, affine: Affine, angles: Sequence[bool]):
        self.affine, self.angles = affine, [bool(angle) for angle in angles]

    def _only_lines(self, values: Tensor) -> Tensor:
        return torch.where(torch.tensor(self.angles, device=values.device), 0.0, values)

    def log_scale(self, raw: Tensor) -> Tensor:
        return self._only_lines(self.affine.log_scale(raw))

    def slope(self, raw: Tensor, log_scale: Tensor) -> Tensor:
        slope = self.affine.slope(raw, log_scale)
        return self._only_lines(torch.ones_like(raw) if slope is None else slope)


class Wrap(Rearrangement):
    """The same angles in [−π, π), and all other coordinates as they are.

    Args:
        angles: how many of the coordinates, the first ones, are angles.
        features: of all coordinates.

    Example:
        >>> Wrap(1, 2).inverse(torch.tensor([[4.0, 4.0]]))
        tensor([[-2.2832,  4.0000]])
    """

    def __init__(self, angles: int, features: int):
        super().__init__(features)
        if not 0 <= angles <= features:
            raise ValueError(f"expected 0 to {features} angles among {features} coordinates; got {angles}")
        self.angles = angles

    def forward(self, z: Tensor) -> Tensor:
        return torch.cat((wrap(z[..., : self.angles]), z[..., self.angles :]), dim=-1)

    def inverse(self, x: Tensor) -> Tensor:
        return self.forward(x)

    def linearize(self, z: Tensor) -> tuple[Tensor, TangentMap]:
        return self.forward(z), lambda tangents: tangents

    def linearize_inverse(self, x: Tensor) -> tuple[Tensor, TangentMap]:
        return self.forward(x), lambda tangents: tangents


class OnLines(Bijection):
    """A bijection of the coordinates after the angles, which stay as they are.

    Args:
        angles: how many there are.
        lines: the bijection.
    """

    def __init__(self, angles: int, lines: Bijection):
        super().__init__(angles + lines.in_shape[0])
        self.angles, self.lines = angles, lines

    def _beside(self, angles: Tensor, lines: Tensor) -> Tensor:
        return torch.cat((angles[..., : self.angles], lines), dim=-1)

    def forward(self, z: Tensor) -> Tensor:
        return self._beside(z, self.lines(z[..., self.angles :]))

    def inverse(self, x: Tensor) -> Tensor:
        return self._beside(x, self.lines.inverse(x[..., self.angles :]))

    def forward_with_log_det(self, z: Tensor) -> tuple[Tensor, Tensor]:
        x, log_det = self.lines.forward_with_log_det(z[..., self.angles :])
        return self._beside(z, x), log_det

    def inverse_with_log_det(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z, log_det = self.lines.inverse_with_log_det(x[..., self.angles :])
        return self._beside(x, z), log_det

    def linearize(self, z: Tensor) -> tuple[Tensor, TangentMap]:
        x, tangent_map = self.lines.linearize(z[..., self.angles :])
        return self._beside(z, x), self._tangents(tangent_map)

    def linearize_inverse(self, x: Tensor) -> tuple[Tensor, TangentMap]:
        z, tangent_map = self.lines.linearize_inverse(x[..., self.angles :])
        return self._beside(x, z), self._tangents(tangent_map)

    def _tangents(self, tangent_map: TangentMap) -> TangentMap:
        return lambda tangents: self._beside(tangents, tangent_map(tangents[..., self.angles :]))
