"""From settings to a flow: what its parts are, and what they take from the data."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from .. import flows
from ..data.rows import Rows, shuffled, take
from ..manifold import RectangularFlow
from ..settings import ModelSettings

_LEAST_STEPS = 1_000  # of a dtype within a standard deviation of a column: fewer would show in the density
_ROWS = 10_000  # that a flow is started from
_SPLINES = ("spline", "autoregressive")
_FROM_DATA = (*_SPLINES, "mixture")  # h that start from the data

Parts = tuple[flows.Injection, list[flows.Injection], flows.Pad]


def build_flow(
    settings: ModelSettings,
    train: Rows,
    seed: int,
    *,
    start_latent: bool = True,
    dtype: torch.dtype = torch.float32,
    columns: Sequence[str] = (),
) -> RectangularFlow:
    """The flow that the settings describe, with fresh weights by seed and whatever it takes from the data.

    Args:
        settings: of the model.
        train: rows, (N, columns), or images, (N, C, H, W), in [0, 1].
        seed: of the weights.
        start_latent: whether h takes from the data what it starts from; not where training lets it do so later.
        dtype: of the flow.
        columns: names of the columns, for messages.

    Raises:
        ValueError: the settings do not go together, or the dtype cannot tell the values of a column apart.
    """
    images = len(train.shape) == 4
    if images and settings.ambient == "realnvp":
        raise ValueError(
            "images need --ambient principal or multiscale, and settings that go with it: --preset image-fast is for any"
        )
    dim = settings.latent_dim
    if dim is None or isinstance(dim, str):
        raise ValueError("no latent dimension: say --latent-dim, the dimension of the manifold (1 for a curve, …)")
    if dim < 1:
        raise ValueError(f"expected --latent-dim of at least 1; got {dim}")
    if settings.ambient == "multiscale" and not images:
        raise ValueError("--ambient multiscale is for images; a table needs realnvp or principal")
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        ambient, outer, pad = _PARTS[settings.ambient](settings, train, dim)
        for layer in outer:
            if isinstance(layer, flows.Standardise):
                _check_precision(layer, dtype, columns)
        flow = RectangularFlow(ambient, _latent(settings, dim), outer, pad=pad).to(dtype)
        principal = settings.pca if settings.ambient == "realnvp" else settings.ambient == "principal"
        if principal or settings.actnorm or settings.latent in _FROM_DATA:
            # images are in the order of their files, which may be that of their classes
            some = shuffled(len(train), seed)[:_ROWS] if images else slice(_ROWS)
            flow.initialise(take(train, some, dtype=dtype), latent=start_latent)
    return flow


def _realnvp(settings: ModelSettings, train: Rows, dim: int) -> Parts:
    """Couplings in R^D, along the principal components or not."""
    columns = train.shape[1]
    ambient = flows.RealNVP(columns, settings.layers, settings.hidden, **_couplings(settings))
    outer = _units(settings, train)
    if settings.pca:
        outer.insert(0, flows.OrthonormalEmbedding(columns, columns, tail=settings.pca_tail))
    return ambient, outer, flows.Pad(dim, columns, order="first" if settings.pca else "random")


def _principal(settings: ModelSettings, train: Rows, dim: int) -> Parts:
    """Couplings between the d leading principal components and the next ones, D′ in all, in units of their deviations.

    While the couplings are the identity the manifold is that of PCA, and its coordinates are white.
    """
    size = prod(train.shape[1:])
    directions = min(settings.directions, size, max(1, min(len(train), _ROWS) - 1))
    if not dim < directions:
        raise ValueError(
            f"expected a latent dimension below the number of directions, {directions} (--directions, columns or rows); "
            f"got {dim}"
        )
    ambient = flows.RealNVP(directions, settings.layers, settings.hidden, mask=dim, **_couplings(settings))
    embedding = flows.OrthonormalEmbedding(directions, tuple(train.shape[1:]), tail=settings.pca_tail)
    outer = [flows.ActNorm(directions), embedding, *_units(settings, train)]
    return ambient, outer, flows.Pad(dim, directions, order="first")


def _multiscale(settings: ModelSettings, train: Rows, dim: int) -> Parts:
    """The paper's flow of images."""
    _, channels, height, width = train.shape
    ambient = flows.MultiscaleRealNVP(
        (channels, height, width),
        settings.channels,
        settings.blocks,
        scale=settings.scale,
        bound=settings.bound,
        zero_init=settings.zero_init,
    )
    return ambient, _units(settings, train), flows.Pad(dim, ambient.in_shape)


_PARTS = {"realnvp": _realnvp, "principal": _principal, "multiscale": _multiscale}


def _couplings(settings: ModelSettings) -> dict[str, Any]:
    return {
        "network": settings.network,
        "activation": settings.activation,
        "scale": settings.scale,
        "bound": settings.bound,
        "mixing": None if settings.mixing == "none" else settings.mixing,
        "mixing_start": settings.mixing_start,
        "actnorm": settings.actnorm,
        "zero_init": settings.zero_init,
    }


def _units(settings: ModelSettings, train: Rows) -> list[flows.Injection]:
    """Between the model's units and the data's: a standardiser for tables, a logit for pixels."""
    shape = tuple(train.shape[1:])
    if len(shape) == 3:
        return [flows.Logit(shape, settings.margin)] if settings.pixels == "logit" else []
    return [_standardise(train)] if settings.standardise else []


def _standardise(train: Rows) -> flows.Standardise:
    """Mean and standard deviation of the columns, in float64, in parts that fit the memory."""
    total = square = torch.zeros((), dtype=torch.float64)
    shift = take(train, slice(0, 1), dtype=torch.float64)  # against cancellation where the mean is large
    for i in range(0, len(train), 100_000):
        part = take(train, slice(i, i + 100_000), dtype=torch.float64) - shift
        total, square = total + part.sum(dim=0), square + part.square().sum(dim=0)
    mean = total / len(train)
    deviation = (square / len(train) - mean.square()).clamp_min(0).sqrt()
    return flows.Standardise(mean + shift[0], deviation)


def _check_precision(layer: flows.Standardise, dtype: torch.dtype, columns: Sequence[str]) -> None:
    """Whether numbers of that type can tell the values of each column apart, and hold their squares."""
    facts = torch.finfo(dtype)
    steps = layer.scale / (facts.eps * (layer.mean.abs() + layer.scale))  # in a standard deviation
    coarse = steps < _LEAST_STEPS
    outside = (layer.scale < facts.tiny**0.75) | (layer.mean.abs() + layer.scale > facts.max**0.75)
    for i in (coarse | outside).nonzero().flatten().tolist():
        name = f"'{columns[i]}'" if columns else str(i + 1)
        spread, centre, kind = float(layer.scale[i]), float(layer.mean[i]), str(dtype).removeprefix("torch.")
        wider = "say --dtype float64 (dtype='float64'), or " if dtype == torch.float32 else ""
        what = "cannot tell such values apart" if coarse[i] else "has no room for its squares"
        how = f"subtract {centre:.6g} from it" if coarse[i] else "give it in other units"
        raise ValueError(
            f"column {name} varies by {spread:.3g} around {centre:.9g}: {kind} {what}. Please {wider}{how}"
        )


def _latent(settings: ModelSettings, dim: int) -> flows.Density | flows.Bijection:
    if settings.latent == "identity":
        return flows.Identity(dim)
    if settings.latent == "affine":
        return flows.ActNorm(dim)
    if settings.latent == "mixture":
        return flows.MixtureDensity(dim, settings.latent_components)
    layers, hidden = settings.latent_layers, settings.latent_hidden
    if settings.latent in _SPLINES:
        passes: dict[str, Any] = {"passes": 2} if dim > 1 and settings.latent == "spline" else {}
        density = flows.ZukoDensity("NSF", features=dim, transforms=layers, hidden_features=hidden, **passes)
        if dim == 1:  # with nothing to condition on, zuko draws the splines themselves at random: start near identity
            for parameter in density.flow.parameters():
                parameter.data.mul_(0.01)
        return density
    activation = settings.latent_activation or settings.activation
    return flows.RealNVP(dim, layers, hidden, activation=activation, scale=settings.scale, zero_init=settings.zero_init)


__all__ = ["build_flow"]
