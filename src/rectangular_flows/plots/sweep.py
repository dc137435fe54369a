"""The runs of a sweep: a row for each combination of settings, a dot for each run, a bar for the mean."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.figure import Figure

from ..runs.sweep import NUMBERS, Result, groups_of, without_seed
from .style import BLUE, INK, MUTED, PALE, literal, plain, sheet, title

_TITLES = {
    "objective": ("Objective", "what each run was judged by"),
    "nll": ("Negative log-likelihood", "on the manifold, nats"),
    "reconstruction": ("Reconstruction error", "squared, units of the model"),
    "seconds": ("Seconds", "of training"),
}


def draw_sweep(results: Sequence[Result]) -> Figure:
    """One panel for each number of the runs that have any."""
    groups = groups_of(results)
    labels = [", ".join(f"{name} {value}" for name, value in group.values.items()) or "all" for group in groups]
    members = [[r.numbers for r in results if r.numbers and without_seed(r) == group.values] for group in groups]
    columns = [_TITLES[name] for name in NUMBERS]
    if "latent_dim" in groups[0].values:  # densities of different kinds
        columns[1] = (columns[1][0], "nats; compare within a latent_dim")
    values = [[[numbers[name] for numbers in runs] for runs in members] for name in NUMBERS]
    figure = sheet(2.2 + 3.1 * len(columns), 1.3 + 0.32 * len(labels))
    axes = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    for axis, (text, detail), rows in zip(axes, columns, values, strict=True):
        for i, runs in enumerate(rows):
            finite = [value for value in runs if math.isfinite(value)]
            axis.axhline(i, color=PALE, linewidth=0.8, zorder=0)
            axis.scatter(finite, [i] * len(finite), s=22, color=BLUE, alpha=0.6, linewidths=0)
            if finite:
                axis.scatter([sum(finite) / len(finite)], [i], s=150, marker="|", color=INK, linewidths=2)
            else:
                axis.text(
                    0.5, i, "no number", transform=axis.get_yaxis_transform(), ha="center", va="center", color=MUTED
                )
        title(axis, text, detail)
        plain(axis)
        axis.set_ylim(len(labels) - 0.5, -0.5)
    axes[0].set_yticks(range(len(labels)), [literal(label) for label in labels], color=INK)
    return figure
