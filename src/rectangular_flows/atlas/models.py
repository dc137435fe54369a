"""A flow or an atlas: what can be trained, saved, scored and drawn."""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor

from ..manifold import RectangularFlow
from .model import Atlas

Model: TypeAlias = RectangularFlow | Atlas
"""What can be trained, saved, scored and drawn."""


def one_chart(model: Model) -> RectangularFlow:
    """The model, which is to be a flow.

    Raises:
        ValueError: it is an atlas.
    """
    if isinstance(model, Atlas):
        raise ValueError(f"expected a model of one chart; got an atlas of {len(model.charts)}")
    return model


def by_chart(model: Model, y: Tensor) -> list[tuple[RectangularFlow, Tensor]]:
    """Every chart, and which of the rows in the model's units it has, their indices; of a flow, all of them."""
    if not isinstance(model, Atlas):
        return [(model, torch.arange(len(y), device=y.device))]
    chart = model.in_model_units.chart_of(y)
    found = [(flow, torch.nonzero(chart == k).flatten()) for k, flow in enumerate(model.charts)]
    return [(flow, rows) for flow, rows in found if len(rows)]
