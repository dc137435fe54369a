"""``rnf reproduce ood``: the paper's table of out-of-distribution accuracy, and its histograms, published and ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from ..atlas import one_chart
from ..data.images import load_images
from ..evaluation.ood import JudgedScore, check_count, judge, judge_run, rows_to_judge
from ..evaluation.scores import SCORES
from ..metrics.out_of_distribution import Detection
from ..plots.detection import Histogram
from ..runs.display import WorkDisplay
from ..runs.kept import kept
from ..runs.saved import SavedRun
from ..storage.files import load_tensors, save_tensors
from ..training import Run
from .experiment import Cell, Experiment, Group, Table, Verdict, mean_and_error
from .images import HEADLINES, image_cells
from .ood_figure import draw_directions
from .square_flow import log_likelihood_of_square_flow

PAIRS = {"mnist": "fashion-mnist", "fashion-mnist": "mnist"}
"""The set trained on → the set from elsewhere."""

SQUARE = "square flow"

# accuracy of the stump on log-densities, of the paper's table of images, by the set trained on
PUBLISHED: dict[str, dict[str, float]] = {
    "mnist": {"exact": 0.92, "K = 1": 0.97, "two-step": 0.98},
    "fashion-mnist": {"exact": 0.91, "K = 1": 0.78, "two-step": 0.96},
}
# what the stump must reach on the log-density and on the outlier score, and the AUROC of the latter
DENSITY = {"mnist": 0.92, "fashion-mnist": 0.91}
COMBINED = {"mnist": 0.98, "fashion-mnist": 0.97}
AUROC = 0.99

_UNITS = {"log_density": "pixels", "log_density_model": "model units"}
_BASELINE = "pca"
_DRAWN = ("log_density", "log_density_model", "reconstruction_error_model")
_SETS = ("train", "test", "outside")
_VERSION = 3  # goes up with every change of what a score is, so that older values are not taken for it


@dataclass(frozen=True, eq=False)
class Direction:
    """What the scores of a model say of images from elsewhere.

    Attributes:
        found: score → how well it tells the two sets apart.
        histograms: score → its values.
        names: score → its name for people.
    """

    found: Mapping[str, Detection]
    histograms: Mapping[str, Histogram]
    names: Mapping[str, str]


Groups = Sequence[Group[Direction]]


class OutOfDistribution(Experiment[Direction]):
    """MNIST against Fashion-MNIST and the other way round, with the runs of ``rnf reproduce images``."""

    name = "ood"
    title = "Images from elsewhere, reproduced"
    subtitle = "Rectangular flows on MNIST against Fashion-MNIST and the other way round: published, and ours."
    every_set = True
    picture = (
        "ood.png",
        "Histograms of log-densities and squared distances of images inside and outside, a row for each direction",
        "The first method of the table, its first seed.",
    )

    def check(self) -> None:
        self.count: int = self.request.more.get("samples", 10_000)
        self.square = "no_square" not in self.request.more
        self.meaning = _MEANING + (_SQUARE_MEANING if self.square else "")
        check_count(self.count)

    def load(self, data: str) -> None:
        load_images(data)

    def cells(self, data: str) -> list[Cell]:
        first, *others = image_cells(data, self.request)
        return [first, *([Cell(data, SQUARE, first.seed, first.job)] if self.square else []), *others]

    def judge(self, cell: Cell, seconds: float) -> Direction:
        """Numbers are kept as JSON, the values of every image as safetensors beside it, both under a name for the key."""
        square, folder = cell.method == SQUARE, cell.job.folder
        key = f"{PAIRS[cell.data]}, n {self.count}"
        key = f"{SQUARE}, {key}, all pixels, scores {_VERSION}" if square else f"{key}, scores {_VERSION}"
        name = "judged-" + key.replace(", ", "-").replace(" ", "-")
        values = folder / f"{name}.safetensors"

        def numbers() -> dict[str, Any]:
            scores = self._square_scores(cell) if square else self._scores(cell)
            parts = [(f"{score}.{part}", getattr(scores[score], part)) for score in scores for part in _SETS]
            save_tensors(values, {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in parts})
            return {key: {**one.numbers(), "unit": one.score.unit} for key, one in scores.items()}

        if not values.exists():
            (folder / f"{name}.json").unlink(missing_ok=True)
        stored = kept(folder, f"{name}.json", key, numbers)
        tensors = load_tensors(values)
        found, histograms = {}, {}
        for score, facts in stored.items():
            found[score] = Detection(**{field: facts[field] for field in Detection.__dataclass_fields__})
            train, test, outside = (tensors[f"{score}.{part}"].numpy() for part in _SETS)
            histograms[score] = Histogram(train, test, outside, found[score], facts["threshold"], facts["unit"])
        return Direction(found, histograms, {score: facts["name"] for score, facts in stored.items()})

    def _scores(self, cell: Cell) -> Mapping[str, JudgedScore]:
        """As ``rnf ood`` has them."""
        outside = PAIRS[cell.data]
        with WorkDisplay(self.console, f"{cell.job.title} → {outside}: scoring") as display:
            return judge_run(SavedRun(cell.job.folder), outside, self.count, display=display).scores

    def _square_scores(self, cell: Cell) -> Mapping[str, JudgedScore]:
        """Log-likelihoods of a square flow of the same size as a run's, trained by as many steps."""
        saved = SavedRun(cell.job.folder)
        chosen = rows_to_judge(saved, PAIRS[cell.data], self.count)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # steps without tangents are so small that more threads would wait for each other
        try:
            with WorkDisplay(self.console, f"{cell.data}: training a square flow") as display:

                def on_step(run: Run) -> None:
                    display.total = run.progress.steps
                    display.advance(1)

                options: dict[str, Any] = {"validation": saved.data.validation, "on_step": on_step}
                training = one_chart(saved.flow), saved.data.train, saved.settings.training
                found = log_likelihood_of_square_flow(*training, chosen.sets, **options)
        finally:
            torch.set_num_threads(threads)
        scores = {}
        for name in _UNITS:
            values = {rows: np.nan_to_num(getattr(part, name), nan=-np.inf) for rows, part in found.items()}
            scores[name] = judge(values, chosen.halves, SCORES[name])
        return scores

    def tables(self, groups: Groups) -> list[Table]:
        headings = ("trained on", "against", "method", "score", "published", "stump", "AUROC", "FPR at 95 %")
        caption = (
            "published, stump: accuracy of a decision stump, whose threshold is fitted on training images of both sets, on "
            "test images; published on the log-density. AUROC below 0.5: images from elsewhere score higher. All else is "
            "fitted on the own set."
        )
        return [Table("Telling images from elsewhere", headings, table_rows(groups), caption, left=4)]

    def verdicts(self, groups: Groups) -> list[Verdict]:
        verdicts: list[Verdict] = []
        for group in (group for group in groups if group.method in HEADLINES):
            title = f"{group.data} → {PAIRS[group.data]}, {group.method}"
            limits = [(score, f"log-density ({units})", DENSITY) for score, units in _UNITS.items()]
            for score, text, limit in [*limits, ("outlier_score", "the outlier score", COMBINED)]:
                value, least = _mean(group, score, "accuracy"), limit[group.data]
                verdicts.append((f"{title}, stump on {text} {value:.2%} ≥ {least:.0%}", value >= least))
            value = _mean(group, "outlier_score", "auroc")
            verdicts.append((f"{title}, AUROC of the outlier score {value:.4f} ≥ {AUROC}", value >= AUROC))
        return verdicts

    def numbers(self, groups: Groups) -> Any:
        directions = [
            {
                "inside": cell.data,
                "outside": PAIRS[cell.data],
                "method": cell.method,
                "seed": cell.seed,
                "scores": {name: asdict(found) for name, found in direction.found.items()},
            }
            for group in groups
            for cell, direction in group.runs
        ]
        return {"directions": directions, "images": self.count, "epochs": self.request.epochs}

    def figure(self, groups: Groups) -> Figure:
        return draw_directions(panels(groups))


def table_rows(groups: Groups) -> list[list[str]]:
    """A row for each direction, method and score, means over seeds; of PCA, which knows no method, one a direction."""
    rows = []
    baselines: set[str] = set()
    for group in groups:
        head = [group.data, PAIRS[group.data]]
        if not group.runs:
            rows.append([*head, group.label, "", "", group.missing])
            continue
        for score, name in group.results[0].names.items():
            method, published = group.label, PUBLISHED[group.data].get(group.method) if score in _UNITS else None
            if score == _BASELINE:
                if group.data in baselines:
                    continue
                baselines.add(group.data)
                method = "no flow"
            shown = "" if published is None else f"{published:.0%}"
            accuracy, auroc, fpr95 = (_mean(group, score, field) for field in ("accuracy", "auroc", "fpr95"))
            rows.append([*head, method, name, shown, f"{accuracy:.1%}", f"{auroc:.4f}", f"{fpr95:.1%}"])
    return rows


def panels(groups: Groups) -> dict[str, dict[str, Histogram]]:
    """What the figure shows: densities and distances by the first method in both directions, the square flow's density."""
    rows: dict[str, dict[str, Histogram]] = {}
    drawn = {groups[0].method: ("", _DRAWN), SQUARE: (f"{SQUARE}: ", _DRAWN[:1])}
    for group in groups:
        if group.method in drawn:
            (before, scores), direction = drawn[group.method], group.results[0]
            row = rows.setdefault(f"Trained on {group.data} (inside), against {PAIRS[group.data]} (outside)", {})
            row |= {before + direction.names[score]: direction.histograms[score] for score in scores}
    return rows


def _mean(group: Group[Direction], score: str, field: str) -> float:
    return mean_and_error([getattr(direction.found[score], field) for direction in group.results])[0]


_MEANING = """
The paper's stump is fitted on the log-density of training images of both sets. *AUROC* and the *false positive rate at 95 %*
need no threshold. *Outlier score* and *typicality* are fitted on images of the own set only. *PCA residual* is the plain
baseline: the distance from a linear subspace of the same dimension, with no flow at all.
"""
_SQUARE_MEANING = """
The *square flow* has the couplings of the rectangular one, in all dimensions: a density of all pixels, the contrast of
Nalisnick et al., whose square flows gave images from elsewhere the higher likelihood. An AUROC below 0.5 says that this one
does too.
"""
