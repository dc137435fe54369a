"""One kind of experiment: runs to train, how to judge each, what the paper has, and what must hold. One driver for all."""

from __future__ import annotations

import json
import math
import statistics
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from matplotlib.figure import Figure
from rich import box
from rich.console import Console
from rich.table import Table as RichTable

from .._version import __version__
from ..data.tables import DataError, MissingFileError
from ..report.page import Cards, Grid, Metric, Page, Picture, Section, Text, write
from ..runs.display import say, say_outcome, say_where, wide_console
from ..runs.jobs import Job, Outcome, run_jobs
from ..storage.files import save_figure, write_atomically
from .options import Request

Verdict = tuple[str, bool]
"""What must hold, with the numbers, and whether it does."""

R = TypeVar("R")


class Method(NamedTuple):
    """A way to train: its name, its preset or the ending of one, and the settings that it changes."""

    name: str
    preset: str
    change: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Cell:
    """One run of an experiment: a data set, a method, a seed, and the job that trains it."""

    data: str
    method: str
    seed: int
    job: Job
    settings: str = "ours"
    place: tuple[int, int] = (0, 0)
    """Row and column in the figure, where it has a panel for each run."""


@dataclass(frozen=True)
class Group(Generic[R]):
    """The runs of one data set, method and kind of settings over seeds.

    Attributes:
        data: name of the set.
        method: name of the method.
        settings: "ours" or "published".
        runs: the runs that were judged, each with its result.
        failed: how many others failed.
        at_hand: whether the data are there.
    """

    data: str
    method: str
    settings: str = "ours"
    runs: Sequence[tuple[Cell, R]] = ()
    failed: int = 0
    at_hand: bool = True

    @property
    def results(self) -> list[R]:
        """What was found of each run."""
        return [result for _, result in self.runs]

    @property
    def missing(self) -> str:
        """What stands in a table instead of results, where there are none."""
        return "" if self.runs else "failed" if self.at_hand else "data not at hand"

    @property
    def label(self) -> str:
        """The method, and how many of its runs failed, if it is not all of them."""
        failed = f" ({self.failed} of {self.failed + len(self.runs)} failed)" if self.failed and self.runs else ""
        return self.method + failed

    def values(self, name: str) -> list[Any]:
        """A field of the results."""
        return [getattr(result, name) for result in self.results]

    def mean(self, name: str) -> float:
        """Mean of a field over seeds."""
        return mean_and_error(self.values(name))[0]


@dataclass(frozen=True)
class Table:
    """A table for the console and the page.

    Attributes:
        title: for the console.
        headings: one for each column.
        rows: cells; rows may be short.
        caption: what the table shows.
        left: how many columns stand to the left; numbers stand to the right.
    """

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    left: int = 1

    def filled(self) -> Table:
        """With rows of one length, and without the columns that are empty throughout."""
        width = len(self.headings)
        rows = [[*row, *[""] * (width - len(row))] for row in self.rows]
        kept = [i for i in range(width) if any(row[i] for row in rows)]
        left = sum(i < self.left for i in kept)
        rows = [[row[i] for i in kept] for row in rows]
        return Table(self.title, [self.headings[i] for i in kept], rows, self.caption, left)

    def show(self, console: Console) -> None:
        """Print it."""
        table = RichTable(title=self.title, box=box.SIMPLE, caption=self.caption)
        for i, heading in enumerate(self.headings):
            table.add_column(heading, justify="left" if i < self.left else "right", no_wrap=i >= self.left)
        for row in self.rows:
            table.add_row(*row)
        console.print(table)


class Experiment(ABC, Generic[R]):
    """An experiment of the paper. A subclass says what it consists of; :meth:`run` does it.

    Args:
        request: what is asked for.
        console: where to show it.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    subtitle: ClassVar[str]
    meaning: str = ""
    """What the tables mean, for the page."""
    picture: ClassVar[tuple[str, str, str]]
    """The figure: its file, what it shows (for readers who cannot see it), and its caption."""
    dpi: ClassVar[int] = 150
    every_set: ClassVar[bool] = False
    """Whether the experiment needs all of its data sets."""
    every_run: ClassVar[bool] = False
    """Whether the figure and the page need all runs."""
    fresh: ClassVar[bool] = False
    """Whether complete runs are trained again."""

    def __init__(self, request: Request, console: Console | None = None):
        self.request, self.console = request, console or wide_console()

    @property
    def folder(self) -> Path:
        """Where the results go."""
        return self.request.out / self.name

    def check(self) -> None:
        """Complain about options before anything is done."""

    def load(self, data: str) -> None:
        """Open a data set.

        Raises:
            MissingFileError: it is not at hand.
        """

    @abstractmethod
    def cells(self, data: str) -> list[Cell]:
        """The runs of a data set."""

    @abstractmethod
    def judge(self, cell: Cell, seconds: float) -> R:
        """What is found of a trained run; numbers that take long are kept in its folder."""

    @abstractmethod
    def tables(self, groups: Sequence[Group[R]]) -> list[Table]:
        """Published results beside ours."""

    @abstractmethod
    def verdicts(self, groups: Sequence[Group[R]]) -> list[Verdict]:
        """What must hold of our settings; groups with failed runs are not among these."""

    @abstractmethod
    def numbers(self, groups: Sequence[Group[R]]) -> Any:
        """All results, for a JSON file."""

    @abstractmethod
    def figure(self, groups: Sequence[Group[R]]) -> Figure:
        """The figure."""

    def notes(self) -> list[str]:
        """What should be said besides."""
        return []

    def sections(self, groups: Sequence[Group[R]]) -> list[Section]:
        """More sections at the end of the page."""
        return []

    def run(self) -> int:
        """Train what is missing, judge, show tables and verdicts, write numbers, figure and page; the exit code."""
        self.check()
        at_hand = [data for data in self.request.sets if self._at_hand(data)]
        if self.every_set and len(at_hand) < len(self.request.sets):
            raise DataError(f"expected {' and '.join(self.request.sets)} to be at hand. See rnf data get")
        cells = {data: self.cells(data) for data in self.request.sets}
        wanted = {cell.job.folder: cell.job for data in at_hand for cell in cells[data]}
        self.folder.mkdir(parents=True, exist_ok=True)
        ended = run_jobs(list(wanted.values()), self.console, self.request.jobs, self.fresh)
        outcomes = dict(zip(wanted, ended, strict=True))
        groups = self._groups([cell for data in cells for cell in cells[data]], outcomes)
        self._show(groups)
        failures = {wanted[folder].title: end.failure for folder, end in outcomes.items() if end.failure}
        if failures:
            advice = "Run the same command again: finished runs are kept, stopped ones resume."
            said = [f"failed: {title}: {failure}" for title, failure in failures.items()]
            say(*said, f"{len(failures)} of {len(wanted)} runs failed. {advice}", console=self.console)
        return 1 if failures else 0

    def _at_hand(self, data: str) -> bool:
        with self.console.status(f"reading {data} …"):
            try:
                self.load(data)
            except MissingFileError:
                say(f"{data}: data not at hand (rnf data get {data})", console=self.console)
                return False
        return True

    def _groups(self, cells: Sequence[Cell], outcomes: Mapping[Path, Outcome]) -> list[Group[R]]:
        """The cells in groups, in the order in which they first occur, with what is found of each."""
        found: dict[tuple[str, str, str], list[Cell]] = {}
        for cell in cells:
            found.setdefault((cell.data, cell.method, cell.settings), []).append(cell)
        groups = []
        for key, mine in found.items():
            ends = [(cell, outcomes.get(cell.job.folder)) for cell in mine]
            runs = [(cell, self.judge(cell, end.seconds)) for cell, end in ends if end and not end.failure]
            failed = sum(1 for _, end in ends if end and end.failure)
            groups.append(Group(*key, runs, failed, at_hand=all(end for _, end in ends)))
        return groups

    def _show(self, groups: Sequence[Group[R]]) -> None:
        tables = [table.filled() for table in self.tables(groups) if table.rows]
        verdicts = self.verdicts([group for group in groups if group.runs and not group.failed])
        for table in tables:
            table.show(self.console)
        for note in self._notes():
            say(note, console=self.console)
        for text, passed in verdicts:
            say_outcome(self.console, text, passed)
        places = {"numbers": self.folder / "results.json"}
        write_atomically(places["numbers"], json.dumps(self.numbers(groups), indent=1) + "\n")
        if (all if self.every_run else any)(group.runs for group in groups):
            places |= {"figure": self.folder / self.picture[0], "report": self.folder / "report.html"}
            with self.console.status("drawing …"):
                save_figure(places["figure"], self.figure([group for group in groups if group.runs]), self.dpi)
            write(self.page(groups, tables, verdicts), places["report"])
        say_where(self.console, places)

    def page(self, groups: Sequence[Group[R]], tables: Sequence[Table], verdicts: Sequence[Verdict]) -> Page:
        """The report: tables and their meaning, the figure, and what must hold."""
        file, alt, caption = self.picture
        parts = [text for text in (self.meaning.strip(), *self._notes()) if text]
        cards = Cards([Metric(text, "reached" if passed else "missed", good=passed) for text, passed in verdicts])
        grids = [Grid(table.headings, table.rows, table.caption) for table in tables]
        return Page(
            self.title,
            self.subtitle,
            [
                Section("Results", [*grids, *([Text("\n\n".join(parts))] if parts else [])]),
                Section("Figure", [Picture(self.folder / file, alt, caption)]),
                *([Section("What must hold of our settings", [cards])] if verdicts else []),
                *self.sections(groups),
            ],
            f"rectangular-flows {__version__} · rnf reproduce {self.name}",
        )

    def _notes(self) -> list[str]:
        epochs = self.request.epochs
        short = [] if epochs is None else [f"Shortened: at most {epochs} epoch{'' if epochs == 1 else 's'} a run."]
        return [*short, *self.notes()]


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard error of the mean; NaN for the error of a single value.

    Example:
        >>> mean_and_error([1.0, 3.0])
        (2.0, 1.0)
    """
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return statistics.fmean(values), error


def mean_cell(values: Sequence[float], digits: int = 4) -> str:
    """Mean ± standard error over seeds; of a single value, the value.

    Example:
        >>> mean_cell([1.0, 3.0], 1), mean_cell([0.25])
        ('2.0 ± 1.0', '0.2500')
    """
    mean, error = mean_and_error(values)
    return f"{mean:.{digits}f}" if math.isnan(error) else f"{mean:.{digits}f} ± {error:.{digits}f}"
