"""From settings to a flow: what its parts are, and what they take from the data."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import torch

from .. import flows
from ..atlas import Atlas, Model
from ..data.periodic import PeriodicColumn
from ..data.rows import Rows, shuffled, take
from ..densities.mixture import most_components
from ..densities.registry import FEW_ROWS, FEW_ROWS_CLOSED, LATENTS, latent_on
from ..flows.allowance import Allowance, AllowanceError
from ..flows.periodic import order_on
from ..flows.spaces import Embedding, Space
from ..manifold import RectangularFlow
from ..settings import ModelSettings
from ..settings.model import Couplings, MultiscaleSettings, PrincipalSettings, RealNVPSettings
from ..storage.limits import machine_memory
from ..training.config import TrainingConfig

_LEAST_STEPS = 1_000  # of a dtype within a standard deviation of a column: fewer would show in the density
_FEW_ANGLES = 2  # dimensions in which splines are as good on few rows
_FEW_ROWS_CHART = 1_000  # of a chart, below which a mixture is better
_CHART_LAYERS, _CHART_WIDTH = 2, 32  # of splines on one chart of several: larger ones fit its few rows too closely
_LEAST_TURN = 1e-5  # of a period, that a dtype has to tell apart
_ROWS = 10_000  # that a flow is started from
_MOST_SHARE = 8  # of the machine's memory that weights may take: training needs several times as much
_SMALLER = "Choose fewer --layers or narrower --hidden networks (for images, fewer --channels and --blocks)"

Units = list[flows.Injection]  # layers between the model's units and the data's
Shared = dict[str, Any]  # arguments of all kinds of couplings
Parts = tuple[flows.Injection, list[flows.Injection], flows.Pad]


def build_flow(
    settings: ModelSettings,
    train: Rows,
    seed: int,
    *,
    start_latent: bool = True,
    dtype: torch.dtype = torch.float32,
    columns: Sequence[str] = (),
    periodic: Sequence[PeriodicColumn] = (),
    given: torch.dtype | None = None,
) -> Model:
    """The flow or atlas that the settings describe, with fresh weights by seed and whatever it takes from the data.

    Args:
        settings: of the model.
        train: rows, (N, columns), or images, (N, C, H, W), in [0, 1].
        seed: of the weights.
        start_latent: whether the latent density starts from data now; not if training lets it do so later.
        dtype: of the flow.
        columns: names of the columns, for messages.
        periodic: those that are angles.
        given: the type that the rows were given in, where ``train`` has them in a wider one.

    Raises:
        ValueError: the settings do not go together, or the dtype cannot tell the values of a column apart.
    """
    images, dim = len(train.shape) == 4, settings.latent_dim
    if images and settings.ambient.name == "realnvp":
        raise ValueError("images need --ambient principal or multiscale, best with the settings of --preset image-fast")
    if not images and settings.ambient.name == "multiscale":
        raise ValueError("--ambient multiscale is for images; a table needs realnvp or principal")
    if dim is None or isinstance(dim, str):
        raise ValueError("no latent dimension: give --latent-dim, the dimension of the manifold (1 for a curve, …)")
    if dim < 1:
        raise ValueError(f"expected --latent-dim of at least 1; got {dim}")
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        chosen = settings.ambient.settings
        shared = {"scale": settings.scale.name, **vars(settings.scale.settings), "zero_init": settings.zero_init}
        name, own_settings = settings.latent.name, settings.latent.settings
        space = _space(settings, dim, train.shape[1], len(periodic))
        if name == "auto":
            few = FEW_ROWS if space.flat or (periodic and dim > _FEW_ANGLES) else FEW_ROWS_CLOSED
            name = "mixture" if len(train) < few or "sphere" in space.factors else "spline"
            many = isinstance(settings.charts, int) and settings.charts > 1
            part = len(train) // (2 * int(settings.charts)) if many else len(train)  # parts of the rows are uneven
            if many and name == "mixture" and space.flat and part >= _FEW_ROWS_CHART:
                hidden = tuple(min(width, _CHART_WIDTH) for width in own_settings.latent_hidden)
                layers = min(own_settings.latent_layers, _CHART_LAYERS)
                name, own_settings = "spline", replace(own_settings, latent_hidden=hidden, latent_layers=layers)
            most = most_components(part, space.dimension)
            own_settings = replace(own_settings, latent_components=min(own_settings.latent_components, most))
        latent, count = LATENTS[name], settings.charts
        if isinstance(count, str):
            raise ValueError("no number of charts: give --charts, 1 for one chart")
        if count > 1 and periodic:
            raise ValueError("periodic columns have one chart: leave out --charts or --periodic")
        units = _units(settings, train, periodic)
        make = _on_circles if periodic else _PARTS[settings.ambient.name]

        def made() -> RectangularFlow:
            own = copy.deepcopy(units)
            ambient, outer, pad = make(chosen, shared, own, train, space)
            density = latent_on(name, own_settings, space)
            named = None if space.flat else str(space)
            return RectangularFlow(ambient, density, outer, pad=pad, latent_space=named)

        try:
            with Allowance(machine_memory() / _MOST_SHARE):
                charts = [made() for _ in range(count)]
        except AllowanceError as error:
            raise ValueError(f"expected a model that fits this machine; got one of {error}. {_SMALLER}") from error
        given = given or take(train, slice(1)).dtype
        for layer in units:
            if isinstance(layer, flows.Standardise):
                seen = units[-1].column_of if isinstance(units[-1], flows.Periodic) else range(len(columns))
                _check_precision(layer, given, [columns[i] for i in seen] if columns else ())
        _check_turns(periodic, given)
        charts = [chart.to(dtype) for chart in charts]
        flow: Model = charts[0] if count == 1 else Atlas(charts)
        if chosen.starts_from_data or latent.starts_from_data or count > 1:
            # images are in the order of their files, which may be that of their classes; parts of data want any order
            some = shuffled(len(train), seed)[:_ROWS] if images or count > 1 else slice(_ROWS)
            flow.initialise(take(train, some, dtype=flow.row_dtype), latent=start_latent)
    return flow


def _room(space: Space, size: int) -> tuple[int, list[flows.Injection]]:
    """Dimensions that a latent space takes of so many; for one that closes up, the layer that lays them along the data."""
    if space.flat:
        return space.dimension, []
    embedding = Embedding.within(space, size)
    return embedding.out_shape[0], [flows.Alignment(str(space), size, embedding.ring)]


def _realnvp(settings: RealNVPSettings, shared: Shared, units: Units, train: Rows, space: Space) -> Parts:
    """Couplings in R^D, along the principal components or not."""
    columns = train.shape[1]
    taken, aligned = _room(space, columns)
    ambient = flows.RealNVP(columns, settings.layers, settings.hidden, **_couplings(settings), **shared)
    rotation = aligned or [flows.OrthonormalEmbedding(columns, columns, tail=settings.pca_tail)]
    order: Any = "first" if settings.pca else "random"
    return ambient, [*(rotation if settings.pca else []), *units], flows.Pad(taken, columns, order=order)


def without_reconstruction(training: TrainingConfig, dim: int | str | None, columns: int) -> TrainingConfig:
    """The training of a density on a torus that is all there is: with no manifold to find, the likelihood counts at once."""
    return training if dim != columns else replace(training, anneal=(0.0, 0.0), anneal_in="epochs")


def _space(settings: ModelSettings, dim: int, columns: int, angles: int) -> Space:
    """The latent space: with periodic columns circles for these first, unless it is given."""
    if not angles:
        return Space.lines(dim) if settings.latent_space is None else Space.of(settings.latent_space)
    if settings.ambient.name != "realnvp":
        raise ValueError(f"periodic columns need --ambient realnvp; got {settings.ambient.name}")
    if settings.ambient.settings.pca_tail or settings.ambient.settings.actnorm:
        raise ValueError("periodic columns go without pca_tail and actnorm; leave them out")
    if dim > columns:
        raise ValueError(f"expected a latent dimension of at most {columns}, the number of columns; got {dim}")
    circles = min(angles, dim)
    usual = Space(("circle",) * circles + ("line",) * (dim - circles))
    space = usual if settings.latent_space is None else Space.of(settings.latent_space)
    order_on(space, angles, columns)
    return space


def _on_circles(settings: RealNVPSettings, shared: Shared, units: Units, train: Rows, space: Space) -> Parts:
    """Couplings of angles and the other columns, from which the angles of the data follow exactly."""
    columns, circles = train.shape[1], space.factors.count("circle")
    last = units[-1]
    if not isinstance(last, flows.Periodic):
        raise TypeError(f"expected periodic columns last; got {type(last).__name__}")
    k = last.angles
    options = {name: value for name, value in _couplings(settings).items() if name != "actnorm"}
    ambient = flows.RealNVP(columns, settings.layers, settings.hidden, **options, **shared, angles=k)
    start = [flows.Winding(k, columns, circles, space.dimension - circles)] if settings.pca else []
    pad = flows.Pad(space.dimension, columns, order=order_on(space, k, columns))
    return ambient, [*start, flows.OnCircles(k, columns - k), *units], pad


def _principal(settings: PrincipalSettings, shared: Shared, units: Units, train: Rows, space: Space) -> Parts:
    """Couplings between the d leading principal components and the next ones, D′ in all, in units of their deviations.

    While the couplings are the identity the manifold is that of PCA, and its coordinates are white.
    """
    size, dim = prod(train.shape[1:]), space.dimension
    directions = min(settings.directions, size, max(1, min(len(train), _ROWS) - 1))
    if not dim < directions:
        raise ValueError(
            f"expected a latent dimension below the number of directions, {directions} (--directions, columns or rows); "
            f"got {dim}"
        )
    taken, aligned = _room(space, directions)
    mask = min(taken, directions - 1)
    ambient = flows.RealNVP(directions, settings.layers, settings.hidden, mask=mask, **_couplings(settings), **shared)
    embedding = flows.OrthonormalEmbedding(directions, tuple(train.shape[1:]), tail=settings.pca_tail)
    outer = [*aligned, flows.ActNorm(directions), embedding, *units]
    return ambient, outer, flows.Pad(taken, directions, order="first")


def _multiscale(settings: MultiscaleSettings, shared: Shared, units: Units, train: Rows, space: Space) -> Parts:
    """The paper's flow of images."""
    _, channels, height, width = train.shape
    ambient = flows.MultiscaleRealNVP((channels, height, width), settings.channels, settings.blocks, **shared)
    return ambient, units, flows.Pad(_room(space, prod(ambient.in_shape))[0], ambient.in_shape)


_PARTS: dict[str, Callable[..., Parts]] = {"realnvp": _realnvp, "principal": _principal, "multiscale": _multiscale}


def _couplings(settings: Couplings) -> dict[str, Any]:
    names = ("network", "activation", "mixing_start", "actnorm")
    mixing = None if settings.mixing == "none" else settings.mixing
    return {"mixing": mixing, **{name: getattr(settings, name) for name in names}}


def _units(settings: ModelSettings, train: Rows, periodic: Sequence[PeriodicColumn]) -> Units:
    """Between the model's units and the data's: a standardiser for tables, pairs for angles, a logit for pixels."""
    shape = tuple(train.shape[1:])
    if len(shape) == 3:
        return [flows.Logit(shape, settings.pixels.settings.margin)] if settings.pixels.name == "logit" else []
    standard = [_standardise(train)] if settings.standardise else []
    if not periodic:
        return [*standard]
    columns, periods, starts = zip(*((found.column, found.period, found.start) for found in periodic), strict=True)
    last = flows.Periodic(shape[0], columns, periods, starts)
    plain, at = [0.0] * (2 * last.angles), last.column_of[2 * last.angles :]
    scaled: Units = [
        flows.Standardise(
            torch.cat((layer.mean.new_tensor(plain), layer.mean[at])),
            torch.cat((layer.scale.new_tensor(plain) + 1, layer.scale[at])),
            rest=torch.cat((layer.rest.new_tensor(plain), layer.rest[at])),
        )
        for layer in standard
    ]
    return [*scaled, last]


def _standardise(train: Rows) -> flows.Standardise:
    """Mean and standard deviation of the columns, in float64, in parts that fit the memory."""
    total = square = torch.zeros((), dtype=torch.float64)
    shift = take(train, slice(0, 1), dtype=torch.float64)  # against cancellation where the mean is large
    for i in range(0, len(train), 100_000):
        part = take(train, slice(i, i + 100_000), dtype=torch.float64) - shift
        total, square = total + part.sum(dim=0), square + part.square().sum(dim=0)
    mean = total / len(train)
    deviation = (square / len(train) - mean.square()).clamp_min(0).sqrt()
    whole = shift[0] + mean
    taken = whole - shift[0]
    rest = (shift[0] - (whole - taken)) + (mean - taken)  # what rounding lost of the sum, exactly
    return flows.Standardise(whole, deviation, rest=rest)


def _check_turns(periodic: Sequence[PeriodicColumn], dtype: torch.dtype) -> None:
    """Whether numbers of the type that rows were given in can tell the angles of each periodic column apart."""
    for found in periodic:
        if torch.finfo(dtype).eps * found.largest > _LEAST_TURN * found.period:
            kind = str(dtype).removeprefix("torch.")
            raise ValueError(
                f"column '{found.name}' has values up to {found.largest:.3g}: {kind} cannot tell angles of period "
                f"{found.period:.6g} apart there. Please {_wider(dtype)}take off whole periods"
            )


def _check_precision(layer: flows.Standardise, dtype: torch.dtype, columns: Sequence[str]) -> None:
    """Whether the type that rows were given in can tell the values of each column apart, and hold their squares."""
    coarse, outside = layer.steps(dtype) < _LEAST_STEPS, layer.out_of_range(dtype)
    for i in (coarse | outside).nonzero().flatten().tolist():
        name = f"'{columns[i]}'" if columns else str(i + 1)
        spread, centre, kind = float(layer.scale[i]), float(layer.mean[i]), str(dtype).removeprefix("torch.")
        what = "cannot tell such values apart" if coarse[i] else "has no room for its squares"
        how = f"subtract {centre:.6g} from it" if coarse[i] else "give it in other units"
        raise ValueError(
            f"column {name} varies by {spread:.3g} around {centre:.9g}: {kind} {what}. Please {_wider(dtype)}{how}"
        )


def _wider(dtype: torch.dtype) -> str:
    return "" if dtype == torch.float64 else "give it in double precision (float64) from the start, or "
