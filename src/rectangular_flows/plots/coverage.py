"""A model beside a known truth: what its regions of highest density hold, and where its samples fall."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from ..metrics.coverage import LEVELS, Coverage, uniform_distance
from .panels import Bars, Dots, Layer, Line, Note, Panel, Rule, Scale, draw_panel
from .style import BLUE, DASHED, INK, MUTED, sheet

_BINS = 20


def region_panel(found: Coverage) -> Panel:
    """The share of test rows in the model's regions of highest density, against the share that they should hold."""
    nominal = np.linspace(0, 1, 201)
    shares = np.array([found.share(level) for level in nominal])
    marks, heights = np.array(LEVELS), np.array([found.share(level) for level in LEVELS])
    error = 2 * np.sqrt(nominal * (1 - nominal) / len(found.levels))
    bounds = [
        Line(nominal, nominal + sign * error, MUTED, style={"linewidth": 0.8, "linestyle": DASHED}) for sign in (-1, 1)
    ]
    notes = [
        Note(level - 0.02, share + 0.02, f"{level:.0%}: {share:.1%}", {"horizontalalignment": "right"})
        for level, share in zip(LEVELS, heights, strict=True)
    ]
    detail = f"{len(found.levels):,} test rows · dashed: two standard errors"
    scales = Scale("share of the model's probability", (0, 1)), Scale("share of test rows", (0, 1.06))
    layers: list[Layer] = [*bounds, Line(nominal, shares, BLUE), Dots(marks, heights, INK, {"s": 22}), *notes]
    return Panel(layers, "Regions of highest density", detail, *scales)


def transform_panels(found: Coverage) -> list[Panel]:
    """For each true coordinate, the probability integral transforms of samples: flat, if they follow the truth."""
    panels = []
    for name, values in zip(found.truth.coordinates, found.uniforms.T, strict=True):
        edges = np.linspace(0, 1, _BINS + 1)
        heights = np.histogram(values, edges)[0] * _BINS / len(values)
        error = 2 * float(np.sqrt((_BINS - 1) / len(values)))
        layers: list[Layer] = [Bars(heights, edges, BLUE, 0.5), Rule(1.0, colour=INK, error=error)]
        detail = f"{len(values):,} samples · largest deviation {uniform_distance(values):.3f}"
        top = Scale("density of samples", (0, max(1.6, 1.1 * float(heights.max()))))
        x = Scale("probability integral transform by the truth", (0, 1))
        panels.append(Panel(layers, f"{name[0].upper()}{name[1:]}", detail, x, top))
    return panels


def draw_coverage(found: Coverage) -> Figure:
    """All of them side by side."""
    panels = [region_panel(found), *transform_panels(found)]
    figure = sheet(3.9 * len(panels), 3.8)
    for axis, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        draw_panel(axis, panel)
    return figure
