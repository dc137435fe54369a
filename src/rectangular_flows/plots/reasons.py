"""The most unusual rows, and what each of their columns adds to the outlier score."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..evaluation.explain import UnusualRow
from .style import BLUE, INK, MUTED, literal, plain, sheet, title

_ACROSS = 3
_LONGEST = 18  # letters of a name


def draw_reasons(rows: Sequence[UnusualRow]) -> Figure:
    """A panel for each row: a bar for each of its reasons, in nats, with its value and what is typical beside it.

    Args:
        rows: the most unusual first.
    """
    down, across = -(-len(rows) // _ACROSS), min(_ACROSS, len(rows))
    most = max(len(row.reasons) for row in rows)
    figure = sheet(4.0 * _ACROSS, (0.42 * most + 0.95) * down + 0.2, h_pad=0.12, w_pad=0.1)
    axes = figure.subplots(down, _ACROSS, squeeze=False)
    nats = [reason.nats for row in rows for reason in row.reasons if np.isfinite(reason.nats)]
    longest = max([*nats, 1e-9])
    for axis, row in zip(axes.ravel(), rows, strict=False):
        _draw_row(axis, row, most, longest)
    for axis in axes.ravel()[len(rows) :]:
        axis.set_visible(False)
    for axis in axes[-1, :across]:
        axis.set_xlabel("nats", fontsize=9, color=INK)
    return figure


def _draw_row(axis: Axes, row: UnusualRow, most: int, longest: float) -> None:
    for place, reason in enumerate(row.reasons):
        width = min(reason.nats, 1.1 * longest)  # ∞ has no length
        axis.barh(place, width, height=0.3, color=BLUE)
        name = reason.column if len(reason.column) <= _LONGEST else reason.column[: _LONGEST - 1] + "…"
        axis.text(0, place - 0.27, literal(name), fontsize=9, color=INK, va="bottom")
        text = f"{reason.value:.4g}, typical {reason.nearest:.4g}"
        axis.text(1.1 * longest, place - 0.27, text, fontsize=8.5, color=MUTED, va="bottom", ha="right")
    axis.set(xlim=(0, 1.1 * longest), ylim=(most - 0.5, -0.9), yticks=[])
    title(axis, row.name, f"outlier score {row.score:.3g}, p = {row.p_value:.2g}")
    plain(axis)
    axis.spines["left"].set_visible(False)
