"""The latent densities by name: ``latent`` of the settings, ``--latent`` of ``rnf fit``, ``latent=`` of the estimator.

Imports no torch, so that the command line can list them at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..kinds import Nothing

if TYPE_CHECKING:
    from ..flows import Bijection
    from ..flows.spaces import Space
    from .base import Density

FEW_ROWS = 20_000  # below which a mixture is as good as splines, or better, and takes less time
FEW_ROWS_CLOSED = 5_000  # the same on spaces that close up, which have few dimensions
Activation = Literal["silu", "tanh", "relu"]


@dataclass(frozen=True)
class LatentKind:
    """A kind of latent density.

    Attributes:
        name: what it is chosen by.
        help: a few words for ``--help``.
        settings: a dataclass. Its fields become flags and keys of configuration files, and its docstring their help. A
            field with the name of a setting that is there already, such as ``latent_layers``, shares its value.
        build: from these settings and the latent dimension to the density, or to a bijection that makes one. Import torch
            inside.
        starts_from_data: whether a density is to take something from data before training, by ``initialise``.
        trains: whether it has weights.
        on: from these settings and a latent space that closes up to a density on it; None: there is none of the kind.
        spheres: whether that space may have spheres.
    """

    name: str
    help: str
    settings: type
    build: Callable[[Any, int], Density | Bijection]
    starts_from_data: bool = False
    trains: bool = True
    on: Callable[[Any, Space], Density] | None = None
    spheres: bool = True

    def fits(self, space: Space) -> bool:
        """Whether there is a density of this kind on that latent space."""
        return space.flat or (self.on is not None and (self.spheres or "sphere" not in space.factors))


LATENTS: dict[str, LatentKind] = {}
"""All kinds, in the order in which they were registered."""


def register_latent(kind: LatentKind) -> None:
    """Add a kind of latent density.

    Raises:
        ValueError: there is one of that name.
    """
    if kind.name in LATENTS:
        raise ValueError(f"expected a new name for a latent density; {kind.name!r} is taken")
    LATENTS[kind.name] = kind


@dataclass(frozen=True)
class Layers:
    """Of a density made of layers.

    Args:
        latent_layers: number of couplings, or of splines, in the latent density.
        latent_hidden: widths of their networks.
    """

    latent_layers: int = 4
    latent_hidden: tuple[int, ...] = (32, 32)

    def __post_init__(self) -> None:
        if min(self.latent_layers, *self.latent_hidden, 1) < 1:
            got = f"{self.latent_layers} and {list(self.latent_hidden)}"
            raise ValueError(f"expected latent_layers and latent_hidden of at least 1; got {got}")


@dataclass(frozen=True)
class RealNVPLayers(Layers):
    """Of affine couplings, which follow those of the manifold in what is not said here.

    Args:
        latent_activation: activation of these networks; none: the same as activation.
    """

    latent_activation: Activation | None = None
    activation: Activation = "silu"
    scale: Literal["tanh", "exp", "sigmoid"] = "tanh"
    zero_init: bool = True


@dataclass(frozen=True)
class Components:
    """Of a mixture.

    Args:
        latent_components: number of Gaussians in the mixture.
    """

    latent_components: int = 8

    def __post_init__(self) -> None:
        if self.latent_components < 1:
            raise ValueError(f"expected latent_components of at least 1; got {self.latent_components}")


@dataclass(frozen=True)
class Kernels:
    """Of kernels around rows.

    Args:
        latent_kernels: most rows that get a kernel.
        latent_width: least width of a kernel, in radians; on a line, in deviations.
    """

    latent_kernels: int = 10_000
    latent_width: float = 0.02

    def __post_init__(self) -> None:
        if self.latent_kernels < 1 or not 0 < self.latent_width < math.inf:
            got = f"{self.latent_kernels} and {self.latent_width}"
            raise ValueError(f"expected latent_kernels of at least 1 and a positive latent_width; got {got}")


@dataclass(frozen=True)
class AutoSettings(Layers, Components):
    """Of a density chosen by the number of rows."""


def _realnvp(settings: RealNVPLayers, dim: int) -> Bijection:
    from ..flows import RealNVP

    activation = settings.latent_activation or settings.activation
    shape = (dim, settings.latent_layers, settings.latent_hidden)
    return RealNVP(*shape, activation=activation, scale=settings.scale, zero_init=settings.zero_init)


def _spline(settings: Layers, dim: int, **more: Any) -> Density:
    from .zuko import ZukoDensity

    layers, hidden = settings.latent_layers, settings.latent_hidden
    density = ZukoDensity("NSF", features=dim, transforms=layers, hidden_features=hidden, **more)
    if dim == 1:  # with nothing to condition on, zuko draws the splines themselves at random: start near the identity
        for parameter in density.flow.parameters():
            parameter.data.mul_(0.01)
    return density


def _coupled_spline(settings: Layers, dim: int) -> Density:
    return _spline(settings, dim, **({"passes": 2} if dim > 1 else {}))


def _mixture(settings: Components, dim: int) -> Density:
    from .mixture import MixtureDensity

    return MixtureDensity(dim, settings.latent_components)


def _closed_splines(settings: Layers, space: Space) -> Density:
    from .closed_splines import ClosedSplines

    return ClosedSplines(str(space), settings.latent_layers, settings.latent_hidden)


def _closed_mixture(settings: Components, space: Space) -> Density:
    from .closed_mixture import ClosedMixture

    return ClosedMixture(str(space), settings.latent_components)


def _kernels(settings: Kernels, space: Space) -> Density:
    from .kernels import KernelDensity

    return KernelDensity(str(space), settings.latent_kernels, settings.latent_width)


def _flat_kernels(settings: Kernels, dim: int) -> Density:
    from ..flows.spaces import Space

    return _kernels(settings, Space.lines(dim))


def _uniform(settings: Nothing, space: Space) -> Density:
    from .uniform import UniformDensity

    return UniformDensity(str(space))


def latent_on(name: str, settings: Any, space: Space) -> Density | Bijection:
    """The density of a kind on a latent space.

    Raises:
        ValueError: there is none of that kind on a space that closes up.
    """
    kind = LATENTS[name]
    if space.flat:
        return kind.build(settings, space.dimension)
    if kind.on is None or not kind.fits(space):
        known = ", ".join(each.name for each in LATENTS.values() if each.fits(space))
        raise ValueError(f"no latent density {name!r} on the latent space {space}; there are {known}")
    return kind.on(settings, space)


def _affine(settings: Nothing, dim: int) -> Bijection:
    from ..flows import ActNorm

    return ActNorm(dim)


def _identity(settings: Nothing, dim: int) -> Bijection:
    from ..flows import Identity

    return Identity(dim)


for _kind in (
    LatentKind("realnvp", "affine couplings", RealNVPLayers, _realnvp),
    LatentKind(
        "spline",
        "splines in couplings, after a whitening",
        Layers,
        _coupled_spline,
        starts_from_data=True,
        on=_closed_splines,
        spheres=False,
    ),
    LatentKind(
        "autoregressive",
        "splines each of whose coordinates depends on all before it: better in many dimensions, slower to sample",
        Layers,
        _spline,
        starts_from_data=True,
    ),
    LatentKind(
        "mixture",
        "of Gaussians: for few rows in many dimensions",
        Components,
        _mixture,
        starts_from_data=True,
        on=_closed_mixture,
    ),
    LatentKind(
        "auto",
        f"a mixture below {FEW_ROWS:,} rows, splines above",
        AutoSettings,
        _mixture,
        starts_from_data=True,
        on=_closed_mixture,
    ),
    LatentKind(
        "kernels",
        "around rows, as wide as rows are apart: for fine detail in few dimensions, with method two-step",
        Kernels,
        _flat_kernels,
        starts_from_data=True,
        trains=False,
        on=_kernels,
    ),
    LatentKind("affine", "a Gaussian with a learned shift and scale", Nothing, _affine),
    LatentKind("identity", "the standard Gaussian", Nothing, _identity, trains=False, on=_uniform),
):
    register_latent(_kind)
