"""The paper's Figure 1: a density on a learned circle, for maximum likelihood and for the two-step method."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from ..data.synthetic import von_mises_log_density
from ..manifold import RectangularFlow
from ..metrics.geometry import CircleFit, Curve, trace_curve
from .style import BLUE, INK, MUTED, RED, plain, title

_DENSITY, _SPEED = "viridis", "plasma"


@dataclass(frozen=True)
class CircleResult:
    """One method's flow and its fit."""

    name: str
    flow: RectangularFlow
    fit: CircleFit


def draw_circle(ml: CircleResult, two_step: CircleResult, data: Tensor) -> Figure:
    """Six panels: densities on the learned curves around the truth; speeds; what h has to learn.

    Args:
        ml: maximum likelihood, shown on the left.
        two_step: the baseline, shown on the right.
        data: points whose coordinates f†(x) are shown in the middle of the lower row.
    """
    curves = {result.name: trace_curve(result.flow, 4001, tail=1e-4) for result in (ml, two_step)}
    truth = _true_circle()
    figure = Figure(figsize=(11, 7.6), layout=ConstrainedLayoutEngine(h_pad=0.12), facecolor="white")
    axes = figure.subplots(2, 3)
    top = max(float(truth[1].max()), *(float(c.density.quantile(0.99)) for c in curves.values()))
    scale = Normalize(0, min(top, 1.6 * float(truth[1].max())))
    speed_scale = Normalize(0, 2)

    for column, result in ((0, ml), (2, two_step)):
        curve = curves[result.name]
        subtitle = f"KL {result.fit.kl:.3f} · mean distance {result.fit.mean_distance:.3f}"
        density = _coloured(axes[0, column], curve.points, curve.density, scale, _DENSITY)
        title(axes[0, column], f"{result.name}: density", subtitle)
        spread = f"standard deviation / mean {result.fit.speed_spread:.2f}"
        mean = (curve.speed[1:] * curve.probability).sum() / curve.probability.sum()
        speed = _coloured(axes[1, column], curve.points, curve.speed / mean, speed_scale, _SPEED)
        title(axes[1, column], f"{result.name}: speed ‖f′(z)‖", spread)
    _coloured(axes[0, 1], truth[0], truth[1], scale, _DENSITY)
    title(axes[0, 1], "von Mises ground truth", "κ = 1, centred at π/2")
    figure.colorbar(density, ax=axes[0, :].tolist(), label="density along the curve", shrink=0.8, pad=0.015)
    figure.colorbar(speed, ax=axes[1, :].tolist(), label="speed, relative to its mean", shrink=0.8, pad=0.015)
    _latents(axes[1, 1], [(ml, curves[ml.name], BLUE), (two_step, curves[two_step.name], RED)], data)
    return figure


def draw_circle_run(result: CircleResult) -> Figure:
    """One run in three panels: the density on its curve, the truth, and its speed."""
    curve, truth = trace_curve(result.flow, 4001, tail=1e-4), _true_circle()
    figure = Figure(figsize=(12, 3.9), layout="constrained", facecolor="white")
    axes = figure.subplots(1, 3)
    scale = Normalize(0, 1.6 * float(truth[1].max()))
    density = _coloured(axes[0], curve.points, curve.density, scale, _DENSITY)
    title(axes[0], f"{result.name}: density", f"KL {result.fit.kl:.3f} · mean distance {result.fit.mean_distance:.3f}")
    _coloured(axes[1], truth[0], truth[1], scale, _DENSITY)
    title(axes[1], "von Mises ground truth", "κ = 1, centred at π/2")
    mean = (curve.speed[1:] * curve.probability).sum() / curve.probability.sum()
    speed = _coloured(axes[2], curve.points, curve.speed / mean, Normalize(0, 2), _SPEED)
    title(axes[2], "Speed ‖f′(z)‖", f"standard deviation / mean {result.fit.speed_spread:.2f}")
    figure.colorbar(density, ax=axes[:2].tolist(), label="density along the curve", shrink=0.8, pad=0.015)
    figure.colorbar(speed, ax=axes[2], label="speed, relative to its mean", shrink=0.8, pad=0.03)
    return figure


def draw_circle_grid(
    results: Mapping[tuple[int, int], CircleResult],
    rows: Sequence[str],
    columns: Sequence[str],
    breaks: Sequence[int] = (),
) -> Figure:
    """Many learned curves, coloured by density, each with its KL: the paper's appendix, or one row for each method.

    Args:
        results: (row, column) → result.
        rows: what each row is.
        columns: what each column is.
        breaks: columns before which there is some room.
    """
    widths = [w for i in range(len(columns)) for w in ([0.12, 1.0] if i in breaks else [1.0])]
    size = (1.55 * sum(widths) + 1.2, 1.72 * len(rows) + 0.6)
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.03), facecolor="white")
    grid = figure.add_gridspec(len(rows), len(widths), width_ratios=widths)
    place = [i + sum(1 for b in breaks if b <= i) for i in range(len(columns))]
    scale = Normalize(0, 1.6 * float(_true_circle()[1].max()))
    lines, axes = None, []
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            axis = figure.add_subplot(grid[i, place[j]])
            axes.append(axis)
            axis.set(xticks=[], yticks=[])
            if (i, j) in results:
                curve = trace_curve(results[i, j].flow, 2001, tail=1e-4)
                lines = _coloured(axis, curve.points, curve.density, scale, _DENSITY, width=3)
                label = f"KL\n{results[i, j].fit.kl:.3g}"
                paper = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1.5}
                axis.text(0, 0, label, ha="center", va="center", fontsize=8, color=INK, bbox=paper)
            axis.set(xticks=[], yticks=[], xlim=(-1.5, 1.5), ylim=(-1.5, 1.5))
            axis.spines[:].set_visible(False)
            if i == 0:
                axis.set_title(column, fontsize=8.5, color=INK, fontweight="bold")
            if j == 0:
                axis.set_ylabel(row.replace(", ", "\n"), fontsize=8.5, color=INK, fontweight="bold")
    if lines is not None:
        figure.colorbar(lines, ax=axes, label="density along the curve", shrink=0.6, pad=0.01, aspect=30)
    return figure


def _true_circle() -> tuple[Tensor, Tensor]:
    angle = torch.linspace(-math.pi, math.pi, 2001, dtype=torch.float64)
    return torch.stack([angle.cos(), angle.sin()], dim=1), von_mises_log_density(angle).exp()


def _coloured(
    axis: Any, points: Tensor, values: Tensor, scale: Normalize, colours: str, width: float = 5
) -> LineCollection:
    pairs = np.stack([points[:-1].numpy(), points[1:].numpy()], axis=1)
    lines = LineCollection(list(pairs), cmap=colours, norm=scale, linewidths=width, capstyle="round")
    lines.set_array(((values[1:] + values[:-1]) / 2).numpy())
    axis.add_collection(lines)
    ring = np.linspace(0, 2 * np.pi, 400)
    axis.plot(np.cos(ring), np.sin(ring), color=MUTED, linewidth=0.8, linestyle=(0, (2, 3)), zorder=0)
    axis.set(xlim=(-1.35, 1.35), ylim=(-1.35, 1.35), aspect="equal")
    axis.set_xticks([-1, 0, 1])
    axis.set_yticks([-1, 0, 1])
    plain(axis)
    return lines


def _latents(axis: Any, shown: list[tuple[CircleResult, Curve, str]], data: Tensor) -> None:
    for result, curve, colour in shown:
        z = result.flow.encode(data).detach().double().flatten()
        spread, centre = float(z.std()), float(z.mean())
        standard = (z - centre) / spread
        axis.hist(standard.numpy(), bins=80, range=(-4, 4), density=True, color=colour, alpha=0.25)
        latent = (curve.z - centre) / spread
        axis.plot(latent, curve.density * curve.speed * spread, color=colour, linewidth=1.8, label=result.name)
    axis.set_xlim(-4, 4)
    axis.set_ylim(0, 1.25 * axis.get_ylim()[1])  # room for the legend
    axis.set_xlabel("z, centred and scaled to unit variance", color=INK, fontsize=9)
    axis.yaxis.set_major_locator(MaxNLocator(4))
    title(axis, "What h has to learn: f†(X)", "bars: encoded data · lines: p_h")
    axis.legend(frameon=False, fontsize=9, loc="upper right")
    plain(axis)


__all__ = ["CircleResult", "draw_circle", "draw_circle_grid", "draw_circle_run"]
