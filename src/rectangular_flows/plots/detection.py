"""Histograms of scores of data from inside and outside, with how well each score separates them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.scale import FuncScale
from matplotlib.ticker import FixedLocator, MaxNLocator

from ..metrics.out_of_distribution import Detection
from .panels import NO_TICKS, Array, Bars, Panel, Rule, Scale, draw_panel
from .style import BLUE, DASHED, INK, MUTED, RED, legend_below, literal, sheet

_BINS = 60
_PAD = 0.03  # room at the ends, as a share of the axis
_WIDE = 40.0  # a range of more than this many spreads of the inside values is compressed


class Histogram(NamedTuple):
    """One score of three sets of points, and how well it separates inside from outside."""

    inside_train: Array
    inside_test: Array
    outside_test: Array
    found: Detection
    threshold: float | None = None
    """The value that keeps 95 % of the inside points; None for no line."""
    unit: str = ""


def histogram_panels(scores: Mapping[str, Histogram]) -> list[Panel]:
    """For each score the share of each set in 60 bins: inside test, outside test, and inside training as an outline.

    Infinite values, and the outermost half per cent of each set, count at the edges.
    """
    panels = []
    for name, values in scores.items():
        sets = (values.inside_test, values.outside_test, values.inside_train)
        edges, scale = _bins(sets, values.unit)
        heights = [np.histogram(np.clip(part, edges[0], edges[-1]), edges)[0] / len(part) for part in sets]
        looks = (BLUE, 0.5), (RED, 0.5), (INK, None)
        layers: list[Bars | Rule] = [Bars(bars, edges, *look) for bars, look in zip(heights, looks, strict=True)]
        if values.threshold is not None and edges[0] <= values.threshold <= edges[-1]:
            layers.append(Rule(values.threshold, vertical=True))
        stump = "" if values.found.accuracy is None else f" · stump {values.found.accuracy:.1%}"
        y = Scale(limits=(0, 1.1 * float(np.max(heights))), ticks=NO_TICKS)
        detail = f"AUROC {values.found.auroc:.3f}{stump}"
        panels.append(Panel(layers, name[0].upper() + name[1:], detail, scale, y))
    return panels


def draw_detection(scores: Mapping[str, Histogram], inside: str = "inside", outside: str = "outside") -> Figure:
    """Draw what :func:`histogram_panels` gives, and what the points inside and outside are called."""
    columns = min(3, len(scores))
    rows = -(-len(scores) // columns)
    figure = sheet(max(4.1 * columns, 6.0), 3.0 * rows + 0.45, h_pad=0.1, w_pad=0.08)
    draw_histograms(figure.subplots(rows, columns, squeeze=False), histogram_panels(scores))
    legend_below(figure, histogram_legend(inside, outside), min(4, 2 * columns))
    return figure


def draw_histograms(axes: npt.NDArray[Any], panels: Sequence[Panel]) -> None:
    """Draw each panel on one of the axes, and hide the axes that are left."""
    for axis, panel in zip(axes.ravel(), panels, strict=False):
        draw_panel(axis, panel)
    for axis in axes.ravel()[len(panels) :]:
        axis.set_visible(False)


def histogram_legend(inside: str, outside: str) -> list[Patch | Line2D]:
    """What the colours and lines of the panels mean."""
    inside, outside = literal(inside), literal(outside)
    return [
        Patch(facecolor=BLUE, alpha=0.5, label=f"{inside}, test"),
        Patch(facecolor="none", edgecolor=INK, linewidth=1, label=f"{inside}, training"),
        Patch(facecolor=RED, alpha=0.5, label=f"{outside}, test"),
        Line2D([], [], color=MUTED, linewidth=1, linestyle=DASHED, label=f"keeps 95 % of {inside}"),
    ]


def _bins(sets: Sequence[Array], unit: str) -> tuple[Array, Scale]:
    """Bins that are even on their axis: linear, logarithmic for a wide range of positive values, else compressed."""
    finite = [part[np.isfinite(part)] for part in sets]
    ends = [np.quantile(part, [0.005, 0.995]) for part in finite if len(part)] or [np.array([0.0, 1.0])]
    low, high = float(np.min(ends)), float(np.max(ends))
    if high <= low:
        low, high = low - 0.5, high + 0.5
    quartiles = np.quantile(finite[0] if len(finite[0]) else [low, low, high], [0.25, 0.5, 0.75])
    centre, spread = float(quartiles[1]), float(quartiles[2] - quartiles[0]) or (high - low)
    if low > 0 and high / low > _WIDE:
        ratio = (high / low) ** _PAD
        edges = np.geomspace(low / ratio, high * ratio, _BINS + 1)
        return edges, Scale(unit, (edges[0], edges[-1]), "log")
    if high - low <= _WIDE * spread:
        room = _PAD * (high - low)
        edges = np.linspace(low - room, high + room, _BINS + 1)
        return edges, Scale(unit, (edges[0], edges[-1]), ticks=MaxNLocator(5))

    def compress(value: npt.ArrayLike) -> Array:
        return np.arcsinh((np.asarray(value) - centre) / spread)

    def expand(value: npt.ArrayLike) -> Array:
        return centre + spread * np.sinh(np.asarray(value))

    edges = expand(np.linspace(compress(low) - 0.2, compress(high) + 0.2, _BINS + 1))
    ticks = FixedLocator(_round_places(edges[0], edges[-1], centre, spread))
    return edges, Scale(unit, (edges[0], edges[-1]), FuncScale(None, (compress, expand)), ticks, "{x:.3g}")


def _round_places(low: float, high: float, centre: float, spread: float) -> list[float]:
    """A few ticks for a compressed axis: at the centre, and powers of ten away from it."""
    unit = 10 ** np.floor(np.log10(spread))
    places = [np.round(centre / unit) * unit]
    for sign, reach in ((-1, centre - low), (1, high - centre)):
        last = np.log10(max(reach, spread))
        step = max(1.0, (last - np.log10(spread)) / 3)
        for power in np.arange(np.ceil(np.log10(spread)), last, step):
            unit = 10 ** np.floor(power)
            places.append(np.round((centre + sign * 10**power) / unit) * unit)
    return sorted({float(place) + 0.0 for place in places if low <= place <= high})
