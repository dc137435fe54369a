r"""Transformers: what a coupling does to each coordinate it changes, given a few numbers from its network.

.. math:: x = T(z;\ \theta), \qquad \theta = (\theta_1, \dots, \theta_P),

increasing in z. The affine ones read θ as a shift t and a raw log-scale r, and differ in how r becomes the log-scale s:

.. math:: x = z\,e^{s(r)} + t .

:data:`TRANSFORMERS` has those that can be given by name; :func:`register_transformer` adds one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from .description import Described

Tangents = Callable[..., Tensor]
"""(tangents of z, tangents of θ_1, …, of θ_P) ↦ tangents of x; each (B, K, *event)."""


class Transformer(Described, ABC):
    """An increasing map of one coordinate, with parameters from a network. Works on tensors, entry by entry.

    A subclass gives :meth:`forward` and :meth:`inverse`; the tangent maps then follow through :mod:`torch.func`.

    Example:
        >>> class Additive(Transformer):
        ...     parameters = 1
        ...     def forward(self, z, shift):
        ...         return z + shift, torch.zeros_like(z)
        ...     def inverse(self, x, shift):
        ...         return x - shift, torch.zeros_like(x)
        >>> x, tangents = Additive().linearize(torch.zeros(1, 2), torch.ones(1, 2))
        >>> x, tangents(torch.ones(1, 1, 2), torch.ones(1, 1, 2))
        (tensor([[1., 1.]]), tensor([[[2., 2.]]]))
    """

    parameters: int
    """P, the numbers that the network gives for each coordinate."""

    @abstractmethod
    def forward(self, z: Tensor, *theta: Tensor) -> tuple[Tensor, Tensor]:
        """(x, log ∂x/∂z)."""

    @abstractmethod
    def inverse(self, x: Tensor, *theta: Tensor) -> tuple[Tensor, Tensor]:
        """(z, log ∂z/∂x)."""

    def linearize(self, z: Tensor, *theta: Tensor) -> tuple[Tensor, Tangents]:
        """The value x and the map of tangents of (z, θ)."""
        return self.forward(z, *theta)[0], _jvp(self.forward, z, *theta)

    def linearize_inverse(self, x: Tensor, *theta: Tensor) -> tuple[Tensor, Tangents]:
        """The value z and the map of tangents of (x, θ)."""
        return self.inverse(x, *theta)[0], _jvp(self.inverse, x, *theta)


def _jvp(function: Callable[..., tuple[Tensor, Tensor]], *at: Tensor) -> Tangents:
    def jvp(*tangents: Tensor) -> Tensor:
        out: Tensor = torch.func.jvp(lambda *values: function(*values)[0], at, tangents)[1]
        return out

    def tangent_map(*tangents: Tensor) -> Tensor:
        out: Tensor = torch.func.vmap(jvp, in_dims=1, out_dims=1)(*tangents)
        return out

    return tangent_map


class Affine(Transformer):
    """x = z eˢ + t. A subclass gives s as a function of the raw log-scale, and its derivative."""

    parameters = 2

    @abstractmethod
    def log_scale(self, raw: Tensor) -> Tensor:
        """s(r)."""

    @abstractmethod
    def slope(self, raw: Tensor, log_scale: Tensor) -> Tensor | None:
        """∂s/∂r, given r and s(r); None stands for 1."""

    def forward(self, z: Tensor, *theta: Tensor) -> tuple[Tensor, Tensor]:
        shift, raw = theta
        log_scale = self.log_scale(raw)
        return torch.addcmul(shift, z, log_scale.exp()), log_scale

    def inverse(self, x: Tensor, *theta: Tensor) -> tuple[Tensor, Tensor]:
        shift, raw = theta
        log_scale = -self.log_scale(raw)
        return (x - shift) * log_scale.exp(), log_scale

    def linearize(self, z: Tensor, *theta: Tensor) -> tuple[Tensor, Tangents]:
        shift, raw = theta
        log_scale = self.log_scale(raw)
        factor = log_scale.exp()
        scaled = z * factor
        by_z, by_raw = factor.unsqueeze(1), self._by_raw(scaled, raw, log_scale).unsqueeze(1)

        def tangent_map(z_t: Tensor, shift_t: Tensor, raw_t: Tensor) -> Tensor:
            return torch.addcmul(torch.addcmul(shift_t, z_t, by_z), raw_t, by_raw)

        return scaled + shift, tangent_map

    def linearize_inverse(self, x: Tensor, *theta: Tensor) -> tuple[Tensor, Tangents]:
        shift, raw = theta
        log_scale = self.log_scale(raw)
        factor = (-log_scale).exp()
        z = (x - shift) * factor
        by_x, by_raw = factor.unsqueeze(1), self._by_raw(z, raw, log_scale).unsqueeze(1)

        def tangent_map(x_t: Tensor, shift_t: Tensor, raw_t: Tensor) -> Tensor:
            return (x_t - shift_t) * by_x - raw_t * by_raw

        return z, tangent_map

    def _by_raw(self, values: Tensor, raw: Tensor, log_scale: Tensor) -> Tensor:
        slope = self.slope(raw, log_scale)
        return values if slope is None else values * slope


class Tanh(Affine):
    """s = c·tanh(r/c), so that one layer scales by at most e^{±c}; the identity to first order at r = 0.

    The default, because an unbounded exponential is how flows stop being numerically invertible.

    Args:
        bound: c.
    """

    def __init__(self, bound: float = 2.0):
        if bound <= 0:
            raise ValueError(f"expected a positive bound of the log-scale; got {bound}")
        self.bound = bound

    def log_scale(self, raw: Tensor) -> Tensor:
        return self.bound * torch.tanh(raw / self.bound)

    def slope(self, raw: Tensor, log_scale: Tensor) -> Tensor:
        return 1 - (log_scale / self.bound) ** 2


class Exp(Affine):
    """s = r, as published."""

    def log_scale(self, raw: Tensor) -> Tensor:
        return raw

    def slope(self, raw: Tensor, log_scale: Tensor) -> None:
        return None


class Sigmoid(Affine):
    """s = log(σ(r + 2) + 10⁻³), as in the manifold-flow code of Brehmer and Cranmer: scales of at most 1.001."""

    def log_scale(self, raw: Tensor) -> Tensor:
        return torch.log(torch.sigmoid(raw + 2) + 1e-3)

    def slope(self, raw: Tensor, log_scale: Tensor) -> Tensor:
        s = torch.sigmoid(raw + 2)
        return s * (1 - s) / (s + 1e-3)


TRANSFORMERS: dict[str, type[Transformer]] = {"tanh": Tanh, "exp": Exp, "sigmoid": Sigmoid}


def register_transformer(name: str, transformer: type[Transformer]) -> None:
    """Make a transformer of your own known by a name, wherever a coupling's transformer is given by name."""
    TRANSFORMERS[name] = transformer


def as_transformer(transformer: str | Transformer, bound: float | None = None) -> Transformer:
    """The transformer itself, or the one of that name; ``bound`` is for "tanh"."""
    if isinstance(transformer, Transformer):
        return transformer
    if transformer not in TRANSFORMERS:
        raise ValueError(f"expected a transformer among {', '.join(TRANSFORMERS)}; got {transformer!r}")
    if transformer == "tanh" and bound is not None:
        return Tanh(bound)
    return TRANSFORMERS[transformer]()
