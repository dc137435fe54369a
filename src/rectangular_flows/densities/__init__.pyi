from .base import Density
from .columnwise import ColumnwiseDensity
from .flow import FlowDensity, as_density
from .mixture import FewerComponentsWarning, MixtureDensity
from .registry import LATENTS, LatentKind, register_latent
from .scatter import Coordinates, Scatter
from .zuko import ZukoDensity

__all__ = [
    "LATENTS",
    "ColumnwiseDensity",
    "Coordinates",
    "Density",
    "FewerComponentsWarning",
    "FlowDensity",
    "LatentKind",
    "MixtureDensity",
    "Scatter",
    "ZukoDensity",
    "as_density",
    "register_latent",
]
