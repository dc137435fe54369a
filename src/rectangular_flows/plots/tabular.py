"""The scores of every run on the benchmark tables, beside the published ones and the floors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from .style import BLUE, INK, MUTED, RED, plain, title

_COLOURS = {"ours": BLUE, "published": "#8a6bb1"}


@dataclass(frozen=True)
class Bars:
    """The scores of one method on one data set, a value for each seed."""

    data: str
    method: str
    settings: str
    fid_like: Sequence[float]
    sliced_wasserstein: Sequence[float]


def draw_tabular(
    groups: Sequence[Bars],
    floors: Mapping[str, tuple[float, float]],
    published: Mapping[str, Mapping[str, tuple[float, float]]],
) -> Figure:
    """One column a data set; above, FID-like scores, below, squared sliced Wasserstein distances; logarithmic.

    Runs that broke down, beyond the axis, are marked at its end with their scores.

    Args:
        groups: what to show.
        floors: for each data set the two scores of real rows against real rows.
        published: for each data set and method, mean and standard error of the published FID-like score.
    """
    names = list(dict.fromkeys(group.data for group in groups))
    figure = Figure(figsize=(0.6 + 4.2 * len(names), 6.6), layout="constrained")
    axes = np.asarray(figure.subplots(2, len(names), squeeze=False))
    for column, name in enumerate(names):
        mine = [group for group in groups if group.data == name]
        methods = list(dict.fromkeys(group.method for group in mine))
        for row, (field, text) in enumerate(
            (("fid_like", "FID-like score"), ("sliced_wasserstein", "Sliced Wasserstein-2, squared"))
        ):
            axis = axes[row, column]
            shown = [float(np.median(getattr(group, field))) for group in mine]
            top = 4 * max(*shown, *([mean for mean, _ in published[name].values()] if row == 0 else [0.0]))
            for group in mine:
                values = np.asarray(getattr(group, field))
                place = methods.index(group.method) + (0.0 if group.settings == "ours" else -0.18)
                colour = RED if group.method == "two-step" and group.settings == "ours" else _COLOURS[group.settings]
                spread = np.linspace(-0.07, 0.07, len(values)) if len(values) > 1 else np.zeros(1)
                seen = values <= top
                axis.scatter(
                    (place + spread)[seen], values[seen], s=16, color=colour, alpha=0.55, linewidths=0, zorder=3
                )
                axis.hlines(np.median(values), place - 0.14, place + 0.14, color=colour, linewidth=2.2, zorder=4)
                for x, value in zip((place + spread)[~seen], values[~seen], strict=True):
                    axis.scatter(x, top, s=22, marker="^", color=colour, linewidths=0, zorder=3, clip_on=False)
                    axis.annotate(
                        f"{value:,.0f}", (x, top), (5, -3), textcoords="offset points", fontsize=7, color=colour
                    )
            if row == 0:
                for i, method in enumerate(methods):
                    mean, error = published[name][method]
                    style: dict[str, Any] = {
                        "fmt": "D",
                        "ms": 5,
                        "mfc": "white",
                        "mec": INK,
                        "ecolor": INK,
                        "elinewidth": 1,
                    }
                    axis.errorbar(i + 0.26, mean, error, zorder=3, **style)
            axis.axhline(floors[name][row], color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
            axis.set_yscale("log")
            axis.yaxis.set_major_locator(LogLocator(10, (1, 2, 5)))
            axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axis.yaxis.set_minor_formatter(NullFormatter())
            axis.set_xlim(-0.5, len(methods) - 0.5)
            axis.set_xticks(range(len(methods)), methods)
            axis.grid(axis="y", color="#e6e8eb", linewidth=0.6)
            axis.set_axisbelow(True)
            plain(axis)
            title(axis, f"{name.upper()}: {text}", "dots: seeds · line: median · ▲ off the axis")
    figure.legend(
        handles=_legend(groups), loc="outside lower center", ncols=min(5, 2 * len(names)), frameon=False, fontsize=8
    )
    return figure


def _legend(groups: Sequence[Bars]) -> list[Line2D]:
    dot: dict[str, Any] = {"marker": "o", "linestyle": "", "markersize": 6}
    handles = [
        Line2D([], [], color=BLUE, label="maximum likelihood, our settings", **dot),
        Line2D([], [], color=RED, label="two-step, our settings", **dot),
    ]
    if any(group.settings == "published" for group in groups):
        handles.append(Line2D([], [], color=_COLOURS["published"], label="published settings, run here", **dot))
    return [
        *handles,
        Line2D([], [], color=INK, marker="D", mfc="white", linestyle="", label="published"),
        Line2D([], [], color=MUTED, linestyle=(0, (4, 3)), linewidth=1, label="real rows against real rows"),
    ]


__all__ = ["Bars", "draw_tabular"]
