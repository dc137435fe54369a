"""Pictures of a flow on a table: data beside samples, coordinates on the manifold, distances from it, stretching."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from ..manifold import RectangularFlow
from .style import BLUE, INK, RED, plain, title

_MOST_COLUMNS = 6
_FEW_POINTS = 300
_MOST_POINTS = 3000


def draw_pairs(data: Tensor, samples: Tensor, columns: Sequence[str]) -> Figure:
    """Marginals on the diagonal, pairs of columns off it: data below (blue), samples above (red).

    Args:
        data: real rows, (N, D).
        samples: rows from the model, (M, D).
        columns: names; of more than six the ones of largest variance among the data are shown.
    """
    shown = _chosen(data)
    real, drawn = data[:, shown].numpy(), samples[:, shown].numpy()
    n = len(shown)
    figure = Figure(figsize=(max(1.9 * n, 7.0) + 0.6, 1.9 * n + 0.6), layout="constrained", facecolor="white")
    axes = figure.subplots(n, n, squeeze=False)
    low, high = np.quantile(real, 0.002, axis=0), np.quantile(real, 0.998, axis=0)
    pad = 0.08 * (high - low) + 1e-12
    limits = list(zip(low - pad, high + pad, strict=True))
    for i in range(n):
        for j in range(n):
            axis = axes[i, j]
            axis.set_xlim(*limits[j])
            if i == j:
                bins = np.linspace(*limits[i], int(np.clip(2 * len(real) ** 0.5, 8, 50)))
                axis.hist(real[:, i], bins, density=True, color=BLUE, alpha=0.35, label="data")
                axis.hist(drawn[:, i], bins, density=True, histtype="step", color=RED, linewidth=1.4, label="samples")
                axis.set_yticks([])
            else:
                rows, colour = (real, BLUE) if i > j else (drawn, RED)
                points = rows[:_MOST_POINTS]
                few = len(points) < _FEW_POINTS
                size, alpha = (10, 0.6) if few else (3, 0.25)
                axis.scatter(points[:, j], points[:, i], s=size, color=colour, alpha=alpha, linewidths=0)
                axis.set_ylim(*limits[i])
            plain(axis)
            axis.tick_params(labelbottom=i == n - 1, labelleft=j == 0 and i > 0, labelsize=7)
            if i == n - 1:
                axis.set_xlabel(_short(columns[shown[j]]), color=INK, fontsize=9)
            if j == 0:
                axis.set_ylabel(_short(columns[shown[i]]), color=INK, fontsize=9)
    axes[0, 0].legend(frameon=False, fontsize=8, loc="upper right")
    return figure


@torch.no_grad()
def draw_manifold(flow: RectangularFlow, rows: Tensor) -> Figure:
    """Three panels: coordinates coloured by density; distances from the manifold; singular values of the Jacobian."""
    rows = rows[:_MOST_POINTS]
    z, log_density = flow.encode(rows), flow.log_prob(rows)
    figure = Figure(figsize=(12, 3.9), layout="constrained", facecolor="white")
    axes = figure.subplots(1, 3)
    _coordinates(axes[0], z, log_density, figure)
    error = flow.reconstruction_error(rows).sqrt().numpy()
    positive = error[error > 0]
    low = np.log10(max(float(np.quantile(positive, 0.001)), 1e-12)) if len(positive) else -12
    high = np.log10(float(error.max()) + 1e-12)
    if high - low > 1:
        axes[1].hist(error, np.logspace(low, high, 50), color=BLUE, alpha=0.6)
        axes[1].set_xscale("log")
    else:
        axes[1].hist(error, np.linspace(0, 10**high, 50), color=BLUE, alpha=0.6)
    axes[1].set_xlabel("distance from the manifold, units of the data", color=INK, fontsize=9)
    title(axes[1], "How far rows are from the manifold", f"median {float(np.median(error)):.3g}")
    values = flow.singular_values(z[:1000]).numpy()
    axes[2].boxplot(np.log10(values), showfliers=False, medianprops={"color": RED}, boxprops={"color": BLUE})
    axes[2].set_xlabel("direction on the manifold", color=INK, fontsize=9)
    axes[2].set_ylabel("log₁₀ singular value of J", color=INK, fontsize=9)
    condition = float(np.median(values[:, 0] / values[:, -1]))
    title(axes[2], "How f stretches", f"median condition number {condition:.3g}")
    for axis in axes[1:]:
        plain(axis)
    return figure


def _coordinates(axis: Any, z: Tensor, log_density: Tensor, figure: Figure) -> None:
    points = z.numpy()
    if points.shape[1] == 1:
        axis.hist(points[:, 0], 60, density=True, color=BLUE, alpha=0.6)
        axis.set_xlabel("z", color=INK, fontsize=9)
        title(axis, "Coordinate on the manifold", "of the data")
    else:
        low, high = np.quantile(log_density.numpy(), [0.02, 0.98])
        dots = axis.scatter(points[:, 0], points[:, 1], c=log_density.numpy(), s=5, vmin=low, vmax=high, linewidths=0)
        figure.colorbar(dots, ax=axis, label="log-density", shrink=0.85)
        axis.set_xlabel("z₁", color=INK, fontsize=9)
        axis.set_ylabel("z₂", color=INK, fontsize=9)
        more = f" (first two of {points.shape[1]})" if points.shape[1] > 2 else ""
        title(axis, "Coordinates on the manifold", f"of the data, coloured by log-density{more}")
    plain(axis)


def _chosen(data: Tensor) -> list[int]:
    if data.shape[1] <= _MOST_COLUMNS:
        return list(range(data.shape[1]))
    return sorted(data.var(dim=0).argsort(descending=True)[:_MOST_COLUMNS].tolist())


def _short(name: str) -> str:
    return name if len(name) <= 18 else name[:17] + "…"


__all__ = ["draw_manifold", "draw_pairs"]
