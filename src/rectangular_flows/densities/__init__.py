"""Latent densities: what gives the coordinates on the manifold a probability."""

from __future__ import annotations

from torch import nn

from ..flows.injection import Bijection
from .base import Density
from .flow import FlowDensity
from .mixture import FewerComponentsWarning, MixtureDensity
from .zuko import ZukoDensity


def as_density(latent: Density | Bijection | nn.Module) -> Density:
    """The density that h stands for: one of our bijections, a zuko flow, or a ready :class:`Density`."""
    if isinstance(latent, Density):
        return latent
    if isinstance(latent, Bijection):
        return FlowDensity(latent)
    if any(base.__module__.split(".")[0] == "zuko" for base in type(latent).__mro__):
        return ZukoDensity(latent)
    raise TypeError(
        f"expected h to be a Bijection of rectangular_flows, a zuko flow or a Density; got {type(latent).__name__}. "
        "For another library, subclass rectangular_flows.flows.Density: log_prob, sample, initialise."
    )


__all__ = ["Density", "FewerComponentsWarning", "FlowDensity", "MixtureDensity", "ZukoDensity", "as_density"]
