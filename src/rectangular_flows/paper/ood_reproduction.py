"""``rnf reproduce ood``: the paper's table of out-of-distribution accuracy, and its histograms, published and ours."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from .._version import __version__
from ..data.tables import DataError
from ..evaluation.ood import check_count
from ..plots.detection import Histogram
from ..report import Grid, Page, Picture, Section, Text, write
from ..runs.display import say_where, wide_console
from ..storage.files import save_figure, write_atomically
from .image_runs import HEADLINES, at_hand, train_runs
from .ood_figure import draw_directions
from .ood_runs import SQUARE, Direction, judge_direction, judge_square
from .reproduction import Verdict, mean_and_error, shortened, show_table, show_verdicts, verdict_sections

PAIRS = {"mnist": "fashion-mnist", "fashion-mnist": "mnist"}

# accuracy of the stump on log-densities, of the paper's table of images, by the set trained on
PUBLISHED: dict[str, dict[str, float]] = {
    "mnist": {"exact": 0.92, "K = 1": 0.97, "two-step": 0.98},
    "fashion-mnist": {"exact": 0.91, "K = 1": 0.78, "two-step": 0.96},
}
DENSITY = {"mnist": 0.92, "fashion-mnist": 0.91}
"""What the stump on the log-density is to reach, and"""
COMBINED = {"mnist": 0.98, "fashion-mnist": 0.97}
"""on the outlier score, with"""
AUROC = 0.99

_DENSITIES = {"log_density": "pixels", "log_density_model": "model units"}
_BASELINE = "pca"
_DRAWN = ("log_density", "log_density_model", "reconstruction_error_model")
HEADINGS = ("trained on", "against", "method", "score", "published", "stump", "AUROC", "FPR at 95 %")
CAPTION = (
    "published, stump: accuracy of a decision stump, whose threshold is fitted on training images of both sets, on test "
    "images; published on the log-density. AUROC below 0.5: images from elsewhere score higher. All else is fitted inside."
)
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


def ood_reproduction_command(
    out: Path,
    methods: Sequence[str],
    seeds: int,
    epochs: int | None,
    processes: int | None,
    *,
    count: int = 10_000,
    square: bool = True,
) -> int:
    """Train what ``rnf reproduce images`` has not, judge both directions, print the table, draw, write the page.

    Args:
        out: the folder; runs are in its 'images', results in its 'ood'.
        methods: of training.
        seeds: how many, from 0.
        epochs: a limit.
        processes: runs at a time.
        count: at most so many images of each set.
        square: whether to train the contrast as well, for each set.
    """
    check_count(count)
    console = wide_console()
    if len(at_hand(list(PAIRS), console)) < len(PAIRS):
        raise DataError(f"expected both sets, {' and '.join(PAIRS)}, to be at hand. See rnf data get")
    runs = train_runs(out / "images", list(PAIRS), methods, seeds, epochs, processes, console)
    found = []
    for run in runs:
        found.append(judge_direction(run, PAIRS[run.data], count, console))
        if square and run.seed == 0 and run.method == methods[0]:
            found.append(judge_square(run, PAIRS[run.data], count, console))
    verdicts, rows = judge(found), table_rows(found)
    show_table(console, "Telling images from elsewhere", HEADINGS, rows, CAPTION, left=4)
    if epochs is not None:
        console.print(shortened(epochs), highlight=False)
    show_verdicts(console, verdicts)
    folder = out / "ood"
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / "ood.png"
    save_figure(picture, draw_directions(panels(found, methods[0])))
    numbers = {"directions": [_numbers(each) for each in found], "images": count, "epochs": epochs}
    write_atomically(folder / "results.json", json.dumps(numbers, indent=1) + "\n")
    write(_page(rows, verdicts, picture, methods[0], epochs, square), folder / "report.html")
    places = {"numbers": folder / "results.json", "figure": picture, "report": folder / "report.html"}
    say_where(console, places)
    return 0


def table_rows(found: Sequence[Direction]) -> list[list[str]]:
    """A row for each direction, method and score, as :data:`HEADINGS` says; means over seeds. Of PCA, one a direction."""
    rows = []
    baselines: set[str] = set()
    for (inside, method), group in _groups(found).items():
        for score, name in group[0].names.items():
            if score == _BASELINE and inside in baselines:  # it knows nothing of the method
                continue
            if score == _BASELINE:
                baselines.add(inside)
            published = PUBLISHED[inside].get(method) if score in _DENSITIES else None
            rows.append(
                [
                    inside,
                    group[0].outside,
                    "no flow" if score == _BASELINE else method,
                    name,
                    "" if published is None else f"{published:.0%}",
                    f"{_mean(group, score, 'accuracy'):.1%}",
                    f"{_mean(group, score, 'auroc'):.4f}",
                    f"{_mean(group, score, 'fpr95'):.1%}",
                ]
            )
    return rows


def judge(found: Sequence[Direction]) -> list[Verdict]:
    """What must hold of the methods with the exact volume, and whether it does."""
    verdicts: list[Verdict] = []
    groups = _groups(found)
    for inside, method in itertools.product(PAIRS, HEADLINES):
        group = groups.get((inside, method))
        if group is None:
            continue
        title = f"{inside} → {PAIRS[inside]}, {method}"
        for score, units in _DENSITIES.items():
            value, limit = _mean(group, score, "accuracy"), DENSITY[inside]
            verdicts.append((f"{title}, stump on log-density ({units}) {value:.2%} ≥ {limit:.0%}", value >= limit))
        value, limit = _mean(group, "outlier_score", "accuracy"), COMBINED[inside]
        verdicts.append((f"{title}, stump on the outlier score {value:.2%} ≥ {limit:.0%}", value >= limit))
        value = _mean(group, "outlier_score", "auroc")
        verdicts.append((f"{title}, AUROC of the outlier score {value:.4f} ≥ {AUROC}", value >= AUROC))
    return verdicts


def panels(found: Sequence[Direction], method: str) -> dict[str, dict[str, Histogram]]:
    """What the figure shows: densities and distances of the first seed in both directions, and the square flow's density."""
    rows: dict[str, dict[str, Histogram]] = {}
    drawn = {method: _DRAWN, SQUARE: _DRAWN[:1]}
    for each in found:
        if each.seed == 0 and each.method in drawn:
            row = rows.setdefault(f"Trained on {each.inside} (inside), against {each.outside} (outside)", {})
            before = f"{SQUARE}: " if each.method == SQUARE else ""
            row |= {before + each.names[s]: each.histograms[s] for s in drawn[each.method] if s in each.histograms}
    return rows


def _groups(found: Sequence[Direction]) -> dict[tuple[str, str], list[Direction]]:
    groups: dict[tuple[str, str], list[Direction]] = {}
    for each in found:
        groups.setdefault((each.inside, each.method), []).append(each)
    return groups


def _mean(group: Sequence[Direction], score: str, field: str) -> float:
    return mean_and_error([getattr(each.found[score], field) for each in group])[0]


def _numbers(each: Direction) -> Mapping[str, object]:
    facts = {name: getattr(each, name) for name in ("inside", "outside", "method", "seed")}
    return {**facts, "scores": {name: asdict(found) for name, found in each.found.items()}}


def _page(
    rows: Sequence[Sequence[str]],
    verdicts: Sequence[Verdict],
    picture: Path,
    method: str,
    epochs: int | None,
    square: bool,
) -> Page:
    alt = "Histograms of log-densities and squared distances of images inside and outside, a row for each direction"
    meant = _SQUARE_MEANING.strip() if square else ""
    text = "\n\n".join(part for part in (_MEANING.strip(), meant, shortened(epochs)) if part)
    return Page(
        "Images from elsewhere, reproduced",
        "Rectangular flows on MNIST against Fashion-MNIST and the other way round: published, and ours.",
        [
            Section("Results", [*_grids(rows), Text(text)]),
            Section("Histograms", [Picture(picture, alt, f"Method: {method}, seed 0.")]),
            *verdict_sections(verdicts),
        ],
        f"rectangular-flows {__version__} · rnf reproduce ood",
    )


def _grids(rows: Sequence[Sequence[str]]) -> list[Grid]:
    """A table for each direction."""
    grids = []
    for inside, outside in PAIRS.items():
        mine = [row[2:] for row in rows if row[0] == inside]
        grids.append(Grid(HEADINGS[2:], mine, f"Trained on {inside}, against {outside}. {CAPTION}"))
    return grids


__all__ = ["PAIRS", "PUBLISHED", "judge", "ood_reproduction_command", "panels", "table_rows"]
