"""Panels: the numbers that a figure shows, apart from drawing them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.ticker import FixedFormatter, Locator, NullFormatter, NullLocator
from numpy.typing import NDArray

from .style import DASHED, INK, MUTED, literal, plain, title

Array: TypeAlias = NDArray[np.float64]
Style: TypeAlias = Mapping[str, Any]  # of matplotlib's artists

NO_TICKS = NullLocator()
_PLAIN: Style = MappingProxyType({})


class Line(NamedTuple):
    """y against x; NaN makes a gap."""

    x: Array
    y: Array
    colour: str
    label: str = ""
    style: Style = _PLAIN


class Dots(NamedTuple):
    """Points, in one colour or coloured by ``values`` between two ``limits``."""

    x: Array
    y: Array
    colour: str = ""
    style: Style = _PLAIN
    values: Array | None = None
    limits: tuple[float, float] | None = None


class Bars(NamedTuple):
    """A histogram, filled, or as an outline for want of an ``alpha``."""

    heights: Array
    edges: Array
    colour: str
    alpha: float | None = 0.6


class Rule(NamedTuple):
    """A line across the panel, at a height, with a band of ``error`` around it, or at an x; grey if it has no colour."""

    at: float
    label: str = ""
    colour: str = ""
    vertical: bool = False
    error: float = 0.0


class Boxes(NamedTuple):
    """A box plot of each column of ``values``, (N, k)."""

    values: Array
    colour: str
    median: str


class Ribbon(NamedTuple):
    """A curve in the plane, (N, 2), coloured by ``values`` on a scale from 0 to ``top``."""

    points: Array
    values: Array
    top: float
    colours: str


class Note(NamedTuple):
    """Text at a point."""

    x: float
    y: float
    text: str
    style: Style = _PLAIN


Layer: TypeAlias = Line | Dots | Bars | Rule | Boxes | Ribbon | Note


@dataclass(frozen=True)
class Scale:
    """One axis of a panel: 'linear', 'log' or a scale of matplotlib; a format of tick labels, or the labels themselves."""

    label: str = ""
    limits: tuple[float, float] | None = None
    kind: Any = "linear"
    ticks: Locator | None = None
    format: str | Sequence[str] = ""


@dataclass(frozen=True)
class Panel:
    """What one pair of axes shows; ``legend`` is its place, such as 'upper right', and empty for none."""

    layers: Sequence[Layer]
    title: str = ""
    detail: str = ""
    x: Scale = Scale()
    y: Scale = Scale()
    equal: bool = False
    legend: Any = ""


def draw_panel(axis: Axes, panel: Panel) -> list[Any]:
    """Draw a panel and nothing else; returns matplotlib's artists, one for each layer."""
    artists = [_draw_layer(axis, layer) for layer in panel.layers]
    for name, spine, scale in (("x", "bottom", panel.x), ("y", "left", panel.y)):
        part = getattr(axis, f"{name}axis")
        if scale.kind != "linear":
            axis.set(**{f"{name}scale": scale.kind})
        if scale.limits is not None:
            axis.set(**{f"{name}lim": scale.limits})
        if scale.ticks is not None:
            part.set_major_locator(scale.ticks)
            axis.spines[spine].set_visible(scale.ticks is not NO_TICKS)
        if scale.format:
            part.set_major_formatter(scale.format if isinstance(scale.format, str) else FixedFormatter(scale.format))
            part.set_minor_formatter(NullFormatter())
        part.set_label_text(literal(scale.label), color=INK, fontsize=9)
    if panel.equal:
        axis.set_aspect("equal")
    if panel.legend:
        both = zip(panel.layers, artists, strict=True)
        lines = [(artist, layer.label) for layer, artist in both if isinstance(layer, Line | Rule) and layer.label]
        handles, labels = [artist for artist, _ in lines], [literal(label) for _, label in lines]
        axis.legend(handles, labels, loc=panel.legend, frameon=False, fontsize=8)
    title(axis, panel.title, panel.detail)
    plain(axis)
    return artists


def _draw_layer(axis: Axes, layer: Layer) -> Any:
    match layer:
        case Line():
            return axis.plot(layer.x, layer.y, color=layer.colour, **layer.style)[0]
        case Dots(values=None):
            return axis.scatter(layer.x, layer.y, color=layer.colour, linewidths=0, **layer.style)
        case Dots():
            low, high = layer.limits or (None, None)
            return axis.scatter(layer.x, layer.y, c=layer.values, vmin=low, vmax=high, linewidths=0, **layer.style)
        case Bars(alpha=None):
            return axis.stairs(layer.heights, layer.edges, color=layer.colour, linewidth=1.1)
        case Bars():
            return axis.stairs(layer.heights, layer.edges, fill=True, color=layer.colour, alpha=layer.alpha)
        case Rule():
            style = {"color": layer.colour} if layer.colour else {"color": MUTED, "linestyle": DASHED, "linewidth": 1}
            if layer.error:
                low, high = layer.at - layer.error, layer.at + layer.error
                axis.axhspan(low, high, color=layer.colour, alpha=0.15, linewidth=0)
            draw = axis.axvline if layer.vertical else axis.axhline
            return draw(layer.at, zorder=1, **style)
        case Boxes():
            colours: Any = {"medianprops": {"color": layer.median}, "boxprops": {"color": layer.colour}}
            return axis.boxplot(layer.values, showfliers=False, manage_ticks=False, **colours)
        case Ribbon():
            segments = list(np.stack([layer.points[:-1], layer.points[1:]], axis=1))
            look: Any = {"cmap": layer.colours, "norm": Normalize(0, layer.top), "linewidths": 5}
            lines = LineCollection(segments, capstyle="round", **look)
            lines.set_array((layer.values[1:] + layer.values[:-1]) / 2)
            return axis.add_collection(lines)
        case Note():
            return axis.text(layer.x, layer.y, literal(layer.text), **{"fontsize": 8, "color": INK, **layer.style})
