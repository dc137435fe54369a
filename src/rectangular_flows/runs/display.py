"""Progress: a bar on a terminal, lines elsewhere, nothing when quiet."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from ..spelling import printable
from ..training import Epoch, Run
from ..training.schedule import work

_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_WITHOUT_A_BAR = 2.0
_LINES = 8  # at least, for a run, without a terminal
_A_ROW, _MOST_ROWS = 2e-4, 20_000  # seconds that the mixtures of a table take
_START, _A_ROW_HELD_OUT, _MOST_HELD_OUT = 0.3, 8e-4, 2_000  # seconds of calibration, verdict and files


def between_and_after(rows: int, held_out: int) -> tuple[float, float]:
    """About how many seconds the mixtures of a table take, and what follows its fit.

    Example:
        >>> [round(seconds, 2) for seconds in between_and_after(10_000, 1_000)]
        [2.0, 1.1]
    """
    return _A_ROW * min(rows, _MOST_ROWS), _START + _A_ROW_HELD_OUT * min(held_out, _MOST_HELD_OUT)


class PlainConsole(Console):
    """Standard output that shows text as it stands.

    ``[/red]`` in the name of a file is no markup, and a control character in one does nothing to the terminal.
    """

    def __init__(self, **options: Any):
        super().__init__(**{"markup": False, "emoji": False, "highlight": False, **options})

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)


def wide_console() -> Console:
    """Standard output, wide enough for a table if it is not a terminal."""
    return PlainConsole(width=None if sys.stdout.isatty() else 130)


def say(*lines: str, console: Console | None = None) -> None:
    """Print lines as they are: not wrapped, not coloured."""
    text = printable("\n".join(lines))
    (console or PlainConsole()).print(text, highlight=False, soft_wrap=True, markup=False, emoji=False)


def say_outcome(console: Console, text: str, reached: bool) -> None:
    """Print a target and whether it was reached, in colour on a terminal."""
    outcome = Text("reached", "green") if reached else Text("missed", "red")
    console.print(Text(f"{printable(text)}: ").append_text(outcome), soft_wrap=True)


def say_where(console: Console, places: Mapping[str, Path]) -> None:
    """Print where the results are, one per line."""
    width = max(len(name) for name in places)
    say(*(f"{name + ':':<{width + 1}} {path}" for name, path in places.items()), console=console)


class _Bar:
    """A progress bar on a terminal, removed when the work is done."""

    def __init__(self, console: Console, name: str, live: bool, now: str = ""):
        text = TextColumn("{task.description}", markup=False)
        columns = (text, BarColumn(None), TextColumn("{task.fields[now]}", style="dim", markup=False))
        self._progress = Progress(*columns, console=console, disable=not live, transient=True, expand=True)
        self._task = self._progress.add_task(printable(name), total=1.0, now=now)
        self._console, self._name, self._live = console, name, live
        self._started = time.perf_counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def _draw(self, share: float, now: str) -> None:
        self._progress.start()
        self._progress.update(self._task, completed=share, now=now)

    def _print(self, text: str) -> None:
        say(f"{self._name}: {text}", console=self._console)


class TrainingDisplay(_Bar):
    """Shows one run: pass ``on_step`` and ``on_epoch`` to fit.

    Args:
        console: to print to.
        name: of the run.
        quiet: show nothing.
        between: seconds between the training and that of the density of the columns.
        afterwards: seconds of what follows the fit.
    """

    def __init__(
        self, console: Console, name: str, quiet: bool = False, *, between: float = 0.0, afterwards: float = 0.0
    ):
        super().__init__(console, name, console.is_terminal and not quiet, "starting")
        self._quiet, self._shown, self._line = quiet, self._started, self._started
        self._first_step: int | None = None
        self._first_work = 0.0
        self._next_epoch = 0
        self._told = quiet
        self._between, self._afterwards = between, afterwards
        self._columns_from: float | None = None
        self._pause = _SECONDS_WITHOUT_A_BAR

    def on_step(self, run: Run) -> None:
        """After a step; draws ten times a second at most."""
        now = time.perf_counter()
        if self._first_step is None:
            self._first_step, self._started = run.progress.step, now
            self._first_work = work(run.config, run.progress)[0]
        if not self._told and (choice := run.progress.choice) is not None:
            self._told = True
            self._print(f"log-volume: {choice.text(run.config.batch_size)}")
        if self._live and now - self._shown >= 0.1:
            self._shown = now
            self._draw(run.progress.step / max(run.progress.steps, 1), self._text(run, now))

    def on_epoch(self, run: Run) -> None:
        """After a validation; where there is no terminal, a line now and then."""
        if self._live or self._quiet:
            return
        now, epoch, epochs = time.perf_counter(), run.history[-1].epoch, _epochs(run)
        if epoch >= self._next_epoch or epoch >= epochs or now - self._line >= _SECONDS_BETWEEN_LINES:
            self._line, self._next_epoch = now, epoch + max(1, epochs // _LINES)
            self._print(self._text(run, now))

    def on_scatter(self, step: int, steps: int) -> None:
        """After a step of the density of the columns, which may stop early."""
        now = time.perf_counter()
        if self._columns_from is None:
            self._columns_from = self._line = self._shown = now
            return
        left = (now - self._columns_from) * (steps - step) / max(step - 1, 1) + self._afterwards
        text = f"density of the columns, step {step} of at most {steps} · {duration(left)} left"
        if self._live and now - self._shown >= 0.1:
            self._shown = now
            self._draw(step / steps, text)
        elif not (self._live or self._quiet) and now - self._line >= self._pause:
            self._line, self._pause = now, _SECONDS_BETWEEN_LINES
            self._print(text)

    def _text(self, run: Run, now: float) -> str:
        progress, patience = run.progress, run.config.waits
        steps = progress.step - (self._first_step or 0)
        rate = steps / max(now - self._started, 1e-9)
        alone = "" if progress.latent_from is None else ", latent density alone"
        parts = [f"epoch {min(progress.epoch + 1, _epochs(run))}/{_epochs(run)}{alone}"]
        parts += [describe(run.history[-1])] if run.history else []
        if steps > 0:
            done, whole = work(run.config, progress, run.column_steps, run.flow.ambient_dim)
            left = (now - self._started) * (whole - done) / max(done - self._first_work, 1e-9)
            left += self._between + self._afterwards
            parts += [f"{rate:.3g} steps/s", f"{duration(left)} left"]
        if run.best_epoch:
            waited = progress.epoch - run.best_epoch
            stop = "" if patience is None else f", stops after {max(patience - waited, 0)} more"
            parts.append(f"best at {run.best_epoch}{stop}")
        return " · ".join(parts)


def _epochs(run: Run) -> int:
    """All epochs of a run, unless it stops early."""
    before = run.progress.latent_from
    return (run.config.whole_epochs if before is None else before) + run.config.latent_epochs


class WorkDisplay(_Bar):
    """Shows how far a piece of work is, and the time left, if it takes longer than two seconds.

    Args:
        console: to print to.
        name: of the work.
        total: how much there is to do, in any unit; may be set later.
    """

    def __init__(self, console: Console, name: str, total: float = 0):
        super().__init__(console, name, console.is_terminal)
        self.total, self._done, self._line = total, 0.0, -_SECONDS_BETWEEN_LINES
        self._before = 0.0

    def advance(self, amount: float) -> None:
        """Add to what is done."""
        self.at(self._done + amount, self.total)

    def resume_at(self, done: float) -> None:
        """Count what was done before, which took no time now."""
        self._done = self._before = done

    def at(self, done: float, total: float) -> None:
        """Set what is done, and the total."""
        self._done, now = done, time.perf_counter()
        if now - self._started < _SECONDS_WITHOUT_A_BAR or not self._before < done < total:
            return
        left = f"{duration((now - self._started) * (total - done) / (done - self._before))} left"
        if self._live:
            self._draw(done / total, left)
        elif now - self._line > _SECONDS_BETWEEN_LINES:
            self._line = now
            self._print(f"{done / total:.0%}, {left}")


def describe(line: Epoch) -> str:
    """The values of a validation in one line."""
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
