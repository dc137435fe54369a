"""The paper's Figure 1: a density on a learned circle, for maximum likelihood and for the two-step method."""

from __future__ import annotations

import math
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

_INK, _MUTED, _BLUE, _RED = "#1b1f24", "#6b7480", "#1f5fa8", "#c2452d"
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
        _title(axes[0, column], f"{result.name}: density", subtitle)
        spread = f"standard deviation / mean {result.fit.speed_spread:.2f}"
        mean = (curve.speed[1:] * curve.probability).sum() / curve.probability.sum()
        speed = _coloured(axes[1, column], curve.points, curve.speed / mean, speed_scale, _SPEED)
        _title(axes[1, column], f"{result.name}: speed ‖f′(z)‖", spread)
    _coloured(axes[0, 1], truth[0], truth[1], scale, _DENSITY)
    _title(axes[0, 1], "von Mises ground truth", "κ = 1, centred at π/2")
    figure.colorbar(density, ax=axes[0, :].tolist(), label="density along the curve", shrink=0.8, pad=0.015)
    figure.colorbar(speed, ax=axes[1, :].tolist(), label="speed, relative to its mean", shrink=0.8, pad=0.015)
    _latents(axes[1, 1], [(ml, curves[ml.name], _BLUE), (two_step, curves[two_step.name], _RED)], data)
    return figure


def _true_circle() -> tuple[Tensor, Tensor]:
    angle = torch.linspace(-math.pi, math.pi, 2001, dtype=torch.float64)
    return torch.stack([angle.cos(), angle.sin()], dim=1), von_mises_log_density(angle).exp()


def _coloured(axis: Any, points: Tensor, values: Tensor, scale: Normalize, colours: str) -> LineCollection:
    pairs = np.stack([points[:-1].numpy(), points[1:].numpy()], axis=1)
    lines = LineCollection(list(pairs), cmap=colours, norm=scale, linewidths=5, capstyle="round")
    lines.set_array(((values[1:] + values[:-1]) / 2).numpy())
    axis.add_collection(lines)
    ring = np.linspace(0, 2 * np.pi, 400)
    axis.plot(np.cos(ring), np.sin(ring), color=_MUTED, linewidth=0.8, linestyle=(0, (2, 3)), zorder=0)
    axis.set(xlim=(-1.35, 1.35), ylim=(-1.35, 1.35), aspect="equal")
    axis.set_xticks([-1, 0, 1])
    axis.set_yticks([-1, 0, 1])
    _plain(axis)
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
    axis.set_xlabel("z, centred and scaled to unit variance", color=_INK, fontsize=9)
    axis.yaxis.set_major_locator(MaxNLocator(4))
    _title(axis, "What h has to learn: f†(X)", "bars: encoded data · lines: p_h")
    axis.legend(frameon=False, fontsize=9, loc="upper right")
    _plain(axis)


def _title(axis: Any, title: str, subtitle: str) -> None:
    axis.set_title(f"{title}\n", fontsize=11, color=_INK, loc="left", fontweight="bold", pad=4)
    axis.text(0, 1.025, subtitle, transform=axis.transAxes, fontsize=9, color=_MUTED)


def _plain(axis: Any) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(colors=_MUTED, labelsize=8)


__all__ = ["CircleResult", "draw_circle"]
