"""The charts of an atlas: rows coloured by the chart they lie on, and the seams, where two charts share them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from ..atlas import Atlas
from .panels import Array
from .style import INK, legend_below, literal, plain, sheet, title

_MOST_POINTS = 3_000
_SHARED = 0.1  # share of a second chart in a row, from which the row is on a seam


class ChartPoints(NamedTuple):
    """Rows in two or three columns, (N, k), with names; the chart of each; whether it lies on a seam."""

    points: Array
    columns: list[str]
    chart: Array
    seam: Array


@torch.no_grad()
def chart_points(atlas: Atlas, rows: Tensor, columns: Sequence[str]) -> ChartPoints:
    """At most 3,000 rows in the three columns that vary most in the model's units, or in all of two."""
    rows = rows[:_MOST_POINTS]
    spread = atlas.to_model_units(rows).flatten(1).var(dim=0, correction=0)
    shown = sorted(spread.argsort(descending=True, stable=True)[:3].tolist())
    shares = atlas.responsibilities(rows).sort(dim=1, descending=True)
    seam = shares.values[:, 1] > _SHARED if len(atlas.charts) > 1 else torch.zeros(len(rows), dtype=torch.bool)
    points: Array = rows[:, shown].double().numpy()
    return ChartPoints(points, [columns[i] for i in shown], shares.indices[:, 0].numpy(), seam.numpy())


def draw_charts(atlas: Atlas, rows: Tensor, columns: Sequence[str]) -> Figure:
    """Draw what :func:`chart_points` gives: a colour a chart, rings around rows on a seam."""
    found = chart_points(atlas, rows, columns)
    figure = sheet(6.4, 6.0)
    solid = found.points.shape[1] == 3
    axis: Any = figure.add_subplot(projection="3d" if solid else None)
    points = found.points if found.points.shape[1] > 1 else np.concatenate([found.points, 0 * found.points], axis=1)
    numbers, handles = np.unique(found.chart), []
    for number in numbers:
        colour = colormaps["tab10"](int(number) % 10)
        axis.scatter(*points[found.chart == number].T, s=7, color=colour, linewidths=0, alpha=0.8)
        share = f"chart {number}: {atlas.weights[int(number)].item():.0%}"
        handles.append(Line2D([], [], linestyle="", marker="o", markersize=5, color=colour, label=share))
    if found.seam.any():
        axis.scatter(*points[found.seam].T, s=26, facecolors="none", edgecolors=INK, linewidths=0.5)
        ring: Any = {"markerfacecolor": "none", "markeredgecolor": INK, "markeredgewidth": 0.6}
        handles.append(Line2D([], [], linestyle="", marker="o", markersize=6, label="seam", **ring))
    names = [literal(name if len(name) <= 18 else name[:17] + "…") for name in found.columns]
    for name, label in zip("xyz", names, strict=False):
        getattr(axis, f"set_{name}label")(label, color=INK, fontsize=9)
    axis.set_aspect("equal")
    if solid:
        axis.set_title("Charts", fontsize=11, color=INK, loc="left", fontweight="bold")
        axis.tick_params(labelsize=7)
    else:
        title(axis, "Charts", f"{len(points):,} rows by the chart they lie on")
        plain(axis)
    legend_below(figure, handles, min(len(handles), 5))
    return figure
