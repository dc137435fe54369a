r"""Densities on the latent space R^d: what h contributes, whoever wrote it.

.. math:: \log p_h(z) = \log \mathcal N(h^{-1}(z); 0, I) + \log|\det \partial h^{-1}/\partial z| .

h needs a density and samples only, never a Jacobian product, so any density estimator on R^d will do.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

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


_places: ContextVar[tuple[int, int, int] | None] = ContextVar("places", default=None)


@contextmanager
def drawing_for(rows: int, first: int = 0, step: int = 1) -> Iterator[None]:
    """Inside, normal draws for some rows are those that they get among all rows of a batch.

    Args:
        rows: of the batch.
        first: place of the first of these rows in it.
        step: from one of them to the next.

    Example:
        >>> like = torch.zeros(())
        >>> whole = draw_normal((7, 2), like, torch.Generator().manual_seed(0))
        >>> with drawing_for(7, first=1, step=3):
        ...     some = draw_normal((2, 2), like, torch.Generator().manual_seed(0))
        >>> torch.equal(some, whole[1::3])
        True
    """
    before = _places.set((rows, first, step) if step > 1 else None)
    try:
        yield
    finally:
        _places.reset(before)


def draw_normal(shape: tuple[int, ...], like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Standard normal draws with the dtype and device of ``like``, from the generator's own device if there is one."""
    places = None if torch.compiler.is_compiling() else _places.get()  # which the compiler cannot follow
    if places is not None:
        rows, first, step = places
        with drawing_for(rows):
            return draw_normal((rows, *shape[1:]), like, generator)[first::step]
    device = like.device if generator is None else generator.device
    return torch.randn(shape, dtype=like.dtype, device=device, generator=generator).to(like.device)
