"""Maps of a density on the sphere, in an equal-area projection: the learned density beside the data."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from torch import Tensor

from ..data.sphere import to_degrees, to_xyz
from ..manifold import RectangularFlow
from .panels import Array
from .style import BLUE, INK, MUTED, plain, sheet
from .style import title as heading

_OFF_SURFACE = 0.1  # a grid point farther than this from the learned surface is not on it
_MOST_POINTS = 20_000
_UNIFORM = 1 / (4 * math.pi)


class EarthPanels(NamedTuple):
    """Points and a density on the sphere."""

    points: Array
    """(N, 2), longitude and latitude in radians."""
    density: Array
    """As :func:`density_map` gives it."""
    limits: tuple[float, float]
    """The range of densities that the colours span."""


def earth_panels(flow: RectangularFlow, rows: Tensor, resolution: float = 1.0) -> EarthPanels:
    """The first 20,000 points and the learned density; the arguments are those of :func:`draw_earth`.

    The colours go from a tenth of the uniform density to what all but a thousandth of the cells stay under.
    """
    points = np.radians(to_degrees(rows[:_MOST_POINTS].double().cpu().numpy()))[:, ::-1]
    density = density_map(flow, resolution)
    high = float(np.nanquantile(density, 0.999)) if np.isfinite(density).any() else 0.0
    return EarthPanels(points, density, (_UNIFORM / 10, max(high, 10 * _UNIFORM)))


def draw_earth(
    flow: RectangularFlow, rows: Tensor, *, title: str = "Density on the sphere", resolution: float = 1.0
) -> Figure:
    """Two maps in Mollweide's equal-area projection: the data, and the learned density per steradian.

    The density at a place is that of its projection on the learned surface. Places farther than 0.1 from the surface (the
    cut that a chart of the plane leaves in a sphere) are grey.

    Args:
        flow: a surface in R³ that was trained on points of the unit sphere.
        rows: such points, (N, 3).
        title: of the map of the data.
        resolution: of the grid, in degrees.
    """
    panels = earth_panels(flow, rows, resolution)
    figure = sheet(12, 4.1, h_pad=0.08, w_pad=0.08)
    left, right = axes = figure.subplots(1, 2, subplot_kw={"projection": "mollweide"})
    _draw_frame(left, MUTED)
    size = float(np.clip(4000 / len(panels.points), 0.4, 4.0))
    left.scatter(*panels.points.T, s=size, color=BLUE, alpha=0.6, linewidths=0, zorder=3, rasterized=True)
    heading(left, title, f"{len(rows):,} points")
    _draw_frame(right, "white")
    low, high = panels.limits
    rings, cells = panels.density.shape
    grid = np.linspace(-math.pi, math.pi, cells + 1), np.linspace(-math.pi / 2, math.pi / 2, rings + 1)
    colours = {"norm": LogNorm(low, high), "cmap": colormaps["magma"].with_extremes(bad="#c9ced6")}
    field = np.maximum(panels.density, low / 2)  # a density of 0 is dark, not missing
    mesh = right.pcolormesh(*grid, field, shading="flat", rasterized=True, zorder=1, **colours)
    missing = np.isnan(panels.density).any()
    heading(right, "Learned density", "grey: off the learned surface" if missing else " ")
    bar = figure.colorbar(mesh, ax=axes, location="bottom", extend="both", shrink=0.5, aspect=45, pad=0.02)
    bar.set_label(f"density per steradian (uniform: 1/4π ≈ {_UNIFORM:.3f})", color=INK, fontsize=9)
    bar.outline.set_visible(False)
    bar.ax.axvline(_UNIFORM, color="white", linewidth=1.2)
    plain(bar.ax)
    return figure


def density_map(flow: RectangularFlow, resolution: float = 1.0) -> Array:
    """Density per steradian in the middle of each cell of a grid, south to north and −180° to 180° E.

    NaN where the cell is farther than 0.1 from the learned surface.

    Args:
        flow: a surface in R³.
        resolution: size of a cell in degrees, which divides 180.
    """
    if flow.ambient_dim != 3 or flow.latent_dim != 2:
        raise ValueError(f"expected a surface in R³; got {flow.latent_dim} dimensions in R^{flow.ambient_dim}")
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
