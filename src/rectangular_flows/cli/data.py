"""``rnf data``: the data sets that rnf knows, and getting them."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

from rich import box
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table

from ..data.download import FirstUseWarning, data_root, fetch
from ..data.registry import DATASETS, Dataset, dataset


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """List, or get which one."""
    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    what.add_parser("list", help="what there is")
    what.add_parser("get", help="download a data set").add_argument("name", metavar="NAME")


def run(arguments: argparse.Namespace) -> int:
    """Do what was asked."""
    return list_command() if arguments.what == "list" else get_command(arguments.name)


def list_command() -> int:
    """A table of the data sets, and whether each is at hand."""
    console, root = Console(), data_root()
    where = f"data folder: {root} (RNF_DATA chooses another). rnf data get NAME downloads."
    table = Table(box=box.SIMPLE, caption=where)
    for heading in ("name", "kind", "shape", "rows", "at hand", "what"):
        right = heading in ("shape", "rows")
        table.add_column(heading, no_wrap=heading != "what", justify="right" if right else "left")
    for entry in DATASETS.values():
        shape, rows = "×".join(map(str, entry.shape)), sum(entry.rows)
        table.add_row(entry.name, entry.kind, shape, f"{rows:,}", _at_hand(entry, root), entry.description)
    console.print(table)
    return 0


def get_command(name: str) -> int:
    """Download a data set, showing how far it is."""
    console, entry = Console(), dataset(name)
    if not entry.files:
        console.print(f"{name} is made, not downloaded: rnf fit {name} …", highlight=False, markup=False)
        return 0
    columns = (TextColumn(name), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar, warnings.catch_warnings():
        task = bar.add_task(name, total=None)
        warnings.simplefilter("always", FirstUseWarning)
        warnings.showwarning = lambda message, *_, **__: console.print(f"note: {message}", highlight=False)
        paths = fetch(entry, progress=lambda done, total: bar.update(task, completed=done, total=total))
    for path in paths:
        console.print(str(path), highlight=False, soft_wrap=True, markup=False)
    return 0


def _at_hand(entry: Dataset, root: Path) -> str:
    if not entry.files:
        return "yes"
    if all((root / path).exists() for file in entry.files for path in file.targets):
        return "yes"
    return "in part" if any((root / entry.name).glob("*")) else "no"


__all__ = ["add_arguments", "get_command", "list_command", "run"]
