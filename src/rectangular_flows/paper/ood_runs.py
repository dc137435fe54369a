"""Runs on images judged against another set, and square flows of the same size; kept in the folders of the runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from rich.console import Console

from ..evaluation.ood import JudgedScore, judge, judge_run, rows_to_judge
from ..evaluation.scores import SCORES
from ..metrics.out_of_distribution import Detection
from ..plots.detection import Histogram
from ..runs.display import WorkDisplay
from ..runs.kept import kept
from ..runs.saved import SavedRun
from ..storage.files import load_tensors, save_tensors
from ..training import Run
from .image_runs import ImageRun
from .square_flow import log_likelihood_of_square_flow

SQUARE = "square flow"
_SETS = ("train", "test", "outside")
_MEANING = 3  # goes up with every change of what a score is, so that older values are not taken for it


@dataclass(frozen=True, eq=False)
class Direction:
    """What the scores of one model, trained inside, say of images from outside.

    Attributes:
        inside: the set that it was trained on.
        outside: the set from elsewhere.
        method: of training, or :data:`SQUARE`.
        seed: of the run.
        found: score → how well it tells the two apart.
        histograms: score → its values.
        names: score → its name for people.
    """

    inside: str
    outside: str
    method: str
    seed: int
    found: Mapping[str, Detection]
    histograms: Mapping[str, Histogram]
    names: Mapping[str, str]


def judge_direction(run: ImageRun, outside: str, count: int, console: Console) -> Direction:
    """Every score of a run's images and of others, from its folder where this very model was judged before.

    Args:
        run: a trained run.
        outside: a known set of images.
        count: at most so many images of each set.
        console: where to show how far it is.
    """

    def compute() -> Mapping[str, JudgedScore]:
        with WorkDisplay(console, f"{run.title} → {outside}: scoring") as display:
            return judge_run(SavedRun(run.folder), outside, count, display=display).scores

    return _direction(run, outside, run.method, f"{outside}, n {count}, scores {_MEANING}", compute)


def judge_square(run: ImageRun, outside: str, count: int, console: Console) -> Direction:
    """The likelihood of a square flow of the same size as a run's, trained with the same steps; kept likewise.

    Args:
        run: a trained run, whose settings it takes.
        outside: a known set of images.
        count: at most so many images of each set.
        console: where to show how far it is.
    """

    def compute() -> Mapping[str, JudgedScore]:
        saved = SavedRun(run.folder)
        flow, settings, data = saved.flow, saved.settings, saved.data
        chosen = rows_to_judge(saved, outside, count)
        with WorkDisplay(console, f"{run.data}: training a square flow") as display, _one_thread():

            def on_step(step: Run) -> None:
                display.total = step.progress.steps
                display.advance(1)

            options: dict[str, Any] = {"validation": data.validation, "on_step": on_step}
            found = log_likelihood_of_square_flow(flow, data.train, settings.training, chosen.sets, **options)
        scores = {}
        for name in ("log_density", "log_density_model"):
            values = {rows: np.nan_to_num(getattr(part, name), nan=-np.inf) for rows, part in found.items()}
            scores[name] = judge(values, chosen.halves, SCORES[name])
        return scores

    return _direction(run, outside, SQUARE, f"{SQUARE}, {outside}, n {count}, all pixels, scores {_MEANING}", compute)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Steps without tangents are so small that more threads would wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _direction(
    run: ImageRun, outside: str, method: str, key: str, compute: Callable[[], Mapping[str, JudgedScore]]
) -> Direction:
    """Numbers are kept as JSON, the values of every image as safetensors beside it, both under a name for the key."""
    name = "judged-" + key.replace(", ", "-").replace(" ", "-")
    numbers_file, values = f"{name}.json", run.folder / f"{name}.safetensors"

    def numbers() -> dict[str, Any]:
        scores = compute()
        save_tensors(
            values,
            {
                f"{name}.{part}": torch.from_numpy(np.ascontiguousarray(getattr(score, part)))
                for name, score in scores.items()
                for part in _SETS
            },
        )
        return {name: {**one.numbers(), "unit": one.score.unit} for name, one in scores.items()}

    if not values.exists():
        (run.folder / numbers_file).unlink(missing_ok=True)
    stored = kept(run.folder, numbers_file, key, numbers)
    tensors = load_tensors(values)
    found, histograms = {}, {}
    for name, figures in stored.items():
        found[name] = Detection(**{field: figures[field] for field in ("auroc", "aupr", "fpr95", "accuracy")})
        train, test, outside_test = (tensors[f"{name}.{part}"].numpy() for part in _SETS)
        histograms[name] = Histogram(train, test, outside_test, found[name], figures["threshold"], figures["unit"])
    names = {name: figures["name"] for name, figures in stored.items()}
    return Direction(run.data, outside, method, run.seed, found, histograms, names)


__all__ = ["SQUARE", "Direction", "judge_direction", "judge_square"]
