"""What the flow is made of: one small class for each kind of network."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, Literal

from ..densities.registry import LATENTS, Activation
from ..kinds import Chosen, Condition, Nothing, choice, only, when
from .data import for_data, traits_of

MOST_CHARTS = 50
_LARGEST_TAIL = 10  # beyond it the row that is farthest out would decide alone, where nothing overflows


@dataclass(frozen=True)
class Couplings:
    """Of a chain of couplings.

    Args:
        layers: number of couplings in the decoder.
        hidden: widths of the network of each coupling.
        network: network of each coupling: "mlp", or "residual" (two equal widths for each residual block).
        activation: activation of these networks: "silu", "tanh" (as published) or "relu".
        mixing: linear layers between the couplings: "none", "permutation", "lu" or "free".
        mixing_start: "identity": mixing that cancels out at the start, so that the couplings start as the identity and,
            with pca, the manifold as the best linear one; "random": a random rotation, and a random subspace.
        actnorm: an ActNorm after each coupling, started from the data.
    """

    layers: int = 6
    hidden: tuple[int, ...] = (64, 64)
    network: Literal["mlp", "residual"] = "mlp"
    activation: Activation = "silu"
    mixing: Literal["none", "permutation", "lu", "free"] = "none"
    mixing_start: Literal["identity", "random"] = only("identity", when("mixing", "permutation", "lu", "free"))
    actnorm: bool = False

    def __post_init__(self) -> None:
        _check_counts(self, "layers", "hidden")


@dataclass(frozen=True)
class RealNVPSettings(Couplings):
    """Couplings of all columns.

    Args:
        pca: start along the principal components of the data, by a fixed rotation after the couplings.
        pca_tail: exponent a of the weight |y|^(2a) of a row in finding these, by its distance from the centre of the data:
            above 0, rows far out weigh more.
    """

    pca: bool = True
    pca_tail: float = only(0.0, when("pca"))

    @property
    def starts_from_data(self) -> bool:
        """Whether the flow takes something from data before training."""
        return self.pca or self.actnorm

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_tail(self.pca_tail)


@dataclass(frozen=True)
class PrincipalSettings(Couplings):
    """Couplings of the leading principal components.

    Args:
        directions: number of principal components that the couplings work on; the rest of the data is replaced by its mean.
    """

    directions: int = 128
    pca_tail: float = 0.0
    starts_from_data: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_counts(self, "directions")
        _check_tail(self.pca_tail)


@dataclass(frozen=True)
class MultiscaleSettings:
    """The paper's flow of images: ten convolutional couplings at two scales.

    Args:
        channels: channels of the convolutions in each of the ten couplings.
        blocks: residual blocks in each coupling.
    """

    channels: int = 64
    blocks: int = 8
    starts_from_data: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_counts(self, "channels", "blocks")


@dataclass(frozen=True)
class Bounded:
    """Of couplings whose log-scale is bounded.

    Args:
        bound: largest log-scale of a coupling.
    """

    bound: float = 2.0


@dataclass(frozen=True)
class Logit:
    """Of logits of pixels.

    Args:
        margin: the λ of logit(λ + (1 − 2λ)x); published: 1e-6 for digits and clothes, 0.05 for photographs.
    """

    margin: float = 0.05


AMBIENTS: dict[str, type] = {
    "realnvp": RealNVPSettings,
    "principal": PrincipalSettings,
    "multiscale": MultiscaleSettings,
}
_NOT_IMAGES = Condition(("data",), lambda get: "image" not in (traits_of(get("data")) or ()), text="tables")
_TABLES = Condition(
    ("data",),
    lambda get: not get("sphere") and "image" not in (traits_of(get("data")) or ()),
    text="tables other than the sphere",
)


@dataclass(frozen=True)
class ModelSettings:
    """What the flow is made of.

    Args:
        latent_dim: dimension of the manifold; "auto" estimates it (see rnf dimension).
        latent_space: what the manifold is an image of, if it closes up: "circle", "torus:2", "sphere", or a product such as
            "line*circle"; its dimension is then that of the manifold. none: lines, as many as latent_dim.
        charts: flows that cover the data together, each a part of them: for separate pieces and closed surfaces. "auto":
            as many as the data need, chosen on rows held out.
        ambient: network of the decoder: "realnvp" (tables), "principal" (in the leading principal components only: images,
            wide tables) or "multiscale" (images, as published).
        scale: how couplings scale: "tanh" (bounded), "exp" (as published) or "sigmoid".
        zero_init: start every coupling as the identity.
        latent: density of the coordinates on the manifold: {latents}.
        standardise: let the model see columns of mean 0 and standard deviation 1; densities stay in the units of the data.
        pixels: what the model sees of pixels in [0, 1]: their "logit", as published, or the "plain" values. Densities and
            distances stay in units of pixels.
    """

    latent_dim: int | Literal["auto"] | None = None
    latent_space: str | None = None
    charts: int | Literal["auto"] = only(1, _NOT_IMAGES)
    ambient: Chosen = choice(AMBIENTS, "realnvp")
    scale: Chosen = choice({"tanh": Bounded, "exp": Nothing, "sigmoid": Nothing}, "tanh")
    zero_init: bool = True
    latent: Chosen = choice(lambda: {name: kind.settings for name, kind in LATENTS.items()}, "realnvp")
    standardise: bool = only(True, _TABLES)
    pixels: Chosen = choice({"logit": Logit, "plain": Nothing}, "logit", for_data("images", "image"))

    def __post_init__(self) -> None:
        if self.charts != "auto" and not 1 <= self.charts <= MOST_CHARTS:
            raise ValueError(f"expected charts from 1 to {MOST_CHARTS}, or auto; got {self.charts}")
        if self.latent_space is None:
            return
        from ..flows.spaces import Space  # imports torch

        space = Space.of(self.latent_space)
        if self.latent_dim not in (None, "auto", space.dimension):
            raise ValueError(
                f"the latent space {space} has dimension {space.dimension}; got latent_dim {self.latent_dim}. Leave one of "
                "them out"
            )
        object.__setattr__(self, "latent_space", str(space))
        object.__setattr__(self, "latent_dim", space.dimension)


def _check_counts(settings: Any, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        if any(number < 1 for number in (value if isinstance(value, tuple) else (value,))):
            raise ValueError(f"expected {name} of at least 1; got {value}")


def _check_tail(value: float) -> None:
    if not 0 <= value < inf:
        raise ValueError(f"expected pca_tail of at least 0; got {value}")
    if value > _LARGEST_TAIL:
        raise ValueError(f"expected pca_tail of at most {_LARGEST_TAIL}; got {value}")
