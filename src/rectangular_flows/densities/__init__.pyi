from .base import Density
from .closed_mixture import ClosedMixture
from .closed_splines import ClosedSplines
from .columnwise import ColumnwiseDensity
from .flow import FlowDensity, as_density
from .kernels import KernelDensity
from .mixture import FewerComponentsWarning, MixtureDensity
from .registry import LATENTS, LatentKind, latent_on, register_latent
from .scatter import Coordinates, Scatter
from .uniform import UniformDensity
from .zuko import ZukoDensity

__all__ = [
    "LATENTS",
    "ClosedMixture",
    "ClosedSplines",
    "ColumnwiseDensity",
    "Coordinates",
    "Density",
    "FewerComponentsWarning",
    "FlowDensity",
    "KernelDensity",
    "LatentKind",
    "MixtureDensity",
    "Scatter",
    "UniformDensity",
    "ZukoDensity",
    "as_density",
    "latent_on",
    "register_latent",
]
