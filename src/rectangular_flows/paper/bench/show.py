"""How the result of a benchmark is shown."""

from __future__ import annotations

import platform
from collections.abc import Sequence

import torch
from rich import box
from rich.console import Console
from rich.table import Table

from ...runs.display import say_outcome
from .cases import TARGETS, Row

_HEADINGS = ("case", "D", "d", "batch", "method", "published\ns", "ours\ns", "times\nfaster", "min–max")
_MEMORY = ("published\nMiB", "ours\nMiB", "memory\nratio", "step /\nproducts")


def print_table(console: Console, rows: Sequence[Row], facts: dict[str, str | int]) -> None:
    """The table, the targets and the facts."""
    title = "One training step: the algorithm as published against ours"
    table = Table(title=title, box=box.SIMPLE, padding=(0, 1, 0, 0))
    for heading in (*_HEADINGS, *_MEMORY):
        table.add_column(heading, justify="left" if heading in ("case", "method") else "right", no_wrap=True)
    for row in rows:
        table.add_row(*cells(row))
    console.print(table)
    text = "Published: the published algorithm on our layers, interleaved with ours; not the authors' own program."
    console.print(text, highlight=False)
    for target in TARGETS:
        value = target.measured(rows)
        if value is not None:
            say_outcome(console, f"MINIBOONE {target.text}, {value:.2f}", target.reached(value))
    console.print(", ".join(f"{key} {value}" for key, value in facts.items()), highlight=False)


def cells(row: Row) -> list[str]:
    """The cells of a row of the table."""

    def number(value: float | None, digits: int = 2) -> str:
        return "–" if value is None else f"{value:.{digits}f}"

    seconds = [number(row.published_seconds, 3), number(row.ours_seconds, 3)]
    ratio = [number(row.ratio), f"{row.ratio_min:.1f}–{row.ratio_max:.1f}"]
    used = [number(row.published_mib, 0), number(row.ours_mib, 0), number(row.memory_ratio)]
    sizes = [str(row.D), str(row.d), str(row.batch)]
    return [row.case, *sizes, row.method, *seconds, *ratio, *used, number(row.step_over_products)]


def facts_of(repeats: int) -> dict[str, str | int]:
    """What the numbers depend on."""
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "device": "cpu",
        "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "machine": f"{platform.system()} {platform.machine()}",
        "rounds": repeats,
    }
