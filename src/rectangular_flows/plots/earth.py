"""Maps of a density on the sphere, in an equal-area projection: the learned density beside the data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from torch import Tensor

from ..data.sphere import to_degrees, to_xyz
from ..manifold import RectangularFlow
from .style import BLUE, INK, MUTED

Array = npt.NDArray[Any]

_OFF_SURFACE = 0.1  # a grid point farther than this from the learned surface is not on it
_MOST_POINTS = 20_000
_UNIFORM = 1 / (4 * math.pi)


def draw_earth(
    flow: RectangularFlow, rows: Tensor, *, title: str = "Density on the sphere", resolution: float = 1.0
) -> Figure:
    """Two maps in Mollweide's equal-area projection: the data, and the learned density per steradian.

    The density at a place is that of its projection on the learned surface. Places farther than 0.1 from the surface (the
    cut that a chart of the plane leaves in a sphere) are grey.

    Args:
        flow: a surface in R³ that was trained on points of the unit sphere.
        rows: such points, (N, 3).
        title: of the figure.
        resolution: of the grid, in degrees.
    """
    return draw_earths({title: (flow, rows)}, resolution=resolution)


def draw_earths(maps: Mapping[str, tuple[RectangularFlow, Tensor]], *, resolution: float = 1.0) -> Figure:
    """A row of two maps, as :func:`draw_earth` has them, for each of several flows; the colours are common to all."""
    count = len(maps)
    layout = ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.08)
    figure = Figure(figsize=(12, 3.2 * count + 0.9), layout=layout, facecolor="white")
    axes = figure.subplots(count, 2, squeeze=False, subplot_kw={"projection": "mollweide"})
    fields = {name: density_map(flow, resolution) for name, (flow, _) in maps.items()}
    norm = _norm(list(fields.values()))
    for (left, right), (name, (_, rows)) in zip(axes, maps.items(), strict=True):
        _frame(left)
        _points(left, rows)
        _heading(left, name, f"{len(rows):,} points")
        _frame(right, "white")
        _field(right, fields[name], norm)
        missing = np.isnan(fields[name]).any()
        _heading(right, "Learned density", "grey: off the learned surface" if missing else "")
    colours = ScalarMappable(norm, _colours())
    bar = figure.colorbar(
        colours, ax=axes.ravel().tolist(), location="bottom", extend="both", shrink=0.5, aspect=45, pad=0.02
    )
    bar.set_label(f"density per steradian (uniform: 1/4π ≈ {_UNIFORM:.3f})", color=INK, fontsize=9)
    bar.ax.tick_params(colors=MUTED, labelsize=8)
    bar.outline.set_visible(False)
    bar.ax.axvline(_UNIFORM, color="white", linewidth=1.2)
    return figure


@torch.no_grad()
def density_map(flow: RectangularFlow, resolution: float = 1.0) -> Array:
    """Density per steradian in the middle of each cell of a grid, south to north and −180° to 180° E.

    NaN where the learned surface is not: farther than 0.1.

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
    where = next((p for p in flow.parameters()), torch.zeros(()))
    points = torch.from_numpy(to_xyz(grid)).to(where)
    density = flow.log_prob(points, check=False).double().exp()
    error = torch.cat([flow.reconstruction_error(part) for part in points.split(flow.rows_at_once())])
    density[~(error.sqrt() <= _OFF_SURFACE) | ~density.isfinite()] = torch.nan
    return density.cpu().numpy().reshape(count, 2 * count)


def _colours() -> Colormap:
    return colormaps["magma"].with_extremes(bad="#c9ced6")


def _norm(fields: list[Array]) -> LogNorm:
    """From a tenth of the uniform density to what all but a thousandth of the area stays under."""
    high = max(float(np.nanquantile(field, 0.999)) if np.isfinite(field).any() else 0.0 for field in fields)
    return LogNorm(_UNIFORM / 10, max(high, 10 * _UNIFORM))


def _field(axis: Any, field: Array, norm: LogNorm) -> None:
    rows, columns = field.shape
    longitude = np.linspace(-math.pi, math.pi, columns + 1)
    latitude = np.linspace(-math.pi / 2, math.pi / 2, rows + 1)
    floor = np.where(np.isnan(field), np.nan, np.maximum(field, norm.vmin / 2))  # type: ignore[operator]
    axis.pcolormesh(longitude, latitude, floor, norm=norm, cmap=_colours(), shading="flat", rasterized=True, zorder=1)


def _points(axis: Any, rows: Tensor) -> None:
    degrees = to_degrees(rows[:_MOST_POINTS].double().cpu().numpy())
    size = float(np.clip(4000 / len(degrees), 0.4, 4.0))
    latitude, longitude = np.radians(degrees).T
    axis.scatter(longitude, latitude, s=size, color=BLUE, alpha=0.6, linewidths=0, zorder=3, rasterized=True)


def _frame(axis: Any, lines: str = MUTED) -> None:
    """Graticule every 30 degrees, without labels."""
    axis.set_longitude_grid(30)
    axis.set_latitude_grid(30)
    axis.set_longitude_grid_ends(90)
    axis.grid(color=lines, linewidth=0.4, alpha=0.35)
    axis.set_axisbelow(False)
    axis.tick_params(labelbottom=False, labelleft=False)
    axis.spines["geo"].set(color=MUTED, linewidth=0.6)


def _heading(axis: Any, text: str, subtitle: str) -> None:
    axis.set_title(text, fontsize=11, color=INK, loc="left", fontweight="bold")
    axis.set_title(subtitle, fontsize=9, color=MUTED, loc="right")


__all__ = ["density_map", "draw_earth", "draw_earths"]
