"""What training shows: a live bar on a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from ..training import Epoch, Run

_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_WITHOUT_A_BAR = 2.0
_LINES = 8  # of a run, at the least, where there is no terminal


def wide_console() -> Console:
    """Standard output, with room for a table where it is not a terminal."""
    return Console(width=None if sys.stdout.isatty() else 130)


def say(*lines: str, console: Console | None = None) -> None:
    """Print lines as they are: not wrapped, not coloured."""
    (console or Console()).print("\n".join(lines), highlight=False, soft_wrap=True, markup=False)


def say_where(console: Console, places: Mapping[str, Path]) -> None:
    """Where the results are, one a line."""
    width = max(len(name) for name in places)
    say(*(f"{name + ':':<{width + 1}} {path}" for name, path in places.items()), console=console)


class TrainingDisplay:
    """Shows one run: pass ``on_step`` and ``on_epoch`` to fit.

    Args:
        console: where to.
        name: of the run.
        quiet: show nothing.
    """

    def __init__(self, console: Console, name: str, quiet: bool = False):
        self._console, self._name, self._quiet = console, name, quiet
        self._live = console.is_terminal and not quiet
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[now]}", style="dim"),
        )
        self._bar = Progress(*columns, console=console, disable=not self._live, transient=True, expand=True)
        self._task = self._bar.add_task(name, total=1.0, now="starting")
        self._started = self._shown = self._line = time.perf_counter()
        self._first_step: int | None = None
        self._next_epoch = 0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def on_step(self, run: Run) -> None:
        """After a step; draws ten times a second at most."""
        now = time.perf_counter()
        if self._first_step is None:
            self._first_step, self._started = run.progress.step, now
        if not self._live or now - self._shown < 0.1:
            return
        self._shown = now
        done = run.progress.step / max(run.progress.steps, 1)
        self._bar.update(self._task, completed=done, now=self._text(run, now))

    def on_epoch(self, run: Run) -> None:
        """After a validation; where there is no terminal, a line now and then."""
        now, epochs = time.perf_counter(), _epochs(run)
        if self._live or self._quiet:
            return
        epoch = run.history[-1].epoch
        if epoch < self._next_epoch and epoch < epochs and now - self._line < _SECONDS_BETWEEN_LINES:
            return
        self._line, self._next_epoch = now, epoch + max(1, epochs // _LINES)
        self._console.print(f"{self._name}: {self._text(run, now)}", highlight=False, soft_wrap=True)

    def _text(self, run: Run, now: float) -> str:
        progress, config = run.progress, run.config
        steps = progress.step - (self._first_step or 0)
        rate = steps / max(now - self._started, 1e-9)
        epoch, epochs = min(progress.epoch + 1, _epochs(run)), _epochs(run)
        alone = "" if progress.latent_from is None else ", h alone"
        parts = [f"epoch {epoch}/{epochs}{alone}", *([describe(run.history[-1])] if run.history else [])]
        if steps > 0:
            parts += [f"{rate:.3g} steps/s", f"{duration((progress.steps - progress.step) / rate)} left"]
        if run.best_epoch:
            waited = progress.epoch - run.best_epoch
            stop = "" if config.patience is None else f", stops after {max(config.patience - waited, 0)} more"
            parts.append(f"best at {run.best_epoch}{stop}")
        return " · ".join(parts)


def _epochs(run: Run) -> int:
    """All epochs of a run, unless it stops early."""
    before = run.progress.latent_from
    return (run.config.whole_epochs if before is None else before) + run.config.latent_epochs


class WorkDisplay:
    """Shows how far a piece of work is, and the time left, if it takes longer than two seconds.

    Args:
        console: where to.
        name: of the work.
        total: how much there is to do, in whatever unit; may be set later.
    """

    def __init__(self, console: Console, name: str, total: float = 0):
        self._console, self._name, self.total = console, name, total
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[now]}", style="dim"))
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
        self._task = self._bar.add_task(name, total=1.0, now="")
        self._started, self._done, self._shown = time.perf_counter(), 0.0, -1.0

    def __enter__(self) -> Self:
        self._started = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def advance(self, amount: float) -> None:
        """So much more is done."""
        self._done += amount
        if 0 < self._done < self.total:
            seconds = time.perf_counter() - self._started
            self.at(self._done, self.total, seconds * (self.total - self._done) / self._done)

    def at(self, done: float, total: float, left: float | None) -> None:
        """So much of the total is done; seconds left, by whoever knows better than that the rest takes as long."""
        now = time.perf_counter()
        if now - self._started < _SECONDS_WITHOUT_A_BAR or left is None or not 0 < done < total:
            return
        text = f"{duration(left)} left"
        if self._console.is_terminal:
            self._bar.start()
            self._bar.update(self._task, completed=done / total, now=text)
        elif self._shown < 0 or now - self._shown > _SECONDS_BETWEEN_LINES:
            self._shown = now
            self._console.print(f"{self._name}: {done / total:.0%}, {text}", highlight=False, soft_wrap=True)


def describe(line: Epoch) -> str:
    """The values of a validation in a few words."""
    extra = "".join(f", {name} {value:.4g}" for name, value in line.metrics.items())
    return (
        f"objective {line.objective:.4g}, nll {line.negative_log_likelihood:.4g}, "
        f"reconstruction {line.reconstruction:.3g}{extra}"
    )


def duration(seconds: float) -> str:
    """A time in words.

    Example:
        >>> duration(5.2), duration(200), duration(7300)
        ('5 s', '3 min 20 s', '2 h 1 min')
        >>> duration(600)
        '10 min'
    """
    whole = round(max(seconds, 0))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    return f"{whole // 3600} h {whole % 3600 // 60} min"


__all__ = ["TrainingDisplay", "WorkDisplay", "describe", "duration", "say_where", "wide_console"]
