"""A flow in the units that training sees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import nn

from ..flows.injection import Injection
from .base import Manifold

if TYPE_CHECKING:
    from .flow import RectangularFlow


class ModelUnits(Manifold):
    """A view of a flow in the model's units: rows, densities and distances before the unit layers.

    Args:
        flow: whose parameters it shares.
    """

    def __init__(self, flow: RectangularFlow):
        self.flow, self.latent, self.nearest = flow, flow.latent, flow.nearest
        links = flow.layers()
        self._links = links[: len(links) - len(flow.unit_layers())]

    def layers(self) -> list[Injection]:
        return self._links

    def parameters(self) -> Iterator[nn.Parameter]:
        return self.flow.parameters()
