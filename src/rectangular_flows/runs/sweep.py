"""A grid of runs: their jobs, and what came of each, on the validation rows."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open

from ..settings.grid import Point
from ..storage.files import write_atomically
from ..storage.texts import as_json
from ..training.checkpoint import CHECKPOINT
from ..training.history import read_history
from .jobs import Job, Outcome
from .launch import with_full_paths

RESULTS, TABLE, FIGURE = "results.json", "results.csv", "results.png"
NUMBERS = ("objective", "nll", "reconstruction", "seconds")
"""Of a run: validation rows, in the units of its model, at its best epoch; and the time it took."""
COMPARE = "likelihoods of different latent dimensions are densities of different kinds: compare them within one"
_NAMES = {"nll": "negative_log_likelihood"}


@dataclass(frozen=True)
class Result:
    """What came of a run: the settings that vary, its folder, why it failed if it did, and its numbers if it has any."""

    values: dict[str, Any]
    folder: Path
    failure: str
    best_epoch: int
    numbers: dict[str, float]

    @property
    def state(self) -> str:
        """In a word."""
        return "failed" if self.failure else "done"

    def flat(self) -> dict[str, Any]:
        """As a line of a table."""
        known = {name: self.numbers.get(name, math.nan) for name in NUMBERS}
        facts = {"state": self.state, **known, "best_epoch": self.best_epoch}
        return {**self.values, **facts, "folder": str(self.folder), "failure": self.failure}


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seeds only: their number, and the mean and standard error of each of their numbers."""

    values: dict[str, Any]
    runs: int
    mean: dict[str, float]
    error: dict[str, float]


def sweep_jobs(points: Sequence[Point], out: Path) -> list[Job]:
    """A run for each point, in a folder of its own."""
    return [Job(point.title, with_full_paths(point.settings).flat(), out / point.folder) for point in points]


def result_of(point: Point, job: Job, outcome: Outcome) -> Result:
    """From the folder of the run; a run that broke down has the numbers of its best model, and says that it did."""
    failure = outcome.failure or ("" if job.complete else _broke_down(job.folder))
    history = read_history(job.folder) if job.complete else []
    if not history:
        return Result(point.values, job.folder, failure, 0, {})
    with safe_open(job.folder / CHECKPOINT, "pt") as state:  # reads only the head
        epoch = int(json.loads(state.metadata()["progress"])["best_epoch"])
    best = next((line for line in history if line.epoch == epoch), history[-1])
    numbers = {name: float(getattr(best, _NAMES.get(name, name))) for name in NUMBERS}
    return Result(point.values, job.folder, failure, best.epoch, {**numbers, "seconds": history[-1].seconds})


def _broke_down(folder: Path) -> str:
    from ..training.folder import FAILURE

    path = folder / FAILURE
    return path.read_text(encoding="utf-8").strip() if path.exists() else "it is not finished"


def without_seed(result: Result) -> dict[str, Any]:
    """All that varies but the seed."""
    return {name: value for name, value in result.values.items() if name != "seed"}


def groups_of(results: Sequence[Result]) -> list[Group]:
    """The finished runs by all that varies but the seed, in the order of the results."""
    found: list[tuple[dict[str, Any], list[Result]]] = []
    for result in results:
        own = without_seed(result)
        members = next((members for values, members in found if values == own), None)
        if members is None:
            found.append((own, members := []))
        members += [result] if result.numbers else []
    groups = []
    for own, members in found:
        mean, error = {}, {}
        for name in NUMBERS:
            values = [member.numbers[name] for member in members]
            mean[name] = statistics.fmean(values) if values else math.nan
            enough = len(values) > 1 and all(map(math.isfinite, values))
            error[name] = statistics.stdev(values) / math.sqrt(len(values)) if enough else math.nan
        groups.append(Group(own, len(members), mean, error))
    return groups


def write_results(out: Path, results: Sequence[Result]) -> None:
    """``results.json`` and ``results.csv``."""
    groups = [vars(group) for group in groups_of(results)]
    write_atomically(out / RESULTS, as_json({"runs": [result.flat() for result in results], "groups": groups}))
    text = io.StringIO()
    lines = [result.flat() for result in results]
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    write_atomically(out / TABLE, text.getvalue())
