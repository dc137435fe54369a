"""The contrast of Nalisnick et al.: the likelihood of a square flow of the same size, on data from elsewhere.

Square flows are known to give images from elsewhere higher likelihoods than those they were trained on. Reference: Nalisnick
et al., Do deep generative models know what they don't know?, arXiv:1810.09136.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from .. import flows
from ..data.rows import Rows, shuffled, take
from ..flows.description import describe
from ..manifold import RectangularFlow
from ..training import Run, TrainingConfig, fit
from ..volume import Exact

_START = 10_000  # rows that scales are taken from
_AT_ONCE = 500


class SquareScores(NamedTuple):
    """Log-likelihoods of rows under a square flow, (N,) each."""

    log_density: NDArray[np.float64]
    """In the units of the rows."""
    log_density_model: NDArray[np.float64]
    """In those of the model."""


def square_flow(flow: RectangularFlow, train: Rows, seed: int = 0) -> RectangularFlow:
    """A square flow with the couplings of f̃, fresh weights, and the same layers after it, on all coordinates of the data.

    Where f̃ works in D′ principal directions, this one works in all D of them (fewer where there are not more than D rows to
    find them from), with couplings that change every other coordinate.

    Args:
        flow: the rectangular flow; it is not changed.
        train: rows in the user's units, to take directions and scales from.
        seed: of the weights.

    Raises:
        ValueError: f̃ does not work in principal directions.
    """
    outer: list[flows.Injection] = [copy.deepcopy(layer) for layer in flow.outer]  # type: ignore[misc]
    embeddings = [i for i, layer in enumerate(outer) if isinstance(layer, flows.OrthonormalEmbedding)]
    if not (embeddings and isinstance(flow.ambient, flows.RealNVP)):
        raise ValueError(f"expected couplings in principal directions; got {type(flow.ambient).__name__}")
    some = take(train, shuffled(len(train), seed)[:_START], flow.device, flow.row_dtype)
    shape = outer[embeddings[0]].out_shape
    size = min(prod(shape), len(some) - 1)
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        ambient = flows.RealNVP(**{**describe(flow.ambient)["arguments"], "features": size, "mask": "even-odd"})
        outer = [flows.ActNorm(size), flows.OrthonormalEmbedding(size, shape), *outer[embeddings[0] + 1 :]]
        square = RectangularFlow(ambient, flows.ActNorm(size), outer, pad=flows.Pad(size, size, order="first"))
    square.to(flow.device, flow.dtype)
    with torch.no_grad():
        inner = some
        for layer in reversed(outer):
            inner = layer.initialise(inner)
        square.latent.initialise(torch.cat([square.encode(part) for part in some.split(_AT_ONCE)]))
    return square


def log_likelihood_of_square_flow(
    flow: RectangularFlow,
    train: Rows,
    config: TrainingConfig,
    sets: Mapping[str, Rows],
    *,
    validation: Rows | None = None,
    on_step: Callable[[Run], None] | None = None,
) -> dict[str, SquareScores]:
    """Train the square flow of the same size by the same number of steps; log-likelihoods of sets of rows under it.

    Args:
        flow: the rectangular flow that it is a contrast to.
        train: the rows that both are trained on.
        config: the settings of the rectangular flow's training: epochs, batches and rates are kept, those of the
            reconstruction error and of the volume are not (both are exact here).
        sets: name → rows, in the user's units.
        validation: rows for choosing the best weights.
        on_step: see :func:`~rectangular_flows.fit`.

    Returns:
        name → log-likelihoods, in nats.
    """
    square = square_flow(flow, train, config.seed)
    config = config.for_rows(len(train), flow.ambient_dim)
    plain = replace(
        config,
        method="ml",
        volume=Exact(),
        volume_fraction=1.0,
        target_error=None,
        beta=1.0,
        anneal=(0.0, 0.0),
        epochs=config.whole_epochs + config.latent_epochs,
        latent_epochs=0,  # here all layers are one density: none is trained alone
        restart_latent=False,
        monitor="nll",
    )
    fit(square, train, plain, validation=validation, on_step=on_step)
    found = {}
    square.cpu()
    for name, rows in sets.items():
        starts = range(0, len(rows), _AT_ONCE)
        parts = [square_log_prob(square, take(rows, slice(i, i + _AT_ONCE), dtype=square.row_dtype)) for i in starts]
        found[name] = SquareScores(*(torch.cat(each).double().numpy() for each in zip(*parts, strict=True)))
    return found


@torch.no_grad()
def square_log_prob(square: RectangularFlow, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-density of rows under a square flow in their own units and in the model's, (B,) each; NaN where it overflows.

    With all D coordinates, the density in the user's units is the model's times a determinant, and no tangent is needed.

    Args:
        square: of :func:`square_flow`.
        x: (B, *data_shape), in the user's units.
    """
    units = square.unit_layers()
    y, log_det = x, x.new_zeros(len(x))
    determinants = square.latent_dim == square.ambient_dim
    for layer in reversed(units):
        if isinstance(layer, flows.Bijection):
            y, term = layer.inverse_with_log_det(y)
            log_det = log_det + term
        else:
            y, determinants = layer.inverse(y), False
    model = square.in_model_units.log_prob(y, check=False)
    return (model + log_det if determinants else square.log_prob(x, check=False)), model
