"""The paper's Figure 1, a density on a learned circle for both methods, and its appendix with many settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from ..metrics.geometry import Curve, trace_curve
from ..plots.circle import (
    DENSITY_LABEL,
    SPEED_LABEL,
    TRUE_TOP,
    CircleResult,
    density_panel,
    draw_circle_panel,
    speed_panel,
    truth_panel,
)
from ..plots.panels import NO_TICKS, Bars, Line, Note, Panel, Scale, draw_panel
from ..plots.style import BLUE, INK, RED, sheet

_BINS = np.linspace(-4, 4, 81)


class CirclePanels(NamedTuple):
    """Three panels above, maximum likelihood on the left and the two-step method on the right, and three below.

    With a closed curve, one more of each.
    """

    density: tuple[Panel, ...]
    speed: tuple[Panel, ...]


def circle_panels(
    ml: CircleResult, two_step: CircleResult, data: Tensor, closed: CircleResult | None = None
) -> CirclePanels:
    """Densities of both methods around the truth; their speeds around what their latent densities have to learn.

    Args:
        ml: maximum likelihood.
        two_step: the baseline.
        data: points (N, 2) to encode.
        closed: maximum likelihood with a circle as latent space.
    """
    left, right = (trace_curve(result.flow, 4001, tail=1e-4) for result in (ml, two_step))
    top = max(TRUE_TOP, *(float(curve.density.quantile(0.99)) for curve in (left, right)))
    top = min(top, 1.6 * TRUE_TOP)
    layers = [*_latent_layers(ml, left, data, BLUE), *_latent_layers(two_step, right, data, RED)]
    latent = Panel(
        layers,
        "What the latent density has to learn",
        "bars: encoded data · lines: latent density",
        Scale("z, centred and scaled to unit variance", (-4, 4)),
        Scale(limits=(0, 1.25 * _highest(layers)), ticks=MaxNLocator(4)),
        legend="upper right",
    )
    density = (density_panel(ml, left, top), truth_panel(top), density_panel(two_step, right, top))
    speed = (speed_panel(ml, left), latent, speed_panel(two_step, right))
    if closed is None:
        return CirclePanels(density, speed)
    curve = trace_curve(closed.flow, 4001)
    return CirclePanels((*density, density_panel(closed, curve, top)), (*speed, speed_panel(closed, curve)))


def draw_circle(ml: CircleResult, two_step: CircleResult, data: Tensor, closed: CircleResult | None = None) -> Figure:
    """Draw what :func:`circle_panels` gives."""
    panels = circle_panels(ml, two_step, data, closed)
    count = len(panels.density)
    figure = sheet(11 + 3.4 * (count - 3), 7.6, h_pad=0.12)
    axes = figure.subplots(2, count)
    density, *_ = [draw_circle_panel(axis, panel) for axis, panel in zip(axes[0], panels.density, strict=True)]
    draw_panel(axes[1, 1], panels.speed[1])
    speed, *_ = [draw_circle_panel(axes[1, i], panels.speed[i]) for i in range(count) if i != 1]
    figure.colorbar(density, ax=axes[0, :].tolist(), label=DENSITY_LABEL, shrink=0.8, pad=0.015)
    figure.colorbar(speed, ax=axes[1, :].tolist(), label=SPEED_LABEL, shrink=0.8, pad=0.015)
    return figure


def grid_panel(result: CircleResult) -> Panel:
    """A small panel: the density on a learned curve, with its KL in the middle."""
    panel = density_panel(result, trace_curve(result.flow, 2001, tail=1e-4))
    box = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1.5}
    note = Note(0, 0, f"KL\n{result.fit.kl:.3g}", {"ha": "center", "va": "center", "bbox": box})
    return replace(panel, layers=[*panel.layers, note], title="", detail="")


def draw_circle_grid(
    results: Mapping[tuple[int, int], CircleResult],
    rows: Sequence[str],
    columns: Sequence[str],
    breaks: Sequence[int] = (),
) -> Figure:
    """Many learned curves, coloured by density, each with its KL.

    Args:
        results: (row, column) → result.
        rows: what each row is.
        columns: what each column is.
        breaks: columns before which there is some room.
    """
    widths = [w for i in range(len(columns)) for w in ([0.12, 1.0] if i in breaks else [1.0])]
    figure = sheet(1.55 * sum(widths) + 1.2, 1.72 * len(rows) + 0.6, w_pad=0.02, h_pad=0.03)
    grid = figure.add_gridspec(len(rows), len(widths), width_ratios=widths)
    scale = Scale(limits=(-1.5, 1.5), ticks=NO_TICKS)
    lines = None
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            axis = figure.add_subplot(grid[i, j + sum(b <= j for b in breaks)])
            if (i, j) in results:
                lines = draw_circle_panel(axis, replace(grid_panel(results[i, j]), x=scale, y=scale))
                lines.set_linewidths(3)
            else:
                draw_panel(axis, Panel([], x=scale, y=scale, equal=True))
            if i == 0:
                axis.set_title(column, fontsize=8.5, color=INK, fontweight="bold")
            if j == 0:
                axis.set_ylabel(row.replace(", ", "\n"), fontsize=8.5, color=INK, fontweight="bold")
    if lines is not None:
        figure.colorbar(lines, ax=figure.axes, label=DENSITY_LABEL, shrink=0.6, pad=0.01, aspect=30)
    return figure


def _latent_layers(result: CircleResult, curve: Curve, data: Tensor, colour: str) -> list[Bars | Line]:
    """Encoded data and the latent density, with z centred and scaled by the data's mean and deviation."""
    encoded = result.flow.encode(data).detach().double().flatten().numpy()
    centre, spread = encoded.mean(), encoded.std(ddof=1)
    heights = np.histogram((encoded - centre) / spread, _BINS, density=True)[0]
    density = curve.density * curve.speed * spread  # of z: the density on the curve times the speed
    line = Line(((curve.z - centre) / spread).numpy(), density.numpy(), colour, result.name, {"linewidth": 1.8})
    return [Bars(heights, _BINS, colour, 0.25), line]


def _highest(layers: Sequence[Bars | Line]) -> float:
    return max(float(np.max(layer.heights if isinstance(layer, Bars) else layer.y)) for layer in layers)
