r"""Couplings: one part of the coordinates is kept and says how the rest is changed. Mask × network × transformer.

.. math:: x_a = z_a, \qquad x_b = T(z_b;\ \theta(z_a)), \qquad \log|\det J| = \textstyle\sum \log T'(z_b;\ \theta(z_a)).

Reference: Dinh et al., Density estimation using Real NVP, arXiv:1605.08803.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .description import Described
from .injection import Bijection, Shape, TangentMap
from .networks import Network
from .transformers import Tangents, Transformer, as_transformer


class Mask(Described, nn.Module, ABC):
    """Which coordinates a coupling keeps and which it changes. Works on batches and on bundles of tangents alike."""

    shape: Shape
    channel_dim: int
    """The dimension along which a network stacks the parameters of a transformer."""
    kept_size: int
    """Features or channels that the network sees."""
    changed_size: int
    """Features or channels that are changed."""

    @abstractmethod
    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The kept and the changed part."""

    @abstractmethod
    def merge(self, kept: Tensor, changed: Tensor) -> Tensor:
        """The inverse of :meth:`split`."""

    @abstractmethod
    def total(self, values: Tensor) -> Tensor:
        """Sum over the changed coordinates, (B, …) → (B,)."""


class SliceMask(Mask):
    """Coordinates (or channels) in two slices, such as even and odd indices, or halves.

    Args:
        shape: event shape; its first dimension is divided.
        kept: slice that is kept.
        changed: the other slice.
    """

    _order: Tensor

    def __init__(self, shape: Shape, kept: slice, changed: slice):
        super().__init__()
        everything = list(range(shape[0]))
        order = everything[kept] + everything[changed]
        if sorted(order) != everything:
            raise ValueError(f"expected two slices that divide {shape[0]} coordinates; got {kept} and {changed}")
        self.shape = shape
        self.channel_dim = -len(shape)
        self.kept_size, self.changed_size = len(everything[kept]), len(everything[changed])
        self._in_order = order == everything
        self._interleaved = len(shape) == 1 and kept.step == changed.step == 2
        self._keeps_first = everything[kept][:1] == [0]
        self.register_buffer("_order", torch.tensor(order).argsort(), persistent=False)
        # views, at any number of leading dimensions
        self._index: tuple[Any, ...] = tuple((..., s, *[slice(None)] * (len(shape) - 1)) for s in (kept, changed))

    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x[self._index[0]], x[self._index[1]]

    def merge(self, kept: Tensor, changed: Tensor) -> Tensor:
        if self._interleaved:  # much faster than picking by index
            even, odd = (kept, changed) if self._keeps_first else (changed, kept)
            if even.shape[-1] == odd.shape[-1]:
                return torch.stack((even, odd), dim=-1).flatten(-2)
            odd = F.pad(odd, (0, 1))
            return torch.stack((even, odd), dim=-1).flatten(-2)[..., :-1]
        both = torch.cat((kept, changed), dim=self.channel_dim)
        return both if self._in_order else both.index_select(self.channel_dim, self._order)

    def total(self, values: Tensor) -> Tensor:
        return values.flatten(1).sum(dim=1)


class CheckerboardMask(Mask):
    """Pixels of an image like the fields of a checkerboard; the network sees the kept ones, the others set to zero.

    Args:
        shape: (channels, height, width).
        keep_first: whether the pixel (0, 0) is kept.
    """

    _keep: Tensor
    _change: Tensor

    def __init__(self, shape: Shape, keep_first: bool):
        super().__init__()
        if len(shape) != 3:
            raise ValueError(f"expected an image shape (channels, height, width); got {shape}")
        self.shape = shape
        self.channel_dim = -3
        self.kept_size = self.changed_size = shape[0]
        field = torch.arange(shape[1])[:, None] + torch.arange(shape[2])
        keep = (field % 2 == (0 if keep_first else 1)).to(torch.get_default_dtype())
        self.register_buffer("_keep", keep, persistent=False)
        self.register_buffer("_change", 1 - keep, persistent=False)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x * self._keep, x * self._change

    def merge(self, kept: Tensor, changed: Tensor) -> Tensor:
        return kept + changed * self._change

    def total(self, values: Tensor) -> Tensor:
        return (values * self._change).flatten(1).sum(dim=1)


def even_odd(features: int, keep_even: bool) -> SliceMask:
    """Even indices kept and odd ones changed, or the other way round."""
    even, odd = slice(0, None, 2), slice(1, None, 2)
    return SliceMask((features,), even, odd) if keep_even else SliceMask((features,), odd, even)


def halves(shape: int | Shape, keep_first: bool) -> SliceMask:
    """The first half of the features (or channels, for an image shape) kept and the second changed, or reversed."""
    shape = (shape,) if isinstance(shape, int) else shape
    first, second = slice(0, (shape[0] + 1) // 2), slice((shape[0] + 1) // 2, None)
    return SliceMask(shape, first, second) if keep_first else SliceMask(shape, second, first)


def leading(features: int, count: int, keep_first: bool) -> SliceMask:
    """The first ``count`` coordinates kept and the rest changed, or reversed: the latent coordinates and the others.

    Example:
        >>> import torch
        >>> leading(4, 1, keep_first=True).split(torch.arange(4))
        (tensor([0]), tensor([1, 2, 3]))
    """
    if not 1 <= count < features:
        raise ValueError(f"expected a number of leading coordinates from 1 to {features - 1}; got {count}")
    first, rest = slice(0, count), slice(count, None)
    return SliceMask((features,), first, rest) if keep_first else SliceMask((features,), rest, first)


def keep_nothing(features: int) -> SliceMask:
    """Every coordinate changed: with a :class:`~.networks.Constant` network, a learned affine map."""
    return SliceMask((features,), slice(0, 0), slice(0, None))


class Coupling(Bijection):
    """Keep one part of the coordinates; change the rest, one by one, as a network says that sees the kept part.

    Args:
        mask: which coordinates are kept.
        network: maps the kept part to the parameters of the transformer for the changed part, stacked along the feature
            or channel dimension: with an affine transformer, twice its size.
        transformer: what happens to each changed coordinate, as an object or by name: "tanh" (scale and shift with a
            bounded log-scale), "exp" (as published), "sigmoid"; see :mod:`~rectangular_flows.flows.transformers`.

    Example:
        >>> import torch
        >>> from rectangular_flows.flows import MLP, even_odd
        >>> layer = Coupling(even_odd(3, keep_even=True), MLP(2, 2))
        >>> z = torch.randn(4, 3)
        >>> torch.allclose(layer.inverse(layer(z)), z, atol=1e-5)
        True
    """

    def __init__(self, mask: Mask, network: Network, transformer: str | Transformer = "tanh"):
        super().__init__(mask.shape)
        self.mask = mask
        self.network = network
        self.transformer = as_transformer(transformer)

    @property
    def activation_size(self) -> int:
        """The network's, or the event's where that is larger."""
        return max(super().activation_size, self.network.activation_size)

    def _parameters_of(self, output: Tensor) -> tuple[Tensor, ...]:
        return output.chunk(self.transformer.parameters, dim=self.mask.channel_dim)

    def forward(self, z: Tensor) -> Tensor:
        return self.forward_with_log_det(z)[0]

    def inverse(self, x: Tensor) -> Tensor:
        return self.inverse_with_log_det(x)[0]

    def forward_with_log_det(self, z: Tensor) -> tuple[Tensor, Tensor]:
        return self._changed_with_log_det(self.transformer.forward, z)

    def inverse_with_log_det(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self._changed_with_log_det(self.transformer.inverse, x)

    def _changed_with_log_det(
        self, change: Callable[..., tuple[Tensor, Tensor]], values: Tensor
    ) -> tuple[Tensor, Tensor]:
        kept, changed = self.mask.split(values)
        changed, log_slope = change(changed, *self._parameters_of(self.network(kept)))
        return self.mask.merge(kept, changed), self.mask.total(log_slope)

    def linearize(self, z: Tensor) -> tuple[Tensor, TangentMap]:
        return self._linearize(self.transformer.linearize, z)

    def linearize_inverse(self, x: Tensor) -> tuple[Tensor, TangentMap]:
        return self._linearize(self.transformer.linearize_inverse, x)

    def _linearize(self, change: Callable[..., tuple[Tensor, Tangents]], values: Tensor) -> tuple[Tensor, TangentMap]:
        kept, changed = self.mask.split(values)
        output, network_map = self.network.linearize(kept)
        changed, change_tangents = change(changed, *self._parameters_of(output))

        def tangent_map(tangents: Tensor) -> Tensor:
            kept_t, changed_t = self.mask.split(tangents)
            changed_t = change_tangents(changed_t, *self._parameters_of(network_map(kept_t)))
            return self.mask.merge(kept_t, changed_t)

        return self.mask.merge(kept, changed), tangent_map


class AffineCoupling(Coupling):
    """A coupling that scales and shifts: ``Coupling`` with the form of the log-scale and its bound as two arguments.

    Args:
        mask: as in :class:`Coupling`.
        network: likewise.
        scale: an affine transformer or its name.
        bound: largest log-scale, with ``scale="tanh"``.
    """

    def __init__(self, mask: Mask, network: Network, scale: str | Transformer = "tanh", bound: float = 2.0):
        super().__init__(mask, network, as_transformer(scale, bound))
