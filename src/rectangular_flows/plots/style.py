r"""The look that all figures share.

Text is drawn as it stands: ``$\frac$`` in the name of a column is not a formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from ..spelling import printable

INK, MUTED, BLUE, RED, PALE = "#1b1f24", "#6b7480", "#1f5fa8", "#c2452d", "#e6e8eb"
DASHED: Any = (0, (4, 3))


def literal(text: str) -> str:
    r"""Text that matplotlib does not take for a formula, ``$`` being ``\$``, with its control characters written out."""
    return printable(text).replace("$", r"\$")


def sheet(width: float, height: float, **pads: Any) -> Figure:
    """An empty white figure of this size in inches."""
    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(**pads), facecolor="white")


def title(axis: Axes, text: str, detail: str = "") -> None:
    """A bold title with a line of detail under it."""
    heading = literal(text) + ("\n" if detail else "")
    axis.set_title(heading, fontsize=11, color=INK, loc="left", fontweight="bold", pad=4)
    axis.text(0, 1.025, literal(detail), transform=axis.transAxes, fontsize=9, color=MUTED)


def plain(axis: Axes) -> None:
    """No frame on the right and above, quiet ticks."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(which="both", colors=MUTED, labelsize=8)


def legend_below(figure: Figure, handles: Sequence[Any], columns: int) -> None:
    """One legend for all panels."""
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
