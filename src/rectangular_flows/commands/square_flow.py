"""The contrast of Nalisnick et al.: the likelihood of a square flow of the same size, on data from elsewhere.

Square flows are known to give images from elsewhere higher likelihoods than those that they were trained on, which is what
rectangular flows are compared with. Reference: Nalisnick et al., Do deep generative models know what they don't know?,
arXiv:1810.09136.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .. import flows
from ..flows.description import build, describe
from ..manifold import RectangularFlow
from ..training import Run, TrainingConfig, fit
from ..training.rows import Rows, shuffled, take
from ..volume import Exact

_START = 10_000  # rows that scales are taken from
_AT_ONCE = 500


def square_flow(flow: RectangularFlow, train: Rows, seed: int = 0) -> RectangularFlow:
    """A square flow with the couplings of f̃, fresh weights, and the same layers after it: all coordinates are kept.

    Its density is one on all of f̃'s coordinates: the D′ principal directions, where f̃ works in those, or R^D. For the
    multi-scale flow it is the square one of the same couplings.

    Args:
        flow: the rectangular flow; it is not changed.
        train: rows in the user's units, for the scales that it starts from.
        seed: of the weights.

    Raises:
        ValueError: f̃ is not a square map, and no square one is known for it.
    """
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        ambient: flows.Injection
        if isinstance(flow.ambient, flows.MultiscaleRealNVP):
            ambient = flows.square_multiscale_realnvp(**_arguments(flow.ambient))
        elif isinstance(flow.ambient, flows.Bijection):
            ambient = _fresh(flow.ambient, seed)
        else:
            raise ValueError(f"expected f̃ to be square or multi-scale; got {type(flow.ambient).__name__}")
        size = prod(ambient.in_shape)
        outer = [copy.deepcopy(layer) for layer in flow.outer]
        pad = flows.Pad(size, ambient.in_shape, order="first")
        square = RectangularFlow(ambient, flows.ActNorm(size), outer, pad=pad)  # type: ignore[arg-type]
    where = next((p for p in flow.parameters()), torch.zeros(()))
    square.to(where.device, where.dtype)
    # only h starts from the data; the layers after f̃ are those of the rectangular flow
    some = take(train, shuffled(len(train), seed)[:_START], where.device, where.dtype)
    with torch.no_grad():
        square.latent.initialise(torch.cat([square.encode(part) for part in some.split(_AT_ONCE)]))
    return square


def log_likelihood_of_square_flow(
    flow: RectangularFlow,
    train: Rows,
    config: TrainingConfig,
    sets: Mapping[str, Rows],
    *,
    validation: Rows | None = None,
    model_units: bool = True,
    on_step: Callable[[Run], None] | None = None,
) -> dict[str, NDArray[np.float64]]:
    """Train the square flow of the same size by the same number of steps; log-likelihoods of sets of rows under it.

    Args:
        flow: the rectangular flow that it is a contrast to.
        train: the rows that both are trained on.
        config: the settings the rectangular flow was trained with: epochs, batches and rates are kept, what concerns
            the reconstruction and the estimate of the volume is not (both are exact here).
        sets: name → rows, in the user's units.
        validation: rows for choosing the best weights.
        model_units: likelihoods in the model's units (logits, principal directions). In the user's they cost D′ tangents a
            row where f̃ works in principal directions, and nothing more where it works in R^D.
        on_step: see :func:`~rectangular_flows.fit`.

    Returns:
        name → (N,), in nats.
    """
    square = square_flow(flow, train, config.seed)
    config = config.for_rows(len(train))
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
    dtype = next(p.dtype for p in square.parameters())
    found = {}
    square.cpu()
    for name, rows in sets.items():
        starts = range(0, len(rows), _AT_ONCE)
        parts = [take(rows, slice(start, start + _AT_ONCE), dtype=dtype) for start in starts]
        found[name] = np.concatenate([square_log_prob(square, x, model_units).double().numpy() for x in parts])
    return found


@torch.no_grad()
def square_log_prob(square: RectangularFlow, x: torch.Tensor, model_units: bool = False) -> torch.Tensor:
    """Log-density of rows in the user's units under a square flow, (B,); NaN where it overflows.

    With all D coordinates, the density in the user's units is the model's times a determinant, and no tangent is needed.
    """
    units = square.layers()[len(square.layers(model_units=True)) :]
    if not model_units and (square.latent_dim < square.ambient_dim or not _bijections(units)):
        return square.log_prob(x, check=False)
    log_det = x.new_zeros(len(x))
    for layer in reversed(units):
        if model_units or not isinstance(layer, flows.Bijection):
            x = layer.inverse(x)
        else:
            x, term = layer.inverse_with_log_det(x)
            log_det = log_det + term
    return square.log_prob(x, model_units=True, check=False) + log_det


def _bijections(layers: Sequence[flows.Injection]) -> bool:
    return all(isinstance(layer, flows.Bijection) for layer in layers)


def _fresh(layer: flows.Bijection, seed: int) -> flows.Bijection:
    """The same constructor calls again, with weights by seed."""
    torch.manual_seed(seed)
    made: flows.Bijection = build(describe(layer))
    return made


def _arguments(layer: flows.MultiscaleRealNVP) -> dict[str, Any]:
    """What a multi-scale flow was made with; its square twin takes the same."""
    arguments: dict[str, Any] = dict(describe(layer)["arguments"])
    arguments["shape"] = tuple(layer.out_shape)
    return arguments


__all__ = ["log_likelihood_of_square_flow", "square_flow", "square_log_prob"]
