"""What scores say of data from elsewhere: the paper's histograms, with how well each tells the two apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, NullFormatter

from ..metrics.out_of_distribution import Detection
from .style import BLUE, INK, MUTED, RED, plain, title

Array = npt.NDArray[np.float64]

_BINS = 60
_WIDE = 40.0  # of a range, in spreads of the inside values: then the axis is compressed


@dataclass(frozen=True, eq=False)
class Histogram:
    """One score of three sets of points, and how well it tells inside from outside.

    Attributes:
        inside_train: scores of points that the model was trained on.
        inside_test: of points of the same kind that it never saw.
        outside_test: of points from elsewhere.
        found: how well the score tells the last two apart.
        threshold: what keeps 95 % of the inside points; None for no line.
        unit: of the axis; empty for the name of the score.
    """

    inside_train: Array
    inside_test: Array
    outside_test: Array
    found: Detection
    threshold: float | None = None
    unit: str = ""


def draw_detection(scores: Mapping[str, Histogram], inside: str = "inside", outside: str = "outside") -> Figure:
    """A panel for each score: histograms of the three sets, with AUROC and the accuracy of the stump above.

    Infinite values, and the outermost half per cent of each set, are counted at the edges. An axis that would be
    empty but for its ends is compressed.

    Args:
        scores: name → values, in units of your own: whether high or low is inside shows in the picture.
        inside: what the in-distribution points are called.
        outside: what the others are called.
    """
    columns = min(3, len(scores))
    rows = -(-len(scores) // columns)
    size = (max(4.1 * columns, 6.0), 3.0 * rows + 0.45)
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(h_pad=0.1, w_pad=0.08), facecolor="white")
    axes = np.asarray(figure.subplots(rows, columns, squeeze=False)).ravel()
    for axis, (name, values) in zip(axes, scores.items(), strict=False):
        _panel(axis, name, values)
    for axis in axes[len(scores) :]:
        axis.set_visible(False)
    figure.legend(
        handles=_legend(inside, outside),
        loc="outside lower center",
        ncols=min(4, 2 * columns),
        frameon=False,
        fontsize=9,
    )
    return figure


def draw_directions(rows: Mapping[str, Mapping[str, Histogram]]) -> Figure:
    """A row for each pair of sets or model, a panel for each of its scores, as the paper's histograms.

    Args:
        rows: what a row is about, such as "Trained on mnist (inside)" → name of a score → its values.
    """
    columns = max(len(panels) for panels in rows.values())
    layout = ConstrainedLayoutEngine(h_pad=0.1, w_pad=0.12)
    figure = Figure(figsize=(4.0 * columns, 3.4 * len(rows) + 0.45), layout=layout, facecolor="white")
    parts = np.asarray(figure.subfigures(len(rows), 1, squeeze=False)).ravel()
    for part, (name, panels) in zip(parts, rows.items(), strict=True):
        part.suptitle(name, x=0.12 / (4.0 * columns), ha="left", fontsize=12, color=INK)
        axes = np.asarray(part.subplots(1, columns, squeeze=False)).ravel()
        for axis, (score, values) in zip(axes, panels.items(), strict=False):
            _panel(axis, score, values)
        for axis in axes[len(panels) :]:
            axis.set_visible(False)
    figure.legend(handles=_legend("inside", "outside"), loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return figure


def _legend(inside: str, outside: str) -> list[Patch | Line2D]:
    return [
        Patch(facecolor=BLUE, alpha=0.5, label=f"{inside}, test"),
        Patch(facecolor="none", edgecolor=INK, linewidth=1, label=f"{inside}, training"),
        Patch(facecolor=RED, alpha=0.5, label=f"{outside}, test"),
        Line2D([], [], color=MUTED, linewidth=1, linestyle=(0, (4, 3)), label=f"keeps 95 % of {inside}"),
    ]


def _panel(axis: Any, name: str, values: Histogram) -> None:
    sets = (values.inside_train, values.inside_test, values.outside_test)
    low, high = _range(sets)
    bins = _scaled(axis, sets, low, high)
    train, test, outside = (np.clip(part, bins[0], bins[-1]) for part in sets)
    for part, colour in ((test, BLUE), (outside, RED)):
        axis.hist(part, bins, weights=np.full(len(part), 1 / len(part)), color=colour, alpha=0.5, linewidth=0)
    axis.hist(train, bins, weights=np.full(len(train), 1 / len(train)), histtype="step", color=INK, linewidth=0.9)
    if values.threshold is not None and bins[0] <= values.threshold <= bins[-1]:
        axis.axvline(values.threshold, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    axis.set_xlim(bins[0], bins[-1])
    axis.set_ylim(0, 1.05 * axis.get_ylim()[1])
    axis.set_yticks([])
    axis.spines["left"].set_visible(False)
    plain(axis)
    if values.unit:
        axis.set_xlabel(values.unit, color=INK, fontsize=9)
    stump = "" if values.found.accuracy is None else f" · stump {values.found.accuracy:.1%}"
    title(axis, name[0].upper() + name[1:], f"AUROC {values.found.auroc:.3f}{stump}")


def _range(sets: tuple[Array, Array, Array]) -> tuple[float, float]:
    ends = [np.quantile(part[np.isfinite(part)], [0.005, 0.995]) for part in sets if np.isfinite(part).any()]
    if not ends:
        return 0.0, 1.0
    low, high = min(float(e[0]) for e in ends), max(float(e[1]) for e in ends)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _scaled(axis: Any, sets: tuple[Array, Array, Array], low: float, high: float) -> Array:
    """The edges of the bins, even on the axis: plain, logarithmic for wide positive values, else compressed."""
    inside = sets[1][np.isfinite(sets[1])]
    quartiles = np.quantile(inside, [0.25, 0.5, 0.75]) if len(inside) else np.array([low, low, high])
    spread = float(quartiles[2] - quartiles[0]) or (high - low)
    pad = 0.03
    if low > 0 and high / low > _WIDE:
        axis.set_xscale("log")
        axis.xaxis.set_minor_formatter(NullFormatter())
        ratio = (high / low) ** pad
        return np.geomspace(low / ratio, high * ratio, _BINS + 1)
    if high - low <= _WIDE * spread:
        axis.xaxis.set_major_locator(MaxNLocator(5))
        return np.linspace(low - pad * (high - low), high + pad * (high - low), _BINS + 1)
    centre = float(quartiles[1])
    axis.set_xscale(
        "function",
        functions=(
            lambda v: np.arcsinh((np.asarray(v) - centre) / spread),
            lambda u: centre + spread * np.sinh(np.asarray(u)),
        ),
    )
    ends = np.arcsinh((np.array([low, high]) - centre) / spread)
    edges = centre + spread * np.sinh(np.linspace(ends[0] - 0.2, ends[1] + 0.2, _BINS + 1))
    axis.set_xticks(_round_places(edges[0], edges[-1], centre, spread))
    axis.xaxis.set_major_formatter(lambda v, _: f"{v:.3g}")
    return edges


def _round_places(low: float, high: float, centre: float, spread: float) -> list[float]:
    """Few ticks for a compressed axis: near the centre, and powers of ten away from it."""
    unit = 10 ** np.floor(np.log10(spread))
    places = [float(np.round(centre / unit) * unit)]
    for sign, reach in ((-1.0, centre - low), (1.0, high - centre)):
        power = np.log10(max(reach, spread))
        step = max(1.0, (power - np.log10(spread)) / 3)
        distances = 10 ** np.arange(np.ceil(np.log10(spread)) + 0.0, power, step)
        for distance in distances:
            value = centre + sign * float(distance)
            nice = 10 ** np.floor(np.log10(distance))
            places.append(float(np.round(value / nice) * nice))
    return sorted({place for place in places if low <= place <= high})


__all__ = ["Histogram", "draw_detection", "draw_directions"]
