"""What data say about the dimension of their manifold, in one picture."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from ..metrics.dimension import Dimensions
from .style import BLUE, INK, MUTED, RED, plain, title


def draw_dimension(found: Dimensions, spectrum: NDArray[np.float64]) -> Figure:
    """Two panels: the nearest-neighbour estimates and how they hang on the scale; the spectrum of the covariance.

    Args:
        found: the estimates.
        spectrum: explained variance ratios of the principal components, (D,).
    """
    figure = Figure(figsize=(10, 3.9), layout="constrained", facecolor="white")
    left, right = figure.subplots(1, 2)
    neighbours = [k for k, _ in found.mle.curve]
    left.plot(
        neighbours, [value for _, value in found.mle.curve], "o-", color=BLUE, markersize=4, label="maximum likelihood"
    )
    left.axhline(found.two_nn.value, color=RED, label="two nearest neighbours")
    band = found.two_nn.standard_error
    left.axhspan(found.two_nn.value - band, found.two_nn.value + band, color=RED, alpha=0.15, linewidth=0)
    left.axhline(
        found.suggestion, color=MUTED, linestyle=(0, (4, 3)), linewidth=1, label=f"suggestion: {found.suggestion}"
    )
    left.set_ylim(0, 1.15 * max(found.suggestion, found.two_nn.value + band, *(value for _, value in found.mle.curve)))
    left.set_xlabel("neighbours k", color=INK, fontsize=9)
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    left.legend(frameon=False, fontsize=8, loc="lower right")
    title(left, "Intrinsic dimension", f"{found.rows:,} rows, standardised columns")
    number = np.arange(1, len(spectrum) + 1)
    right.bar(number, spectrum, color=BLUE, alpha=0.6)
    right.plot(number, np.cumsum(spectrum), "o-", color=INK, markersize=3, linewidth=1)
    right.axhline(0.95, color=MUTED, linestyle=(0, (4, 3)), linewidth=1)
    right.set_xlabel("principal component", color=INK, fontsize=9)
    right.xaxis.set_major_locator(MaxNLocator(integer=True))
    title(right, "Share of the variance", f"bars: each · line: together · 95 % at {found.pca_95}")
    for axis in (left, right):
        plain(axis)
    return figure


__all__ = ["draw_dimension"]
