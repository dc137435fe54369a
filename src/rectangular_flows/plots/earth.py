"""Maps of a density on the sphere, in an equal-area projection: the learned density beside the data."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from torch import Tensor

from ..atlas import Model
from ..data.sphere import to_degrees, to_xyz
from .panels import Array
from .style import BLUE, INK, MUTED, plain, sheet
from .style import title as heading

_OFF_SURFACE = 0.1  # a grid point farther than this from the learned surface is not on it
_UNIFORM = 1 / (4 * math.pi)


def draw_earth(flow: Model, rows: Tensor, title: str, resolution: float = 1.0) -> Figure:
    """Two maps in Mollweide's equal-area projection: the data, points (N, 3), and the learned density per steradian.

    The colours go from a tenth of the uniform density to what all but a thousandth of the cells stay under. Places off the
    learned surface (the cut that a chart of the plane leaves in a sphere) are grey.
    """
    figure = sheet(12, 4.1, h_pad=0.08, w_pad=0.08)
    left, right = axes = figure.subplots(1, 2, subplot_kw={"projection": "mollweide"})
    _draw_frame(left, MUTED)
    latitude, longitude = np.radians(to_degrees(rows.double().cpu().numpy())).T
    size = float(np.clip(4000 / len(rows), 0.4, 4.0))
    left.scatter(longitude, latitude, s=size, color=BLUE, alpha=0.6, linewidths=0, zorder=3, rasterized=True)
    heading(left, title, f"{len(rows):,} points")
    _draw_frame(right, "white")
    density = density_map(flow, resolution)
    missing = np.isnan(density)
    low = _UNIFORM / 10
    high = max(0.0 if missing.all() else float(np.nanquantile(density, 0.999)), 10 * _UNIFORM)
    rings, cells = density.shape
    grid = np.linspace(-math.pi, math.pi, cells + 1), np.linspace(-math.pi / 2, math.pi / 2, rings + 1)
    colours = {"norm": LogNorm(low, high), "cmap": colormaps["magma"].with_extremes(bad="#c9ced6")}
    field = np.maximum(density, low / 2)  # a density of 0 is dark, not missing
    mesh = right.pcolormesh(*grid, field, shading="flat", rasterized=True, zorder=1, **colours)
    heading(right, "Learned density", "grey: off the learned surface" if missing.any() else " ")
    bar = figure.colorbar(mesh, ax=axes, location="bottom", extend="both", shrink=0.5, aspect=45, pad=0.02)
    bar.set_label(f"density per steradian (uniform: 1/4π ≈ {_UNIFORM:.3f})", color=INK, fontsize=9)
    bar.outline.set_visible(False)
    bar.ax.axvline(_UNIFORM, color="white", linewidth=1.2)
    plain(bar.ax)
    return figure


def density_map(flow: Model, resolution: float) -> Array:
    """Density per steradian in the middle of each cell of a grid, south to north and −180° to 180° E; NaN off the surface.

    The density at a place is that of its projection on the learned surface. The resolution, in degrees, divides 180.
    """
    count = round(180 / resolution)
    latitude = (np.arange(count) + 0.5) * 180 / count - 90
    longitude = (np.arange(2 * count) + 0.5) * 180 / count - 180
    grid = np.stack([a.ravel() for a in np.meshgrid(latitude, longitude, indexing="ij")], axis=1)
    scores = flow.score(torch.from_numpy(to_xyz(grid)).to(flow.device, flow.dtype), check=False)
    density = scores.log_prob.double().exp()
    density[~(scores.squared_distance.sqrt() <= _OFF_SURFACE) | ~density.isfinite()] = torch.nan
    return density.cpu().numpy().reshape(count, 2 * count)


def _draw_frame(axis: Any, lines: str) -> None:
    """Graticule every 30 degrees, without labels."""
    axis.set_longitude_grid(30)
    axis.set_latitude_grid(30)
    axis.set_longitude_grid_ends(90)
    axis.grid(color=lines, linewidth=0.4, alpha=0.35)
    axis.set_axisbelow(False)
    axis.tick_params(labelbottom=False, labelleft=False)
    axis.spines["geo"].set(color=MUTED, linewidth=0.6)
