"""A density on a learned curve in the plane, beside the von Mises density on the unit circle."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

from ..data.synthetic import von_mises_log_density
from ..manifold import RectangularFlow
from ..metrics.geometry import CircleFit, Curve, trace_curve
from .panels import Panel, Ribbon, Scale, draw_panel
from .style import MUTED, sheet

DENSITY_LABEL, SPEED_LABEL = "density along the curve", "speed relative to its mean"
TRUE_TOP = float(von_mises_log_density(torch.tensor(math.pi / 2, dtype=torch.float64)).exp())


class CircleResult(NamedTuple):
    """One method's flow and its fit."""

    name: str
    flow: RectangularFlow
    fit: CircleFit


def density_panel(result: CircleResult, curve: Curve, top: float = 1.6 * TRUE_TOP) -> Panel:
    """The density on a learned curve, on a colour scale from 0 to ``top``."""
    detail = f"KL {result.fit.kl:.3f} · mean distance {result.fit.mean_distance:.3f}"
    return _panel(f"{result.name}: density", detail, curve.points, curve.density, top, "viridis")


def speed_panel(result: CircleResult, curve: Curve) -> Panel:
    """‖f′(z)‖ along a learned curve, relative to its mean under the model, on a colour scale from 0 to 2."""
    mean = (curve.speed[1:] * curve.probability).sum() / curve.probability.sum()
    detail = f"standard deviation / mean {result.fit.speed_spread:.2f}"
    return _panel(f"{result.name}: speed ‖f′(z)‖", detail, curve.points, curve.speed / mean, 2.0, "plasma")


def truth_panel(top: float = 1.6 * TRUE_TOP) -> Panel:
    """The von Mises density on the unit circle, on a colour scale from 0 to ``top``."""
    angle = torch.linspace(-math.pi, math.pi, 2001, dtype=torch.float64)
    points = torch.stack([angle.cos(), angle.sin()], dim=1)
    density = von_mises_log_density(angle).exp()
    return _panel("von Mises ground truth", "κ = 1, centred at π/2", points, density, top, "viridis")


def draw_circle_run(result: CircleResult) -> Figure:
    """One run: the density on its curve, the truth, and its speed."""
    figure = sheet(12, 3.9)
    axes = figure.subplots(1, 3)
    curve = trace_curve(result.flow, 4001, tail=1e-4)
    panels = density_panel(result, curve), truth_panel(), speed_panel(result, curve)
    density, _, speed = (draw_circle_panel(axis, panel) for axis, panel in zip(axes, panels, strict=True))
    figure.colorbar(density, ax=axes[:2].tolist(), label=DENSITY_LABEL, shrink=0.8, pad=0.015)
    figure.colorbar(speed, ax=axes[2], label=SPEED_LABEL, shrink=0.8, pad=0.03)
    return figure


def draw_circle_panel(axis: Axes, panel: Panel) -> Any:
    """A coloured curve around the dotted unit circle; returns what a colour bar needs."""
    ring = np.linspace(0, 2 * np.pi, 400)
    axis.plot(np.cos(ring), np.sin(ring), color=MUTED, linewidth=0.8, linestyle=(0, (2, 3)), zorder=0)
    return draw_panel(axis, panel)[0]


def _panel(title: str, detail: str, points: torch.Tensor, values: torch.Tensor, top: float, colours: str) -> Panel:
    scale = Scale(limits=(-1.35, 1.35), ticks=FixedLocator([-1, 0, 1]))
    return Panel([Ribbon(points.numpy(), values.numpy(), top, colours)], title, detail, scale, scale, equal=True)
