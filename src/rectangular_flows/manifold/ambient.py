"""From the manifold to the density in R^D: the coordinates (z, z′) of rows, and rows that scatter around the manifold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..densities.base import draw_normal
from ..densities.scatter import Coordinates, Scatter
from ..flows.injection import Bijection, Injection, links_of
from .angles import around, with_angles, without_angles

if TYPE_CHECKING:
    from .flow import RectangularFlow

_REDRAWS = 20  # of samples beyond the data, before what is left is moved to the edge


def coordinates_of(flow: RectangularFlow, y: Tensor) -> Coordinates:
    """Of rows in the model's units: (z, z′) and all that a density in R^D needs beside them."""
    inner, outer = _inner_and_outer(flow)
    w, outer_log_det, residuals, dropped = _unfold(outer, y)
    u, log_det, more, also = _unfold(inner, w)
    z, beside = flow.pad.inverse(u), flow.pad.dropped(u)
    whole = torch.cat((z, beside), dim=1)
    if also:  # a flow that pads on its way: its other end has more dimensions, so that u stands for both
        w, log_det, outer_log_det = whole, torch.zeros_like(log_det), outer_log_det + log_det
    if flow.embedding is not None:
        offsets, around = flow.embedding.offsets(z)
        z, log_det = flow.embedding.inverse(z), log_det + around
        whole = torch.cat((flow.embedding(z), offsets, beside), dim=1)
    elif flow.angles:
        whole, slope = without_angles(flow, z, beside)
        log_det = log_det + slope
    latent = flow.latent.log_prob(z)
    stacked = torch.stack(residuals + more, dim=1) if residuals or more else y.new_zeros(len(y), 0)
    return Coordinates(y.flatten(1), w.flatten(1), whole, log_det, outer_log_det, stacked, latent, (*dropped, *also))


def unit_log_det(flow: RectangularFlow, x: Tensor) -> Tensor:
    """log|det ∂y/∂x| of the layers between the user's units and the model's, (B,), float64."""
    return _unfold(flow.unit_layers(), x)[1].double()


def scattered(flow: RectangularFlow, density: Scatter, count: int, generator: torch.Generator | None) -> Tensor:
    """Rows in the model's units with their scatter, (count, …), within the range of the data."""
    y = _draw(flow, density, count, generator)
    for _ in range(_REDRAWS):
        outside = ~density.inside(y)
        if not bool(outside.any()):
            break
        y[outside] = _draw(flow, density, int(outside.sum()), generator)
    return density.to_edge(y)


def _draw(flow: RectangularFlow, density: Scatter, count: int, generator: torch.Generator | None) -> Tensor:
    """Rows in the model's units with their scatter, (count, …), wherever they fall."""
    inner, outer = _inner_and_outer(flow)
    part = density.draw_parts(count, generator)
    z = flow.latent.sample(count, generator)
    taken = flow.pad.in_shape[0]
    if flow.embedding is None:
        embed = around(flow)
        u = torch.cat((z, density.joint.sample_given(z if embed is None else embed(z), generator)), dim=1)
        if embed is None:
            u = torch.where((part == 1)[:, None], density.joint.sample(count, generator), u)
        if flow.angles:
            u = torch.cat((u[:, :taken], with_angles(flow, u[:, taken:])), dim=1)
    else:
        beside = density.joint.sample_given(flow.embedding(z), generator)
        offsets = taken - flow.latent_dim
        u = torch.cat((flow.embedding.place(z, beside[:, :offsets]), beside[:, offsets:]), dim=1)
    plain = density.plain.sample(count, generator)
    widths = iter(density.log_scales.exp().flip(0))
    square = all(isinstance(link, Bijection) for link in inner)
    if not square:
        u = torch.where((part == 2)[:, None], plain, u)
    w = _fold(inner, flow.pad.place(u[:, :taken], u[:, taken:]), widths, generator)
    if square:
        w = torch.where((part == 2).view(-1, *[1] * (w.dim() - 1)), plain.view_as(w), w)
    y = _fold(outer, w, widths, generator)
    if density.columns is None:
        return y
    y[part == 3] = density.columns.sample(int((part == 3).sum()), generator).to(y).view(-1, *y.shape[1:])
    return y


def _inner_and_outer(flow: RectangularFlow) -> tuple[list[Injection], list[Injection]]:
    """The links of f̃, and those between it and the model's units."""
    links, units = links_of(flow.ambient, *flow.outer), len(flow.unit_layers())
    inner = len(links_of(flow.ambient))
    return links[:inner], links[inner : len(links) - units]


def _unfold(links: Sequence[Injection], x: Tensor) -> tuple[Tensor, Tensor, list[Tensor], list[int]]:
    """Through the inverses of links: the value, its log-determinant; of embeddings, residual² and dimensions dropped."""
    log_det, residuals, dropped = x.new_zeros(len(x)), [], []
    for link in reversed(links):
        before = x
        if isinstance(link, Bijection):
            x, change = link.inverse_with_log_det(x)
            log_det = log_det + change
            continue
        if not link.isometric:
            raise ValueError(
                f"a density in R^D needs layers that are bijections or isometric; got {type(link).__name__}"
            )
        x = link.inverse(x)
        missing = prod(link.out_shape) - prod(link.in_shape)
        if missing and not link.covers:
            residuals.append((before - link(x)).flatten(1).square().sum(dim=1))
            dropped.append(missing)
    return x, log_det, residuals, dropped


def _fold(links: Sequence[Injection], x: Tensor, widths: Iterator[Tensor], generator: torch.Generator | None) -> Tensor:
    """Through links, with normal noise in the dimensions that each embedding leaves out."""
    for link in links:
        x = link(x)
        if prod(link.in_shape) < prod(link.out_shape) and not link.covers:
            moved = x + next(widths) * draw_normal(tuple(x.shape), x, generator)
            x = x + moved - link(link.inverse(moved))
    return x
