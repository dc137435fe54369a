r"""Affine couplings: one part of the coordinates is kept and says how the rest is scaled and shifted.

.. math:: x_a = z_a, \qquad x_b = z_b \odot e^{s(z_a)} + t(z_a), \qquad \log|\det J| = \textstyle\sum s(z_a).

Reference: Dinh et al., Density estimation using Real NVP, arXiv:1605.08803.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .description import Described
from .injection import Bijection, Shape, TangentMap
from .networks import Network

Scale = Literal["tanh", "exp", "sigmoid"]


class Mask(Described, nn.Module, ABC):
    """Which coordinates a coupling keeps and which it changes. Works on batches and on bundles of tangents alike."""

    shape: Shape
    channel_dim: int
    """The dimension along which a network stacks shift and log-scale."""
    kept_size: int
    """Features or channels that the network sees."""
    changed_size: int
    """Features or channels that are shifted and scaled."""

    @abstractmethod
    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The kept and the changed part."""

    @abstractmethod
    def merge(self, kept: Tensor, changed: Tensor) -> Tensor:
        """The inverse of :meth:`split`."""

    @abstractmethod
    def total(self, log_scale: Tensor) -> Tensor:
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
        size = shape[0]
        kept_index, changed_index = list(range(size))[kept], list(range(size))[changed]
        order = kept_index + changed_index
        if sorted(order) != list(range(size)):
            raise ValueError(f"expected two slices that divide {size} coordinates; got {kept} and {changed}")
        self.shape = shape
        self.channel_dim = -len(shape)
        self.kept_size, self.changed_size = len(kept_index), len(changed_index)
        self._in_order = order == list(range(size))
        self._interleaved = {kept_index[:1] == [0] and kept.step, changed_index[:1] == [0] and changed.step} == {
            2,
            False,
        }
        self._keeps_first = kept_index[:1] == [0]
        inverse_order = sorted(range(size), key=order.__getitem__)
        self.register_buffer("_order", torch.tensor(inverse_order), persistent=False)
        self._index = tuple(
            (..., s) + (slice(None),) * (len(shape) - 1) for s in (kept, changed)
        )  # views, at any number of leading dimensions

    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x[self._index[0]], x[self._index[1]]

    def merge(self, kept: Tensor, changed: Tensor) -> Tensor:
        if self._interleaved and len(self.shape) == 1:  # much faster than picking by index
            even, odd = (kept, changed) if self._keeps_first else (changed, kept)
            if even.shape[-1] == odd.shape[-1]:
                return torch.stack((even, odd), dim=-1).flatten(-2)
            odd = F.pad(odd, (0, 1))
            return torch.stack((even, odd), dim=-1).flatten(-2)[..., :-1]
        both = torch.cat((kept, changed), dim=self.channel_dim)
        return both if self._in_order else both.index_select(self.channel_dim, self._order)

    def total(self, log_scale: Tensor) -> Tensor:
        return log_scale.flatten(1).sum(dim=1)


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

    def total(self, log_scale: Tensor) -> Tensor:
        return (log_scale * self._change).flatten(1).sum(dim=1)


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


class AffineCoupling(Bijection):
    r"""Keep one part of the coordinates; scale and shift the rest by functions of it, given by one network.

    The network's output r̃ is read as (shift t, raw log-scale r), and the log-scale s is

    - ``"tanh"``: s = c·tanh(r/c) with c = ``bound``, so that one layer scales by at most e^{±c}: the default, because an
      unbounded exponential is how flows stop being numerically invertible. It is the identity to first order at r = 0;
    - ``"exp"``: s = r, as published;
    - ``"sigmoid"``: s = log(σ(r + 2) + 10⁻³), as in the manifold-flow code of Brehmer and Cranmer (scales ≤ 1.001).

    Args:
        mask: which coordinates are kept.
        network: maps the kept part to twice the changed part (stacked along the feature or channel dimension).
        scale: how the raw output becomes a log-scale.
        bound: the c above; only with ``scale="tanh"``.

    Example:
        >>> import torch
        >>> from rectangular_flows.flows import MLP, even_odd
        >>> layer = AffineCoupling(even_odd(3, keep_even=True), MLP(2, 2))
        >>> z = torch.randn(4, 3)
        >>> torch.allclose(layer.inverse(layer(z)), z, atol=1e-5)
        True
    """

    def __init__(self, mask: Mask, network: Network, *, scale: Scale = "tanh", bound: float = 2.0):
        super().__init__(mask.shape)
        if scale not in ("tanh", "exp", "sigmoid"):
            raise ValueError(f"expected scale 'tanh', 'exp' or 'sigmoid'; got {scale!r}")
        if bound <= 0:
            raise ValueError(f"expected a positive bound of the log-scale; got {bound}")
        self.mask = mask
        self.network = network
        self.scale = scale
        self.bound = bound

    @property
    def activation_size(self) -> int:
        """The network's, or the event's where that is larger."""
        return max(super().activation_size, self.network.activation_size)

    def _log_scale(self, raw: Tensor) -> Tensor:
        if self.scale == "exp":
            return raw
        if self.scale == "tanh":
            return self.bound * torch.tanh(raw / self.bound)
        return torch.log(torch.sigmoid(raw + 2) + 1e-3)

    def _log_scale_slope(self, raw: Tensor, log_scale: Tensor) -> Tensor | None:
        """∂s/∂r; None stands for 1."""
        if self.scale == "exp":
            return None
        if self.scale == "tanh":
            return 1 - (log_scale / self.bound) ** 2
        s = torch.sigmoid(raw + 2)
        return s * (1 - s) / (s + 1e-3)

    def _shift_and_log_scale(self, kept: Tensor) -> tuple[Tensor, Tensor]:
        shift, raw = self.network(kept).chunk(2, dim=self.mask.channel_dim)
        return shift, self._log_scale(raw)

    def forward(self, z: Tensor) -> Tensor:
        return self.forward_with_log_det(z)[0]

    def inverse(self, x: Tensor) -> Tensor:
        return self.inverse_with_log_det(x)[0]

    def forward_with_log_det(self, z: Tensor) -> tuple[Tensor, Tensor]:
        kept, changed = self.mask.split(z)
        shift, log_scale = self._shift_and_log_scale(kept)
        x = self.mask.merge(kept, torch.addcmul(shift, changed, log_scale.exp()))
        return x, self.mask.total(log_scale)

    def inverse_with_log_det(self, x: Tensor) -> tuple[Tensor, Tensor]:
        kept, changed = self.mask.split(x)
        shift, log_scale = self._shift_and_log_scale(kept)
        z = self.mask.merge(kept, (changed - shift) * (-log_scale).exp())
        return z, -self.mask.total(log_scale)

    def _linearize_network(self, kept: Tensor) -> tuple[Tensor, Tensor, Tensor | None, TangentMap]:
        """(shift, s, ∂s/∂r, tangent map of the network)."""
        output, network_map = self.network.linearize(kept)
        shift, raw = output.chunk(2, dim=self.mask.channel_dim)
        log_scale = self._log_scale(raw)
        return shift, log_scale, self._log_scale_slope(raw, log_scale), network_map

    def linearize(self, z: Tensor) -> tuple[Tensor, TangentMap]:
        # x_b = z_b e^s + t, so its tangent is e^s t_b + z_b e^s s'(r) t_r + t_t
        kept, changed = self.mask.split(z)
        shift, log_scale, slope, network_map = self._linearize_network(kept)
        factor = log_scale.exp()
        scaled = changed * factor
        by_changed, by_raw = factor.unsqueeze(1), _times(scaled, slope).unsqueeze(1)

        def tangent_map(tangents: Tensor) -> Tensor:
            kept_t, changed_t = self.mask.split(tangents)
            shift_t, raw_t = network_map(kept_t).chunk(2, dim=self.mask.channel_dim)
            changed_t = torch.addcmul(torch.addcmul(shift_t, changed_t, by_changed), raw_t, by_raw)
            return self.mask.merge(kept_t, changed_t)

        return self.mask.merge(kept, scaled + shift), tangent_map

    def linearize_inverse(self, x: Tensor) -> tuple[Tensor, TangentMap]:
        # z_b = (x_b - t) e^-s, so its tangent is e^-s (t_b - t_t) - z_b s'(r) t_r
        kept, changed = self.mask.split(x)
        shift, log_scale, slope, network_map = self._linearize_network(kept)
        factor = (-log_scale).exp()
        z_changed = (changed - shift) * factor
        by_changed, by_raw = factor.unsqueeze(1), _times(z_changed, slope).unsqueeze(1)

        def tangent_map(tangents: Tensor) -> Tensor:
            kept_t, changed_t = self.mask.split(tangents)
            shift_t, raw_t = network_map(kept_t).chunk(2, dim=self.mask.channel_dim)
            return self.mask.merge(kept_t, (changed_t - shift_t) * by_changed - raw_t * by_raw)

        return self.mask.merge(kept, z_changed), tangent_map


def _times(values: Tensor, factor: Tensor | None) -> Tensor:
    return values if factor is None else values * factor


__all__ = [
    "AffineCoupling",
    "CheckerboardMask",
    "Mask",
    "SliceMask",
    "even_odd",
    "halves",
    "keep_nothing",
    "leading",
]
