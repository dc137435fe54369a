"""Several training runs side by side, one thread each, with one display. What was finished before is not run again."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import torch
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from safetensors import safe_open

from ..errors import NumericalError
from ..settings import FitSettings, read_preset
from ..storage.files import write_atomically
from ..training.checkpoint import FILE
from ..training.folder import CHECKPOINT, FAILURE, last_epoch
from ..training.signals import Interrupted, StopSignals
from .display import describe, duration
from .launch import run_settings
from .saved import SavedRun

_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_BETWEEN_LOOKS = 0.5


@dataclass(frozen=True)
class Job:
    """One run: what to show it as, its settings as a flat mapping, and its folder."""

    title: str
    settings: dict[str, Any]
    folder: Path

    @cached_property
    def epochs(self) -> int:
        """The most epochs it may take."""
        training = FitSettings.from_flat(self.settings).training
        return training.whole_epochs + training.latent_epochs


def preset_job(
    title: str, preset: str, folder: Path, seed: int, epochs: int | None, change: Mapping[str, Any] | None = None
) -> Job:
    """A run of a preset with a seed, at most so many epochs, and whatever else is to be changed."""
    settings = {**read_preset(preset), "seed": seed, **(change or {})}
    if epochs is not None:
        if epochs < 1:
            raise ValueError(f"expected at least one epoch; got {epochs}")
        settings["epochs"] = min(epochs, settings["epochs"])
        settings["latent_epochs"] = min(epochs, settings.get("latent_epochs", 0))
    return Job(title, settings, folder)


def run_jobs(jobs: Sequence[Job], console: Console, processes: int | None = None, fresh: bool = False) -> list[float]:
    """Do the runs, as many at a time as there are cores; the seconds each took.

    A run that is complete, with the same settings, is left as it is; one that was stopped goes on. Ctrl-C stops all of
    them, with their state saved.

    Args:
        jobs: the runs.
        console: where to show them.
        processes: runs at a time.
        fresh: do them all again.

    Raises:
        ValueError: there is a run with other settings in a folder; nothing was begun, or lost.
    """
    processes = min(len(jobs), processes or os.cpu_count() or 1)
    if processes < 1:
        raise ValueError(f"expected at least one job at a time; got {processes}")
    if not fresh:
        for job in jobs:
            _check_settings(job)
    context = multiprocessing.get_context("spawn")
    display = _Display(jobs, console, 0.0 if fresh else sum(map(_share, jobs)) / len(jobs))
    stop = context.Event()
    with StopSignals(enabled=True) as signals, ProcessPoolExecutor(processes, context, _begin, (stop,)) as pool:
        futures = [pool.submit(_run, job, fresh) for job in jobs]
        with display:
            while not all(future.done() for future in futures):
                if signals.requested:
                    stop.set()  # for runs that a process has already fetched, which cannot be cancelled
                    pool.shutdown(wait=False, cancel_futures=True)
                    for child in multiprocessing.active_children():
                        child.terminate()  # which a run takes as the signal to save and stop
                display.update(futures)
                time.sleep(_SECONDS_BETWEEN_LOOKS)
            display.update(futures)
    if signals.number is not None:
        raise Interrupted("stopped, everything is saved. The same command goes on from here", signals.number)
    return [future.result() for future in futures]


_stop: Event | None = None  # of the process that shows the runs, in each that does them
_orphaned = threading.Event()  # when that process is no more
_busy = threading.Lock()  # while a run is under way


def _begin(stop: Event) -> None:
    """Signals are for the process that shows the runs; a run that is under way listens for itself."""
    global _stop
    _stop = stop
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_stop_with_parent, daemon=True).start()


def _stop_with_parent() -> None:
    """Should the process that shows the runs be killed, nobody would wait for this one: save and stop."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        _orphaned.set()
        while not _busy.acquire(timeout=_SECONDS_BETWEEN_LOOKS):
            signal.raise_signal(signal.SIGTERM)  # which is ignored until the run listens
        os._exit(1)


def _run(job: Job, fresh: bool) -> float:
    with _busy:
        if _orphaned.is_set() or (_stop is not None and _stop.is_set()):
            raise Interrupted("not begun", signal.SIGTERM)
        return _run_now(job, fresh)


def _run_now(job: Job, fresh: bool) -> float:
    torch.set_num_threads(1)
    settings = FitSettings.from_flat(job.settings)
    resume = not fresh and _begun(job, settings)
    done = last_epoch(job.folder) if resume else None
    if done is not None and _complete(job):
        return done.seconds
    with Path(os.devnull).open("w") as nowhere:
        quiet = Console(file=nowhere)
        try:
            run_settings(settings, job.folder, console=quiet, resume=resume, overwrite=not resume, quiet=True)
        except NumericalError as error:  # its best model is kept, and is shown like the others
            write_atomically(job.folder / FAILURE, f"{error}\n")
    last = last_epoch(job.folder)
    return last.seconds if last is not None else 0.0


def _begun(job: Job, settings: FitSettings) -> bool:
    """Whether the folder has a state to go on from, of a run with these settings."""
    if not (job.folder / CHECKPOINT / FILE).exists():
        return False
    return SavedRun(job.folder).settings.flat() == settings.flat()


def _check_settings(job: Job) -> None:
    """Complain about a run with other settings: it may have taken hours."""
    if not (job.folder / CHECKPOINT / FILE).exists():
        return
    there, wanted = SavedRun(job.folder).settings.flat(), FitSettings.from_flat(job.settings).flat()
    others = [name for name in wanted if there.get(name) != wanted[name]]
    if others:
        shown = ", ".join(f"{name} = {there.get(name)}, not {wanted[name]}" for name in others[:3])
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        raise ValueError(
            f"{job.folder} holds a run with other settings ({shown}{more}). Choose another --out, or remove that folder"
        )


def _complete(job: Job) -> bool:
    """Whether the state in the folder is that of the end; nothing is read but its head."""
    with safe_open(job.folder / CHECKPOINT / FILE, "pt") as state:
        return bool(json.loads(state.metadata()["progress"])["finished"])


def _share(job: Job) -> float:
    """How much of a run there is to go on from."""
    last = last_epoch(job.folder) if _begun(job, FitSettings.from_flat(job.settings)) else None
    return 0.0 if last is None else 1.0 if _complete(job) else last.epoch / job.epochs


class _Display:
    """A bar for every run that is under way, and one line for each that is done."""

    def __init__(self, jobs: Sequence[Job], console: Console, before: float):
        self._jobs, self._console, self._before = jobs, console, before
        self._live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        self._started = self._line = time.perf_counter()
        self._told: set[int] = set()

    def __enter__(self) -> None:
        if self._live is not None:
            self._live.start()

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, futures: Sequence[Future[float]]) -> None:
        """Look at where each run is; tell what has changed."""
        shares, running = [], []
        for i, (job, future) in enumerate(zip(self._jobs, futures, strict=True)):
            finished = future.done() and not future.cancelled() and future.exception() is None
            last = last_epoch(job.folder) if future.running() else None
            shares.append(1.0 if future.done() else last.epoch / job.epochs if last is not None else 0.0)
            if finished and i not in self._told:
                self._told.add(i)
                broke = " (it broke down; its best model is kept)" if (job.folder / FAILURE).exists() else ""
                text = f"{job.title}: done in {duration(future.result())}{broke}"
                self._console.print(text, highlight=False, soft_wrap=True, markup=False)
            elif last is not None:
                running.append((job, last.epoch, describe(last)))
        share, now = sum(shares) / len(shares), time.perf_counter()
        new = share - self._before
        left = duration((now - self._started) * (1 - share) / new) if new > 0.01 else "…"
        summary = f"{len(self._told)} of {len(self._jobs)} runs done, {left} left"
        if self._live is not None:
            self._live.update(_bars(running, summary))
        elif now - self._line > _SECONDS_BETWEEN_LINES:
            self._line = now
            parts = [summary, *(f"{job.title} epoch {epoch}/{job.epochs}: {text}" for job, epoch, text in running)]
            self._console.print(" · ".join(parts), highlight=False, soft_wrap=True, markup=False)


def _bars(running: Sequence[tuple[Job, int, str]], summary: str) -> Group:
    grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1)
    grid.add_column(no_wrap=True, style="dim")
    for job, epoch, text in running:
        grid.add_row(job.title, ProgressBar(job.epochs, epoch), f"epoch {epoch}/{job.epochs} · {text}")
    return Group(grid, Text(summary, style="dim"))


__all__ = ["Job", "preset_job", "run_jobs"]
