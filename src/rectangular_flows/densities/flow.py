"""Latent densities made of flows: of one of our own bijections, or of whatever else stands for one."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..flows.injection import Bijection
from .base import Density, draw_normal, standard_normal_log_prob
from .zuko import ZukoDensity


class FlowDensity(Density):
    """A standard Gaussian pushed through one of our bijections.

    Example:
        >>> import torch
        >>> from rectangular_flows.flows import Identity
        >>> FlowDensity(Identity(2)).log_prob(torch.zeros(1, 2))
        tensor([-1.8379])
    """

    def __init__(self, flow: Bijection):
        super().__init__()
        if len(flow.in_shape) != 1 or flow.in_shape != flow.out_shape:
            raise ValueError(
                f"expected a map of R^d to itself as the latent density; got {flow.in_shape} to {flow.out_shape}"
            )
        self.flow = flow
        self.features = flow.in_shape[0]
        self.register_buffer("_where", torch.zeros(()), persistent=False)  # device and dtype of samples

    def log_prob(self, z: Tensor) -> Tensor:
        u, log_det = self.flow.inverse_with_log_det(z)
        return standard_normal_log_prob(u) + log_det

    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        u: Tensor = self.flow(draw_normal((count, self.features), self._where, generator))  # type: ignore[arg-type]
        return u

    def initialise(self, z: Tensor) -> None:
        self.flow.initialise(z)


def as_density(latent: Density | Bijection | nn.Module) -> Density:
    """The density that h stands for: one of our bijections, a zuko flow, or a ready :class:`Density`."""
    if isinstance(latent, Density):
        return latent
    if isinstance(latent, Bijection):
        return FlowDensity(latent)
    if any(base.__module__.split(".")[0] == "zuko" for base in type(latent).__mro__):
        return ZukoDensity(latent)
    raise TypeError(
        "expected the latent density to be a Bijection of rectangular_flows, a zuko flow or a Density; got "
        f"{type(latent).__name__}. For another library, subclass rectangular_flows.densities.Density: log_prob, sample, "
        "initialise."
    )
