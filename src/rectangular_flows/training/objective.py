r"""The objective, one module called once a step.

.. math:: -w\,[\log p_h(z) - L(z)] + \beta\,\|y - \hat y\|^2, \qquad z = f^\dagger(y),

batch mean, in the model's units (standardised data).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from ..densities.base import drawing_for
from ..manifold import RectangularFlow
from ..volume import Auto, Exact, Stochastic

Part = Literal["all", "likelihood", "reconstruction"]


@dataclass(frozen=True)
class Terms:
    """The parts of the objective for one batch, each a batch mean."""

    loss: Tensor
    negative_log_likelihood: Tensor
    """With a stochastic volume this is a surrogate, and only its gradient means anything."""
    reconstruction: Tensor


class Means(NamedTuple):
    """Of one batch: what :class:`Terms` are put together from."""

    weighted: Tensor
    """Squared reconstruction error, with the weights of rows."""
    error: Tensor
    volume: Tensor
    """L, of the rows that have one; NaN without the likelihood."""
    density: Tensor
    """log p_h(z); NaN without the likelihood."""


@dataclass(frozen=True)
class Place:
    """Which rows of a batch these are: every ``step``-th of ``rows``, from ``first`` on."""

    rows: int
    first: int = 0
    step: int = 1
    counted: int | None = None
    """How many of the first ``rows`` have a volume; None: a share of them, at least one."""
    volume_weight: float = 1.0
    """Of their mean volume, where ``rows`` are part of a larger batch: by their share of all that have one."""

    def among(self, rows: int) -> int:
        """How many of these are among the first ``rows`` of the batch."""
        return len(range(self.first, rows, self.step))


class Objective(nn.Module):
    """The training objective of a rectangular flow.

    Args:
        flow: the model.
        volume: how L and its gradient are computed.
        beta: β.
        volume_fraction: share of the rows whose volume is computed. The batch is in random order, so that its first rows
            are a random part of it and the estimate is unbiased.
        row_weights: of rows in the reconstruction error, from rows in the model's units; None for all alike. The error
            reported is without them.
    """

    def __init__(
        self,
        flow: RectangularFlow,
        volume: Auto | Exact | Stochastic,
        beta: float,
        volume_fraction: float = 1.0,
        row_weights: Callable[[Tensor], Tensor] | None = None,
    ):
        super().__init__()
        self.flow = flow
        self.volume: Auto | Exact | Stochastic = volume
        self.beta = beta
        self.volume_fraction = volume_fraction
        self.row_weights = row_weights

    def forward(
        self,
        x: Tensor,
        weight: float = 1.0,
        part: Part = "all",
        place: Place | None = None,
        means: Callable[[Tensor, Place, int | None], Means] | None = None,
    ) -> Terms:
        """The objective at data x (user's units).

        Of several processes each has some rows of a batch. The terms of all of them add up to those of the batch: which rows
        have a volume, and the probes of each, depend on its place in the batch and not on who has it.

        Args:
            x: rows, (B, *data_shape).
            weight: w, the weight of the likelihood.
            part: "all", or one pass of the two-step method: "likelihood" is −w·log p_h(z) with z held fixed, which
                trains h; "reconstruction" is β‖y − ŷ‖², which trains f̃.
            place: which rows of a batch these are; all of it unless given.
            means: :meth:`means`, or that in a compiled form.
        """
        place, means = place or Place(len(x)), means or self.means
        if part == "likelihood":
            y = self.flow.to_model_units(x)
            with torch.no_grad():
                z = self.flow.in_model_units.encode(y)
            nll = -_mean(self.flow.latent.log_prob(z), place.rows)
            return Terms(weight * nll, nll, nll.new_full((), math.nan))
        if part == "reconstruction" or weight == 0:
            found = means(x, place, None)
            return Terms(self.beta * found.weighted, found.density, found.error)
        counted = place.counted
        found = means(x, place, max(1, math.ceil(self.volume_fraction * place.rows)) if counted is None else counted)
        nll = place.volume_weight * found.volume - found.density
        return Terms(weight * nll + self.beta * found.weighted, nll, found.error)

    def means(self, x: Tensor, place: Place, with_volume: int | None) -> Means:
        """What the objective is put together from; a function without β or w, which change from step to step.

        Args:
            x: rows, (B, *data_shape).
            place: which rows of a batch these are.
            with_volume: of how many of the batch's rows the volume is computed; None: the reconstruction alone.
        """
        y, view = self.flow.to_model_units(x), self.flow.in_model_units
        z = view.encode(y)
        count, L, parts = place.among(with_volume or 0), z.new_zeros(0), []
        if with_volume and count:
            with drawing_for(with_volume, place.first, place.step) if place.step > 1 else nullcontext():
                y_hat, L = self.volume(view, z[:count])
            parts.append(_squared_distance(y[:count], y_hat))
        if count < len(z):
            parts.append(_squared_distance(y[count:], view.decode(z[count:])))
        error = torch.cat(parts)
        weighted = error if self.row_weights is None else self.row_weights(y) * error
        of_errors = _mean(weighted, place.rows), _mean(error, place.rows)
        if with_volume is None:
            unknown = error.new_full((), math.nan)
            return Means(*of_errors, unknown, unknown)
        volume = _mean(L, with_volume) if with_volume else error.new_zeros(())
        return Means(*of_errors, volume, _mean(self.flow.latent.log_prob(z), place.rows))

    def apart(self, x: Tensor, volume: Exact | Stochastic) -> tuple[Tensor, Tensor]:
        """The objective at full weight without its volume, and the volume by itself, batch means both."""
        y = self.flow.to_model_units(x)
        z = self.flow.in_model_units.encode(y)
        y_hat, L = volume(self.flow.in_model_units, z)
        error = _squared_distance(y, y_hat)
        penalty = self.beta * (error if self.row_weights is None else self.row_weights(y) * error).mean()
        return penalty - self.flow.latent.log_prob(z).mean(), L.mean()


def _mean(values: Tensor, rows: int) -> Tensor:
    """What these values add to the mean over so many rows."""
    return values.mean() if len(values) == rows else values.sum() / rows


def _squared_distance(y: Tensor, y_hat: Tensor) -> Tensor:
    return (y - y_hat).flatten(1).square().sum(dim=1)
