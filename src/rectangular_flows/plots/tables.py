"""A flow on a table: data beside samples, coordinates on the manifold, distances from it, stretching."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from ..atlas import Model
from .panels import NO_TICKS, Array, Bars, Boxes, Dots, Panel, Scale, draw_panel
from .style import BLUE, RED, legend_below, sheet

_MOST_COLUMNS = 6
_FEW_POINTS = 300
_MOST_POINTS = 3000


def pair_panels(data: Tensor, samples: Tensor, columns: Sequence[str]) -> list[list[Panel]]:
    """Marginals on the diagonal, pairs of columns off it: data below, samples above; of many columns, the widest six.

    The range of an axis is that of the data.
    """
    shown = sorted(data.var(dim=0, correction=0).argsort(descending=True)[:_MOST_COLUMNS].tolist())
    real, drawn = data[:, shown].double().numpy(), samples[:, shown].double().numpy()
    low, high = np.quantile(real, [0.002, 0.998], axis=0)
    pad = 0.08 * (high - low) + 1e-12
    edges = np.linspace(low - pad, high + pad, int(np.clip(2 * len(real) ** 0.5, 8, 50)), axis=1)
    names = [name if len(name) <= 18 else name[:17] + "…" for name in (columns[i] for i in shown)]
    scales = [Scale(name, (bins[0], bins[-1])) for name, bins in zip(names, edges, strict=True)]

    def marginal(i: int) -> Panel:
        bars = Bars(_density(real[:, i], edges[i]), edges[i], BLUE, 0.35)
        outline = Bars(_density(drawn[:, i], edges[i]), edges[i], RED, None)
        return Panel([bars, outline], x=scales[i], y=Scale(names[i], ticks=NO_TICKS))

    def scatter(i: int, j: int) -> Panel:
        rows, colour = (real, BLUE) if i > j else (drawn, RED)
        points = rows[:_MOST_POINTS]
        style = {"s": 10, "alpha": 0.6} if len(points) < _FEW_POINTS else {"s": 3, "alpha": 0.25}
        dots = Dots(points[:, j], points[:, i], colour, style)
        return Panel([dots], x=scales[j], y=scales[i])

    places = range(len(shown))
    return [[marginal(i) if i == j else scatter(i, j) for j in places] for i in places]


def draw_pairs(data: Tensor, samples: Tensor, columns: Sequence[str]) -> Figure:
    """Draw what :func:`pair_panels` gives: data blue, samples red."""
    panels = pair_panels(data, samples, columns)
    n = len(panels)
    figure = sheet(max(1.9 * n, 7.0) + 0.6, 1.9 * n + 0.9)
    for (i, j), axis in np.ndenumerate(figure.subplots(n, n, squeeze=False)):
        draw_panel(axis, panels[i][j])
        axis.tick_params(labelsize=7)
        axis.label_outer()
    handles = [Patch(facecolor=BLUE, alpha=0.35, label="data"), Line2D([], [], color=RED, label="samples")]
    legend_below(figure, handles, 2)
    return figure


@torch.no_grad()
def manifold_panels(flow: Model, rows: Tensor) -> tuple[Panel, Panel, Panel]:
    """Coordinates on the manifold of at most 3000 rows, their distances from it, and singular values of the Jacobian.

    Of an atlas, the coordinates are those on the chart with the most rows.
    """
    scores = flow.score(rows[:_MOST_POINTS])
    distance = scores.squared_distance.sqrt().numpy()
    low = max(float(np.quantile(distance[distance > 0], 0.001)) if (distance > 0).any() else 0.0, 1e-12)
    high = float(distance.max()) + 1e-12
    edges = np.geomspace(low, high, 50) if high > 10 * low else np.linspace(0, high, 50)
    unit = Scale("distance from the manifold, units of the data", kind="log" if high > 10 * low else "linear")
    bars = Bars(np.histogram(distance, edges)[0], edges, BLUE)
    stretches = [
        flow.charts[k].singular_values(scores.z[:1000][chart == k])
        for chart in [scores.chart[:1000]]
        for k in chart.unique().tolist()
    ]
    values = torch.cat(stretches).double().numpy()
    condition = f"median condition number {np.median(values[:, 0] / values[:, -1]):.3g}"
    x = Scale("direction on the manifold", ticks=MaxNLocator(integer=True, min_n_ticks=1))
    y = Scale("log₁₀ singular value of the Jacobian")
    counts = scores.chart.bincount()
    most = int(counts.argmax())  # coordinates on other charts are others
    own, whose = scores.chart == most, "the data"
    if len(flow.charts) > 1:
        whose = f"the rows on chart {most}, the largest of {len(flow.charts)}"
    return (
        _coordinates(scores.z[own].double().numpy(), scores.log_prob[own].double().numpy(), whose),
        Panel([bars], "How far rows are from the manifold", f"median {np.median(distance):.3g}", unit),
        Panel([Boxes(np.log10(values), BLUE, RED)], "How the decoder stretches", condition, x, y),
    )


def draw_manifold(flow: Model, rows: Tensor) -> Figure:
    """Draw what :func:`manifold_panels` gives."""
    figure = sheet(12, 3.9)
    axes = figure.subplots(1, 3)
    (dots,), _, _ = (draw_panel(*pair) for pair in zip(axes, manifold_panels(flow, rows), strict=True))
    if flow.latent_dim > 1:
        figure.colorbar(dots, ax=axes[0], label="log-density", shrink=0.85)
    return figure


def _coordinates(z: Array, log_density: Array, whose: str) -> Panel:
    """Dots coloured by log-density, or a histogram of a single coordinate."""
    d = z.shape[1]
    if d == 1:
        edges = np.histogram_bin_edges(z, 60)
        bars = Bars(_density(z[:, 0], edges), edges, BLUE)
        return Panel([bars], "Coordinate on the manifold", f"of {whose}", Scale("z"))
    low, high = np.quantile(log_density, [0.02, 0.98])
    dots = Dots(z[:, 0], z[:, 1], style={"s": 5}, values=log_density, limits=(low, high))
    detail = f"of {whose}, coloured by log-density" + (f" (first two of {d})" if d > 2 else "")
    return Panel([dots], "Coordinates on the manifold", detail, Scale("z₁"), Scale("z₂"))


def _density(values: Array, edges: Array) -> Array:
    """Heights of a histogram that would have area 1 if no value were outside."""
    return np.histogram(values, edges)[0] / (len(values) * np.diff(edges))
