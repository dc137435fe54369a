"""All scores of a row from one pass: what :meth:`RectangularFlow.score` gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..densities.scatter import SMOOTH
from ..volume.exact import two_log_volumes
from .ambient import coordinates_of, unit_log_det
from .angles import around, given
from .batches import squared_distance

if TYPE_CHECKING:
    from .flow import RectangularFlow


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of rows, from one pass: see :meth:`RectangularFlow.score`.

    Attributes:
        z: coordinates on the manifold, (B, d); of a sphere those of a unit vector, (B, 3).
        x_hat: projections on the manifold, (B, *data_shape).
        log_prob: log-densities of the projections in the units of the data, (B,).
        squared_distance: ‖x − x̂‖² in the units of the data, (B,), float64.
        model_log_prob: log-densities in the model's units (standardised columns, logits of pixels), (B,).
        model_squared_distance: squared distances in the model's units, (B,), float64.
        ambient_log_prob: log-densities of the rows themselves in R^D, in the units of the data, (B,), float64; NaN for a
            flow without scatter.
        smooth_log_prob: the same without the part that takes the columns one after another.
        model_rows: the rows in the model's units, (B, D).
        chart: the number of the chart that z are coordinates on, (B,), from 0; 0 for a flow, which is one chart.
    """

    z: Tensor
    x_hat: Tensor
    log_prob: Tensor
    squared_distance: Tensor
    model_log_prob: Tensor
    model_squared_distance: Tensor
    ambient_log_prob: Tensor
    smooth_log_prob: Tensor
    model_rows: Tensor
    chart: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))

    @classmethod
    def cat(cls, parts: Sequence[Scores]) -> Scores:
        """The scores of several batches as one."""
        return cls(*(torch.cat([getattr(part, f.name) for part in parts]) for f in fields(cls)))


def scores_of(flow: RectangularFlow, x: Tensor, check: bool) -> Scores:
    """The scores of one batch of rows in the user's units, (B, *data_shape)."""
    view, y = flow.in_model_units, flow.to_model_units(x)
    ambient = smooth = torch.full((len(x),), torch.nan, dtype=torch.float64, device=x.device)
    if flow.scatter is None:
        z = view.encode(y)
    else:
        at = coordinates_of(flow, y)
        z, embed = at.u[:, : given(flow)], around(flow)
        z = z if embed is None else embed.inverse(z)
        z = view.towards_nearest(y, z) if view.nearest else z
        parts, units = flow.scatter.parts(at), unit_log_det(flow, x)
        ambient, smooth = flow.scatter.pooled(parts) + units, flow.scatter.pooled(parts[:, : len(SMOOTH)]) + units
    x_hat, L, y_hat, model_L = two_log_volumes(flow, view, z)
    log_prob = flow._density(z, x_hat, L, check)
    error, model_error = flow.squared_distance(x, x_hat), squared_distance(y, y_hat)
    model, chart = log_prob + L - model_L, torch.zeros(len(x), dtype=torch.long, device=x.device)
    return Scores(z, x_hat, log_prob, error, model, model_error, ambient, smooth, y.flatten(1), chart)
