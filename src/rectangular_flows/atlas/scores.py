"""All scores of rows by an atlas, in both units."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..manifold import RectangularFlow, Scores, squared_distance
from ..volume import Exact
from ..volume.exact import two_log_volumes

if TYPE_CHECKING:
    from .model import Atlas


def scores_of(atlas: Atlas, x: Tensor, check: bool) -> Scores:
    """All scores of rows: see :meth:`.Atlas.score`."""
    y, chart = atlas.to_model_units(x), atlas.chart_of(x)
    ambient = smooth = torch.full((len(x),), torch.nan, dtype=torch.float64, device=x.device)
    if atlas.scatter is not None:
        ambient, smooth = (atlas.ambient_log_prob(x, smooth=only) for only in (False, True))
    z = atlas._each(chart, lambda flow, rows: flow.encode(rows), x)
    found = atlas._each(chart, lambda flow, part: torch.cat(_both(flow, part), dim=1), z)
    x_hat, y_hat = (part.view_as(x) for part in found[:, :-2].split(atlas.ambient_dim, dim=1))
    y_hat, change = y_hat.to(y.dtype), (found[:, -1] - found[:, -2]).to(y.dtype)
    if check:
        for k, flow in enumerate(atlas._flows()):
            flow._check_round_trip(z[chart == k], x_hat[chart == k])
    model = torch.logsumexp(atlas.log_joint(y_hat), dim=1).to(y.dtype)
    error, model_error = squared_distance(x, x_hat), squared_distance(y, y_hat)
    return Scores(z, x_hat, model + change, error, model, model_error, ambient, smooth, y.flatten(1), chart)


def unit_change(flow: RectangularFlow, x: Tensor, check: bool) -> Tensor:
    """By how much the log-density at the projection of x differs between the user's units and the model's, (B,)."""
    z = flow.encode(x)
    x_hat, L = Exact()(flow, z)
    if check:
        flow._check_round_trip(z, x_hat)
    return Exact()(flow.in_model_units, z)[1] - L


def _both(flow: RectangularFlow, z: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(x̂, ŷ, L, L′), of one row each, (B, …)."""
    x_hat, L, y_hat, model_L = two_log_volumes(flow, flow.in_model_units, z)
    return x_hat.flatten(1), y_hat.flatten(1), L[:, None], model_L[:, None]
