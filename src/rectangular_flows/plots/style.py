"""The look that all figures share."""

from __future__ import annotations

from typing import Any

INK, MUTED, BLUE, RED = "#1b1f24", "#6b7480", "#1f5fa8", "#c2452d"


def title(axis: Any, text: str, subtitle: str) -> None:
    """A bold title with a line of detail under it."""
    axis.set_title(f"{text}\n", fontsize=11, color=INK, loc="left", fontweight="bold", pad=4)
    axis.text(0, 1.025, subtitle, transform=axis.transAxes, fontsize=9, color=MUTED)


def plain(axis: Any) -> None:
    """No frame on the right and above, quiet ticks."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(colors=MUTED, labelsize=8)


__all__ = ["BLUE", "INK", "MUTED", "RED", "plain", "title"]
