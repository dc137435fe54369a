"""Several training runs side by side, each in a process of its own with one thread. Finished runs are not run again."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape
from safetensors import safe_open

from ..errors import NumericalError
from ..settings import FitSettings, read_preset
from ..spelling import one_line
from ..storage.files import write_atomically
from ..storage.manifest import Stored
from ..storage.models import WEIGHTS
from ..training.budget import PLANNED
from ..training.checkpoint import CHECKPOINT
from ..training.folder import FAILURE, has_checkpoint
from ..training.history import last_epoch
from ..training.signals import Interrupted, StopSignals
from .display import describe, duration, say
from .launch import run_settings
from .saved import SavedRun

_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_BETWEEN_LOOKS = 0.2
_MEMORY = " (perhaps for lack of memory)"
_CONTEXT = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Job:
    """One run: its title, its settings as a flat mapping, and its folder."""

    title: str
    settings: dict[str, Any]
    folder: Path

    @cached_property
    def epochs(self) -> int | None:
        """The most epochs it may take; None where that is for the run to decide."""
        training = FitSettings.from_flat(self.settings).training
        return None if training.epochs == "auto" else training.whole_epochs + training.latent_epochs

    def done(self, epoch: int) -> float:
        """That many epochs as a share of the most it may take; 0 where that is not known."""
        return epoch / self.epochs if self.epochs else 0.0

    @property
    def begun(self) -> bool:
        """Whether the folder holds a state to resume from."""
        return has_checkpoint(self.folder)

    @property
    def share(self) -> float:
        """Epochs done, as a share of the most it may take; 1 for a complete run."""
        last = last_epoch(self.folder)
        return 1.0 if self.complete else 0.0 if last is None else self.done(last.epoch)

    @property
    def complete(self) -> bool:
        """Whether the run has its last state and its final model."""
        if not self.begun:
            return False
        stored = Stored(self.folder)
        if stored.manifest is not None:
            return bool(stored.facts.get("finished"))
        with safe_open(self.folder / CHECKPOINT, "pt") as state:  # of version 0.1; reads only the head
            return bool(json.loads(state.metadata()["progress"])["finished"])


@dataclass(frozen=True)
class Outcome:
    """How a job ended: the seconds of training, or why it left no finished model."""

    seconds: float = 0.0
    failure: str = ""


def preset_job(
    title: str, preset: str, folder: Path, seed: int, epochs: int | None, change: Mapping[str, Any] | None = None
) -> Job:
    """A run of a preset with a seed, at most so many epochs, and other changed settings."""
    settings = {**read_preset(preset), "seed": seed, **(change or {})}
    if epochs is not None:
        if epochs < 1:
            raise ValueError(f"expected at least one epoch; got {epochs}")
        settings["epochs"] = min(epochs, settings["epochs"])
        settings["latent_epochs"] = min(epochs, settings.get("latent_epochs", 0))
    return Job(title, settings, folder)


def run_jobs(
    jobs: Sequence[Job],
    console: Console,
    processes: int | None = None,
    fresh: bool = False,
    launcher: Callable[[Job, bool], Worker] | None = None,
) -> list[Outcome]:
    """Train each job in a process of its own; how each ended, in the order of the jobs.

    A complete run is left as it is, a stopped one resumes. A worker that dies does not stop the others. Ctrl-C stops all of
    them after they have saved their states.

    Args:
        jobs: the runs.
        console: where to show them.
        processes: workers at a time, by default one for each core.
        fresh: train all of them anew.
        launcher: makes the worker of a job; by default one on this machine.

    Raises:
        ValueError: a folder holds a run with other settings. Nothing was started or lost.
        Interrupted: a signal came; all states are saved.
    """
    at_once = os.cpu_count() or 1 if processes is None else processes
    if at_once < 1:
        raise ValueError(f"expected at least one job at a time; got {at_once}")
    for job in () if fresh else jobs:
        _check_settings(job)
    workers = [(launcher or _Worker)(job, fresh) for job in jobs]
    with StopSignals(enabled=True) as signals, _Display(workers, console) as display:
        while any(worker.outcome is None for worker in workers):
            running = [worker for worker in workers if worker.running]
            waiting = [worker for worker in workers if not worker.running and worker.outcome is None]
            if signals.requested and not running:
                break
            if signals.requested:
                for worker in running:
                    worker.stop()
            else:
                for worker in waiting[: at_once - len(running)]:
                    worker.start()
            time.sleep(_SECONDS_BETWEEN_LOOKS)
            display.update()
    if signals.number is not None:
        raise Interrupted("stopped; everything is saved. Run the same command again to resume", signals.number)
    return [worker.outcome or Outcome() for worker in workers]


class Worker(ABC):
    """A job and whoever runs it, which is asked to only where there is something to train."""

    def __init__(self, job: Job, fresh: bool):
        self.job, self.fresh, self.stopping = job, fresh, False
        self.outcome = None if fresh or not job.complete else Outcome(_seconds(job))

    @property
    @abstractmethod
    def running(self) -> bool:
        """Whether the job runs; where it has just ended, sets the outcome."""

    @abstractmethod
    def start(self) -> None:
        """Start it."""

    @abstractmethod
    def stop(self) -> None:
        """Ask it, once, to save its state and stop."""


class _Worker(Worker):
    """A process on this machine."""

    def __init__(self, job: Job, fresh: bool):
        super().__init__(job, fresh)
        self.process: multiprocessing.process.BaseProcess | None = None

    @property
    def running(self) -> bool:
        """Whether the process runs; where it has just ended, sets the outcome."""
        if self.process is None or self.outcome is not None or self.process.is_alive():
            return self.process is not None and self.outcome is None
        try:
            self.outcome = self._receiver.recv()
        except EOFError:  # it died without a word
            code = self.process.exitcode or 0
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"crashed with exit code {code}"
            self.outcome = Outcome(failure=f"its process {how}{_MEMORY if code == -9 else ''}")
        return False

    def start(self) -> None:
        """Start the process, which ignores Ctrl-C from its first moment: this one tells it when to stop."""
        self._receiver, sender = _CONTEXT.Pipe(duplex=False)
        self.process = _CONTEXT.Process(target=_work, args=(self.job, self.fresh, sender), daemon=True)
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.process.start()
        signal.signal(signal.SIGINT, before)
        sender.close()

    def stop(self) -> None:
        """Ask the process, once, to save its state and stop."""
        if self.process is not None and not self.stopping:
            self.stopping = True
            self.process.terminate()


def _work(job: Job, fresh: bool, sender: Connection) -> None:
    """What a process does. SIGTERM ends it at once, and while it trains, after its state is saved."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    warnings.showwarning = notes_of(job)
    outcome = outcome_of(job, fresh)
    with contextlib.suppress(BrokenPipeError):  # nobody waits for an orphan
        sender.send(outcome)


def notes_of(job: Job) -> Callable[..., None]:
    """What takes warnings of a run in place of Python: each text once, as a line with the title."""
    told: set[str] = set()

    def note(message: Warning | str, *_: object, **__: object) -> None:
        text = one_line(f"rnf: note: {job.title}: {message}")
        if text not in told:
            told.add(text)
            sys.stderr.write(f"{text}\n")

    return note


def _stop_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        signal.raise_signal(signal.SIGTERM)


def outcome_of(job: Job, fresh: bool) -> Outcome:
    """Train a job in this process, with one thread; how it ended."""
    torch.set_num_threads(1)
    try:
        return train_job(job, fresh)
    except Interrupted:
        return Outcome(failure="it was stopped")
    except (ValueError, OSError) as error:
        return Outcome(failure=str(error))


def train_job(job: Job, fresh: bool = False) -> Outcome:
    """Train a job here, or resume it."""
    resume = job.begun and not fresh
    with Path(os.devnull).open("w") as nowhere:
        options: dict[str, Any] = {"resume": resume, "overwrite": not resume, "quiet": True}
        try:
            run_settings(FitSettings.from_flat(job.settings), job.folder, console=Console(file=nowhere), **options)
        except NumericalError as error:  # the best model so far is judged like the others
            write_atomically(job.folder / FAILURE, f"{error}\n")
            if not (job.folder / WEIGHTS).exists():
                return Outcome(failure=str(error))
    return Outcome(_seconds(job))


def _seconds(job: Job) -> float:
    last = last_epoch(job.folder)
    return 0.0 if last is None else last.seconds


def _check_settings(job: Job) -> None:
    """Refuse to replace a run with other settings: it may have taken hours."""
    if not job.begun:
        return
    there, wanted = SavedRun(job.folder).settings.flat(), FitSettings.from_flat(job.settings).flat()
    decided = {name for name, value in wanted.items() if value == "auto"}  # by the run, and recorded
    decided |= PLANNED if wanted.get("time") is not None else set()
    asked, used = wanted.get("periodic") or (), there.get("periodic") or ()
    if len(asked) == len(used) and all(
        u in (a, f"{a}:{u.rpartition(':')[2]}") for a, u in zip(asked, used, strict=True)
    ):
        decided.add("periodic")  # the same, with periods that were guessed
    others = [name for name in wanted if name not in decided and there.get(name) != wanted[name]]
    if others:
        shown = ", ".join(f"{name} = {there.get(name)}, not {wanted[name]}" for name in others[:3])
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        raise ValueError(
            f"{job.folder} holds a run with other settings ({shown}{more}). Choose another --out, or remove that folder"
        )


class _Display:
    """A line for each run that trains, and one for each that has ended; the former change in place on a terminal."""

    def __init__(self, workers: Sequence[Worker], console: Console):
        self._workers, self._console, self._status = workers, console, console.status("starting …")
        self._started = self._line = time.perf_counter()
        self._shares = {worker: 0.0 if worker.fresh else worker.job.share for worker in workers}
        self._before, self._ended = sum(self._shares.values()), set[Worker]()

    def __enter__(self) -> _Display:
        self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.update()
        self._status.stop()

    def update(self) -> None:
        """Look at where each run is and show what has changed."""
        lines = []
        for worker in self._workers:
            job = worker.job
            last = last_epoch(job.folder) if worker.running else None
            if last is not None:
                self._shares[worker] = job.done(last.epoch)
                of = f"/{job.epochs}" if job.epochs else ""
                lines.append(f"{job.title} epoch {last.epoch}{of}: {describe(last)}")
            elif worker.outcome is not None and worker not in self._ended:
                self._shares[worker] = 1.0
                self._ended.add(worker)
                say(f"{job.title}: {_ending(worker)}", console=self._console)
        now, share = time.perf_counter(), sum(self._shares.values())
        done, rest = share - self._before, len(self._workers) - share
        left = duration((now - self._started) * rest / done) if done > 0.01 * len(self._workers) else "…"
        lines.insert(0, f"{len(self._ended)} of {len(self._workers)} runs done, {left} left")
        self._status.update(escape("\n".join(lines)))
        if not self._console.is_terminal and now - self._line > _SECONDS_BETWEEN_LINES:
            self._line = now
            say(" · ".join(lines), console=self._console)


def _ending(worker: Worker) -> str:
    failure, seconds = (worker.outcome.failure, worker.outcome.seconds) if worker.outcome else ("", 0.0)
    if failure:
        return "stopped" if worker.stopping else f"failed: {failure}"
    broke = (
        " (training broke down; the best model before that is kept)" if (worker.job.folder / FAILURE).exists() else ""
    )
    return f"done in {duration(seconds)}{broke}"
