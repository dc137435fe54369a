"""Line charts, such as a loss against epochs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .panels import NO_TICKS, Dots, Line, Note, Panel, Scale, draw_panel
from .style import BLUE, MUTED, PALE, RED, sheet

_COLOURS = (BLUE, RED, "#2a7f62", "#8447a0", "#9a6200", "#56616e")
_LARGEST = 1e300  # differences of larger values overflow


class Curve(NamedTuple):
    """One line of a chart: y against x."""

    label: str
    x: Sequence[float]
    y: Sequence[float]


class Chart(NamedTuple):
    """A line chart, with a linear or a logarithmic y axis."""

    curves: Sequence[Curve]
    x_label: str
    y_label: str
    title: str
    log_y: bool = False


def curve_data(chart: Chart) -> list[Line]:
    """The lines of a chart. Values that are not finite make gaps, and on a logarithmic axis those that are not positive."""
    lines = []
    for i, curve in enumerate(chart.curves):
        x, y = np.array(curve.x, dtype=float), np.array(curve.y, dtype=float)
        shown = (np.abs(x) < _LARGEST) & (np.abs(y) < _LARGEST) & ((y > 1 / _LARGEST) | (not chart.log_y))
        y[~shown] = np.nan
        label = curve.label if shown.any() else f"{curve.label} (no data yet)"
        lines.append(Line(x, y, _COLOURS[i % len(_COLOURS)], label))
    return lines


def describe_chart(chart: Chart) -> str:
    """What a chart shows, for readers who cannot see it."""
    parts = []
    for line in curve_data(chart):
        values = line.y[~np.isnan(line.y)]
        parts.append(f"{line.label}: from {values[0]:.4g} to {values[-1]:.4g}" if len(values) else line.label)
    return f"Line chart of {chart.y_label} against {chart.x_label}. {'; '.join(parts) or 'No data yet'}."


def draw_curves(chart: Chart) -> Figure:
    """Draw a chart, with a legend if it has several curves; 'no data yet' where there is nothing to draw."""
    lines = curve_data(chart)
    figure = sheet(9.4, 3.3)
    axis = figure.subplots()
    x = Scale(chart.x_label, ticks=MaxNLocator(8, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    y = Scale(chart.y_label, kind="log" if chart.log_y else "linear")
    if all(np.isnan(line.y).all() for line in lines):
        note = Note(0.5, 0.5, "no data yet", {"color": MUTED, "fontsize": 10, "ha": "center"})
        x, y = (Scale(scale.label, (0, 1), ticks=NO_TICKS) for scale in (x, y))
        draw_panel(axis, Panel([note], chart.title, x=x, y=y))
        return figure
    legend = "best" if len(lines) > 1 else ""
    draw_panel(axis, Panel([*lines, *map(_lone_points, lines)], chart.title, x=x, y=y, legend=legend))
    axis.grid(axis="y", color=PALE, linewidth=0.6)
    return figure


def _lone_points(line: Line) -> Dots:
    """The points of a line with gaps on both sides, which a line does not show."""
    gap = np.pad(np.isnan(line.y), 1, constant_values=True)
    alone = ~gap[1:-1] & gap[:-2] & gap[2:]
    return Dots(line.x[alone], line.y[alone], line.colour, {"s": 16})
