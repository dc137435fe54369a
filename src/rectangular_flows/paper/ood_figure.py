"""The paper's histograms of images from inside and outside."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from ..plots.detection import Histogram, draw_histograms, histogram_legend, histogram_panels
from ..plots.style import INK, legend_below, sheet


def draw_directions(rows: Mapping[str, Mapping[str, Histogram]]) -> Figure:
    """A row for each pair of sets, a panel for each score.

    Args:
        rows: heading of the row, such as "Trained on mnist (inside)" → name of a score → its values.
    """
    columns = max(len(scores) for scores in rows.values())
    figure = sheet(4.0 * columns, 3.4 * len(rows) + 0.45, h_pad=0.1, w_pad=0.12)
    parts = figure.subfigures(len(rows), 1, squeeze=False).ravel()
    for part, (heading, scores) in zip(parts, rows.items(), strict=True):
        part.suptitle(heading, x=0.12 / (4.0 * columns), ha="left", fontsize=12, color=INK)
        draw_histograms(part.subplots(1, columns, squeeze=False), histogram_panels(scores))
    legend_below(figure, histogram_legend("inside", "outside"), 4)
    return figure
