"""Estimates of the dimension of the manifold that data lie on."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..metrics.dimension import Dimensions
from .panels import Array, Bars, Layer, Line, Panel, Rule, Scale, draw_panel
from .style import BLUE, INK, RED, sheet


def dimension_lines(found: Dimensions) -> Panel:
    """The nearest-neighbour estimates at several scales, and the suggestion."""
    neighbours, likelihood = np.array(found.mle.curve).T
    nearest = found.two_nn
    layers: list[Layer] = [
        Line(neighbours, likelihood, BLUE, "maximum likelihood", {"marker": "o", "markersize": 4}),
        Rule(nearest.value, "two nearest neighbours", RED, error=nearest.standard_error),
        Rule(found.suggestion, f"suggestion: {found.suggestion}"),
    ]
    top = 1.15 * max(found.suggestion, nearest.value + nearest.standard_error, *likelihood)
    detail = f"{found.rows:,} rows, standardised columns"
    x = Scale("neighbours k", ticks=MaxNLocator(integer=True))
    return Panel(layers, "Intrinsic dimension", detail, x, Scale(limits=(0, top)), legend="lower right")


def variance_panel(found: Dimensions, spectrum: Array) -> Panel:
    """The share of the variance of each principal component, and their sum."""
    number = np.arange(1.0, len(spectrum) + 1)
    heights = np.stack([spectrum, np.zeros_like(spectrum)], axis=1).ravel()[:-1]  # with gaps between the bars
    bars = Bars(heights, (number[:, None] + [-0.4, 0.4]).ravel(), BLUE)
    line = Line(number, np.cumsum(spectrum), INK, style={"marker": "o", "markersize": 3, "linewidth": 1})
    detail = f"bars: each · line: cumulative · 95 % with {found.pca_95}"
    x = Scale("principal component", ticks=MaxNLocator(integer=True))
    return Panel([bars, line, Rule(0.95)], "Share of the variance", detail, x)


def draw_dimension(found: Dimensions, spectrum: Array) -> Figure:
    """The estimates, and the spectrum of the covariance: explained variance ratios of the principal components, (D,)."""
    figure = sheet(10, 3.9)
    left, right = figure.subplots(1, 2)
    draw_panel(left, dimension_lines(found))
    draw_panel(right, variance_panel(found, spectrum))
    return figure
