"""``rnf data``: the data sets known by name, and downloading them."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from ..data.datasets import DATASETS, Dataset, dataset
from ..data.download import data_root, fetch
from ..spelling import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """List, or get which one."""
    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    what.add_parser("list", help="list the data sets, and whether each is at hand")
    what.add_parser("get", help="download a data set").add_argument("name", metavar="NAME", help="of rnf data list")


def run(arguments: argparse.Namespace) -> int:
    """Do what was asked."""
    return list_command() if arguments.what == "list" else get_command(arguments.name)


def list_command() -> int:
    """Print a table of the data sets and whether each is at hand."""
    console, root = Console(markup=False, emoji=False), data_root()
    where = f"data folder: {printable(str(root))} (set RNF_DATA to change it). rnf data get NAME downloads a data set."
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
    """Download a data set, with a progress bar on a terminal, and print the paths of its files."""
    console, entry = Console(), dataset(name)
    if not entry.files:
        text = f"{entry.name} is generated and needs no download: rnf fit {entry.name} …"
        console.print(text, highlight=False, markup=False)
        return 0
    importlib.import_module("pooch").get_logger().disabled = True  # the progress bar shows enough
    columns = (TextColumn(entry.name), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        paths = fetch(entry, progress=_Bar(bar, bar.add_task(entry.name, total=None)))
    for path in paths:
        console.print(printable(str(path)), highlight=False, soft_wrap=True, markup=False)
    return 0


class _Bar:
    """The progress bar of rich as pooch expects one."""

    total = 0  # bytes of a file, set by pooch; 0 if the server does not say

    def __init__(self, progress: Progress, task: TaskID):
        self.progress, self.task = progress, task

    def update(self, count: int) -> None:
        self.progress.update(self.task, advance=count, total=self.total or None)

    def reset(self) -> None:
        self.progress.reset(self.task)

    def close(self) -> None:
        pass


def _at_hand(entry: Dataset, root: Path) -> str:
    if all((root / path).exists() for file in entry.files for path in file.targets):
        return "yes"
    return "in part" if any((root / entry.name).glob("*")) else "no"
