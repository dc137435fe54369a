"""What the commands that reproduce the paper's tables share: means over seeds, tables, verdicts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from ..report import Cards, Metric, Section

Verdict = tuple[str, bool]
"""What must hold, with the numbers, and whether it does."""


def check_seeds(seeds: int) -> None:
    """Complain about no seeds at all."""
    if seeds < 1:
        raise ValueError(f"expected at least one seed; got {seeds}")


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard error of the mean; NaN for the error of a single value.

    Example:
        >>> mean_and_error([1.0, 3.0])
        (2.0, 1.0)
    """
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, math.nan
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, math.sqrt(variance / len(values))


def mean_cell(values: Sequence[float], digits: int = 4) -> str:
    """Mean ± standard error over seeds; of a single value, the value.

    Example:
        >>> mean_cell([1.0, 3.0], 1), mean_cell([0.25])
        ('2.0 ± 1.0', '0.2500')
    """
    mean, error = mean_and_error(values)
    return f"{mean:.{digits}f}" if math.isnan(error) else f"{mean:.{digits}f} ± {error:.{digits}f}"


def show_table(
    console: Console, title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], caption: str, left: int
) -> None:
    """A table on the console; so many columns stand to the left, numbers to the right."""
    table = Table(title=title, box=box.SIMPLE, caption=caption)
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="left" if i < left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def show_verdicts(console: Console, verdicts: Sequence[Verdict]) -> None:
    """A line for each."""
    for text, passed in verdicts:
        console.print(f"{text}: {'[green]reached' if passed else '[red]missed'}[/]", highlight=False, soft_wrap=True)


def verdict_sections(verdicts: Sequence[Verdict]) -> list[Section]:
    """A section of a page with a card for each; none without verdicts."""
    cards = Cards([Metric(text, "reached" if passed else "missed", good=passed) for text, passed in verdicts])
    return [Section("What must hold of our settings", [cards])] if verdicts else []


def shortened(epochs: int | None) -> str:
    """The warning that belongs to figures of shortened runs; empty for whole ones."""
    return "" if epochs is None else f"Shortened: at most {epochs} epoch{'' if epochs == 1 else 's'} a run."


__all__ = [
    "Verdict",
    "check_seeds",
    "mean_and_error",
    "mean_cell",
    "shortened",
    "show_table",
    "show_verdicts",
    "verdict_sections",
]
