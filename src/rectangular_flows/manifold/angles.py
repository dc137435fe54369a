"""Coordinates that are angles, as a mixture of Gaussians takes them: pairs, and beside the manifold stereographic."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..flows.periodic import angle_of, stereographic
from ..flows.spaces import Embedding, Space

if TYPE_CHECKING:
    from .flow import RectangularFlow


def around(flow: RectangularFlow) -> Embedding | None:
    """What turns z into coordinates that a mixture of Gaussians can take; None where they are such already."""
    closed = flow.angles > 0 and not flow.latent.space.flat
    return Embedding(str(flow.latent.space)) if closed else flow.embedding


def given(flow: RectangularFlow) -> int:
    """Of the coordinates u = (z, z′) of a mixture, those of z."""
    found = around(flow)
    return flow.latent.features if found is None else found.out_shape[0]


def ambient_space(flow: RectangularFlow) -> str | None:
    """What f̃ maps to itself, if some of its coordinates are angles."""
    lines = prod(flow.ambient.in_shape) - flow.angles
    return str(Space(("circle",) * flow.angles + ("line",) * lines)) if flow.angles else None


def _beside(flow: RectangularFlow) -> int:
    """Angles that are no coordinates of the manifold: the first of those that padding drops."""
    return flow.angles - flow.latent.space.factors.count("circle")


def without_angles(flow: RectangularFlow, z: Tensor, beside: Tensor) -> tuple[Tensor, Tensor]:
    """(z, z′) with z by its embedding and angles of z′ stereographic, and log|det| of the latter, (B,)."""
    count, embed = _beside(flow), around(flow)
    t, slope = stereographic(beside[:, :count])
    return torch.cat((z if embed is None else embed(z), t, beside[:, count:]), dim=1), slope.sum(dim=1)


def with_angles(flow: RectangularFlow, beside: Tensor) -> Tensor:
    """z′ of coordinates beside the manifold: the inverse of the second part of :func:`without_angles`."""
    count = _beside(flow)
    return torch.cat((angle_of(beside[:, :count]), beside[:, count:]), dim=1)
