"""How the result of a benchmark is shown."""

from __future__ import annotations

import platform
from collections.abc import Sequence

import torch
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from .cases import TARGETS, Row


def progress_bar() -> Progress:
    """How far the benchmark is."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("left"))
    return Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)


def print_table(console: Console, rows: Sequence[Row], facts: dict[str, str | int]) -> None:
    """The table, the targets and the facts."""
    table = Table(
        title="One training step: the algorithm as published against ours", box=box.SIMPLE, padding=(0, 1, 0, 0)
    )
    headings = (
        "case",
        "D",
        "d",
        "batch",
        "method",
        "authors\ns",
        "published\ns",
        "ours\ns",
        "times\nfaster",
        "min–max",
    )
    for heading in headings:
        table.add_column(heading, justify="left" if heading in ("case", "method") else "right", no_wrap=True)
    for heading in ("published\nMiB", "ours\nMiB", "memory\nratio", "step /\nproducts"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        seconds = _number(row.authors_seconds), f"{row.published_seconds:.3f}", f"{row.ours_seconds:.3f}"
        ratio = f"{row.ratio:.2f}", f"{row.ratio_min:.1f}–{row.ratio_max:.1f}"
        used = _number(row.published_mib, 0), _number(row.ours_mib, 0), _number(row.memory_ratio)
        sizes = str(row.D), str(row.d), str(row.batch)
        table.add_row(row.case, *sizes, row.method, *seconds, *ratio, *used, _number(row.step_over_products))
    console.print(table)
    console.print(
        "Authors: their own program, measured once on a machine like those this was developed on. Published: the same "
        "algorithm on our layers, here, interleaved with ours; the ratio is of these two.",
        highlight=False,
    )
    for target in TARGETS:
        value = target.measured(rows)
        if value is not None:
            verdict = "[green]reached" if target.reached(value) else "[red]missed"
            console.print(f"MINIBOONE {target.text}: {value:.2f}, {verdict}[/]", highlight=False)
    console.print(", ".join(f"{key} {value}" for key, value in facts.items()), highlight=False)


def _number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def label(probes: int | None) -> str:
    """What a method is called."""
    return "exact" if probes is None else f"K = {probes}"


def facts_of(device: str, repeats: int) -> dict[str, str | int]:
    """What the figures hang on."""
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else device,
        "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "machine": f"{platform.system()} {platform.machine()}",
        "rounds": repeats,
    }


__all__ = ["facts_of", "label", "print_table", "progress_bar"]
