r"""Densities on the latent space R^d: what h contributes, whoever wrote it.

.. math:: \log p_h(z) = \log \mathcal N(h^{-1}(z); 0, I) + \log|\det \partial h^{-1}/\partial z| .

h needs a density and samples only, never a Jacobian product, so any density estimator on R^d will do.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from ..flows.description import Described
from ..flows.spaces import Space


class Density(Described, nn.Module, ABC):
    """A probability density on a latent space, R^d unless it says otherwise, with samples."""

    features: int
    """Coordinates of a point: d, and one more for every sphere in the latent space."""

    @property
    def space(self) -> Space:
        """The latent space that it is a density on, with respect to its length, area or volume."""
        return Space.lines(self.features)

    @abstractmethod
    def log_prob(self, z: Tensor) -> Tensor:
        """log p(z), (B, d) → (B,)."""

    @abstractmethod
    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Independent draws, (count, d)."""

    @abstractmethod
    def initialise(self, z: Tensor) -> None:
        """Set whatever is taken from data, such as the whitening."""


def standard_normal_log_prob(u: Tensor) -> Tensor:
    """log N(u; 0, I), (B, d) → (B,)."""
    return -0.5 * (u.square().sum(dim=-1) + u.shape[-1] * math.log(2 * math.pi))


def draw_normal(shape: tuple[int, ...], like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Standard normal draws with the dtype and device of ``like``, from the generator's own device if there is one."""
    device = like.device if generator is None else generator.device
    return torch.randn(shape, dtype=like.dtype, device=device, generator=generator).to(like.device)
