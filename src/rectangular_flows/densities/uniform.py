"""The density that a closed latent space has without one of its own: uniform where it is closed."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..flows.spaces import Space, unit
from .base import Density, draw_normal

_LOG_SIZE = {"circle": math.log(2 * math.pi), "sphere": math.log(4 * math.pi)}


class UniformDensity(Density):
    """Uniform on circles and spheres, standard Gaussian on lines.

    Args:
        space: its name, such as "circle" or "line*sphere".

    Example:
        >>> round(UniformDensity("circle").log_prob(torch.zeros(1, 1)).exp().item() * 2 * math.pi, 6)
        1.0
    """

    def __init__(self, space: str):
        super().__init__()
        self._space = Space.of(space)
        self.features = self._space.coordinates
        self.register_buffer("_where", torch.zeros(()), persistent=False)  # device and dtype of samples

    @property
    def space(self) -> Space:
        """The space that it is a density on."""
        return self._space

    def log_prob(self, z: Tensor) -> Tensor:
        total = 0 * z.sum(dim=1)
        for name, place in self._space.places():
            if name == "line":
                total = total - 0.5 * (z[:, place].square().sum(dim=1) + math.log(2 * math.pi))
            else:
                total = total - _LOG_SIZE[name]
        return total

    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        parts = []
        for name, place in self._space.places():
            shape = (count, 2 if name == "circle" else place.stop - place.start)
            normal = draw_normal(shape, self._where, generator)  # type: ignore[arg-type]
            if name == "circle":
                normal = torch.atan2(normal[:, :1], normal[:, 1:])
            parts.append(unit(normal) if name == "sphere" else normal)
        return torch.cat(parts, dim=1)

    def initialise(self, z: Tensor) -> None:
        pass
