"""The scores of every run on the benchmark tables, beside the published ones and the floors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, LogLocator

from ..plots.panels import Dots, Layer, Line, Note, Panel, Rule, Scale, draw_panel
from ..plots.style import BLUE, DASHED, INK, MUTED, PALE, RED, legend_below, sheet

_PUBLISHED = "#8a6bb1"
_SCORES = {"fid_like": "FID-like score", "sliced_wasserstein": "Sliced Wasserstein-2, squared"}


@dataclass(frozen=True)
class Bars:
    """The scores of one method on one data set, a value for each seed."""

    data: str
    method: str
    settings: str
    fid_like: Sequence[float]
    sliced_wasserstein: Sequence[float]


def score_panels(
    groups: Sequence[Bars],
    floors: Mapping[str, tuple[float, float]],
    published: Mapping[str, Mapping[str, tuple[float, float]]],
) -> list[list[Panel]]:
    """For each data set two panels: FID-like scores, and squared sliced Wasserstein distances.

    Args:
        groups: what to show.
        floors: for each data set the two scores of real rows against real rows.
        published: for each data set and method, mean and standard error of the published FID-like score.
    """
    found = []
    for name in dict.fromkeys(group.data for group in groups):
        mine = [group for group in groups if group.data == name]
        methods = list(dict.fromkeys(group.method for group in mine))
        panels = []
        for floor, (field, text) in zip(floors[name], _SCORES.items(), strict=True):
            theirs = published[name] if field == "fid_like" else {}
            shown = [float(np.median(getattr(group, field))) for group in mine] + [mean for mean, _ in theirs.values()]
            layers: list[Layer] = [Rule(floor)]
            for group in mine:
                layers += _group_layers(group, getattr(group, field), methods.index(group.method), 4 * max(shown))
            for i, method in enumerate(methods):
                if method not in theirs:
                    continue
                mean, error = theirs[method]
                bar = np.array([mean - error, mean, mean + error])
                diamond = {"linewidth": 1, "marker": "D", "markersize": 5, "markevery": [1], "mfc": "white"}
                layers.append(Line(np.full(3, i + 0.26), bar, INK, style=diamond))
            x = Scale(limits=(-0.5, len(methods) - 0.5), ticks=FixedLocator(range(len(methods))), format=methods)
            y = Scale(kind="log", ticks=LogLocator(10, (1, 2, 5)), format="{x:g}")
            detail = "dots: seeds · line: median · ▲ off the axis"
            panels.append(Panel(layers, f"{name.upper()}: {text}", detail, x, y))
        found.append(panels)
    return found


def _group_layers(group: Bars, scores: Sequence[float], number: int, top: float) -> list[Layer]:
    """A dot for each seed and a line at their median; scores above ``top`` are marked there, with their values."""
    ours = group.settings == "ours"
    colour = _PUBLISHED if not ours else RED if group.method == "two-step" else BLUE
    place, values = number + (0.0 if ours else -0.18), np.asarray(scores, dtype=np.float64)
    x = place + (np.linspace(-0.07, 0.07, len(values)) if len(values) > 1 else np.zeros(1))
    off = values > top
    marks = {"s": 22, "marker": "^", "clip_on": False}
    return [
        Dots(x[~off], values[~off], colour, {"s": 16, "alpha": 0.55}),
        Line(place + np.array([-0.14, 0.14]), np.full(2, np.median(values)), colour, style={"linewidth": 2.2}),
        Dots(x[off], np.full(off.sum(), top), colour, marks),
        *(
            Note(a, top, f"   {b:,.0f}", {"color": colour, "fontsize": 7, "va": "center"})
            for a, b in zip(x[off], values[off], strict=True)
        ),
    ]


def draw_tabular(
    groups: Sequence[Bars],
    floors: Mapping[str, tuple[float, float]],
    published: Mapping[str, Mapping[str, tuple[float, float]]],
) -> Figure:
    """Draw what :func:`score_panels` gives: one column a data set."""
    found = score_panels(groups, floors, published)
    figure = sheet(0.6 + 4.2 * len(found), 6.6)
    for column, panels in zip(figure.subplots(2, len(found), squeeze=False).T, found, strict=True):
        for axis, panel in zip(column, panels, strict=True):
            draw_panel(axis, panel)
            axis.grid(axis="y", color=PALE, linewidth=0.6)
            axis.set_axisbelow(True)
    dot: dict[str, Any] = {"marker": "o", "linestyle": "", "markersize": 6}
    handles = [
        Line2D([], [], color=BLUE, label="maximum likelihood, our settings", **dot),
        Line2D([], [], color=RED, label="two-step, our settings", **dot),
        Line2D([], [], color=_PUBLISHED, label="published settings, run here", **dot),
        Line2D([], [], color=INK, marker="D", mfc="white", linestyle="", label="published"),
        Line2D([], [], color=MUTED, linestyle=DASHED, linewidth=1, label="real rows against real rows"),
    ]
    if all(group.settings == "ours" for group in groups):
        del handles[2]
    legend_below(figure, handles, min(5, 2 * len(found)))
    return figure
