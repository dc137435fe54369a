from .base import Density
from .flow import FlowDensity, as_density
from .mixture import FewerComponentsWarning, MixtureDensity
from .registry import LATENTS, LatentKind, register_latent
from .zuko import ZukoDensity

__all__ = [
    "LATENTS",
    "Density",
    "FewerComponentsWarning",
    "FlowDensity",
    "LatentKind",
    "MixtureDensity",
    "ZukoDensity",
    "as_density",
    "register_latent",
]
