"""The von Mises circle: ``rnf reproduce circle``, its grid of all settings, and ``rnf demo``."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tomli_w
from matplotlib.figure import Figure

from .._version import __version__
from ..atlas import one_chart
from ..data import von_mises_circle
from ..metrics import CircleFit, circle_fit
from ..plots.circle import CircleResult
from ..report.page import Cards, Code, Metric, Page, Picture, Section, Text
from ..report.page import Grid as PageGrid
from ..report.run import training_charts
from ..runs.display import duration
from ..runs.jobs import preset_job
from ..storage.files import write_atomically
from ..storage.models import load_model
from ..training.folder import read_config
from ..training.history import read_history
from .circle_figure import draw_circle, draw_circle_grid
from .experiment import Cell, Experiment, Group, Table, Verdict
from .options import Request

ML, TWO_STEP, CLOSED = "Maximum likelihood", "Two-step", "Closed latent space"
PRESETS = {
    ML: "circle",
    TWO_STEP: "circle-baseline",
    f"{ML}, as published": "circle-ml",
    f"{TWO_STEP}, as published": "circle-two-step",
    f"{TWO_STEP}, as its inventors ran it": "circle-mflow",
}
KL, DISTANCE, MASS = 0.02, 0.05, 0.01
"""What our own preset must reach on every seed."""

_HEADINGS = ("method", "KL", "total variation", "mean distance", "max distance", "mass", "time")


@dataclass(frozen=True)
class CircleRun(CircleFit):
    """How a run compares with the truth, and the seconds it took."""

    seconds: float = math.nan


Groups = Sequence[Group[CircleRun]]


class Circle(Experiment[CircleRun]):
    """Our settings and the published ones over seeds. The paper gives figures only."""

    name = "circle"
    title = "The von Mises circle, reproduced"
    subtitle = "Our settings and the published ones. The paper shows figures and gives no numbers for them."
    picture = ("circle-seeds.png", "Learned curves of every run, coloured by density", "")
    meaning = """
*KL* measures how far the learned density on the circle is from the true one (0 is perfect). *Total variation* compares where
the samples go, sector by sector. *Distances* are those of the learned curve to the circle: their mean, and the largest over
the central 99 % of its probability. *Mass* is the integral of the density along the curve: 1 if map, speed and density fit
together.
"""

    @property
    def presets(self) -> dict[str, str]:
        """Those asked for, by their names in the table."""
        wanted = self.request.methods or tuple(PRESETS.values())
        return {method: preset for method, preset in PRESETS.items() if preset in wanted}

    def cells(self, data: str) -> list[Cell]:
        cells = []
        for row, (method, preset) in enumerate(self.presets.items()):
            for column, seed in enumerate(self.request.seeds):
                folder, epochs = self.folder / preset / f"seed-{seed}", self.request.epochs
                job = preset_job(f"{method}, seed {seed}", preset, folder, seed, epochs)
                cells.append(Cell(data, method, seed, job, place=(row, column)))
        return cells

    def judge(self, cell: Cell, seconds: float) -> CircleRun:
        found = CircleRun(**asdict(circle_fit(one_chart(load_model(cell.job.folder)))), seconds=seconds)
        write_atomically(cell.job.folder / "circle.json", json.dumps(_numbers(cell, found), indent=1) + "\n")
        return found

    def tables(self, groups: Groups) -> list[Table]:
        rows = [[group.label, *(summary(group.results) if group.runs else [group.missing])] for group in groups]
        caption = "KL(true‖model) of densities on the circle; distances of the curve to it."
        several = " Of several runs: median (worst)." if any(len(group.runs) > 1 for group in groups) else ""
        return [Table(self.title, _HEADINGS, rows, caption + several)]

    def verdicts(self, groups: Groups) -> list[Verdict]:
        found = {group.method: group.results for group in groups}
        ml, two_step = found.get(ML, []), found.get(TWO_STEP, [])
        checks = {
            f"KL ≤ {KL}": [run.kl <= KL for run in ml],
            f"largest distance ≤ {DISTANCE}": [run.max_distance <= DISTANCE for run in ml],
            f"mass within {MASS:.0%} of 1": [abs(run.mass - 1) <= MASS for run in ml],
            "smaller KL than two-step": [a.kl < b.kl for a, b in zip(ml, two_step, strict=False)],
        }
        made = {text: passed for text, passed in checks.items() if passed}
        return [(f"{ML}, {text}: {sum(ok)} of {len(ok)} seeds", all(ok)) for text, ok in made.items()]

    def numbers(self, groups: Groups) -> Any:
        return {group.method: [_numbers(*run) for run in group.runs] for group in groups}

    def labels(self) -> tuple[list[str], list[str]]:
        """Of the rows and columns of the figure."""
        return list(self.presets), [f"seed {seed}" for seed in self.request.seeds]

    def panels(self, groups: Groups) -> dict[tuple[int, int], CircleResult]:
        """(row, column) of the figure → the run shown there."""
        return {cell.place: _result(cell, fit) for group in groups for cell, fit in group.runs}

    def figure(self, groups: Groups) -> Figure:
        return draw_circle_grid(self.panels(groups), *self.labels())

    def sections(self, groups: Groups) -> list[Section]:
        rows = [[cell.job.title, *summary([fit])] for group in groups for cell, fit in group.runs]
        return [Section("All runs", [PageGrid(_HEADINGS, rows)], collapsed=True)]


class Grid(Circle):
    """All 12 maximum-likelihood and 24 two-step settings of the paper's appendix, one seed each."""

    name = "circle-grid"
    title = "The von Mises circle, all settings of the paper's appendix"
    subtitle = "One seed each. The paper shows a figure and gives no numbers for it."
    picture = ("circle-grid.png", "Learned curves of every setting, coloured by density", "")
    rows = tuple((rate, warm) for rate in (1e-3, 1e-4) for warm in (False, True))
    columns = (
        *((f"{ML}, 12 settings", beta) for beta in (10, 50, 200)),
        *((f"{TWO_STEP}, 24 settings", beta) for beta in (10, 50, 100, 200, 1_000, 10_000)),
    )

    def cells(self, data: str) -> list[Cell]:
        cells = []
        for column, (method, beta) in enumerate(self.columns):
            preset = "circle-ml" if method.startswith(ML) else "circle-two-step"
            for row, (rate, warm) in enumerate(self.rows):
                anneal = [500.0, 1000.0] if warm else [0.0, 0.0]
                change = {"beta": float(beta), "learning_rate": rate, "anneal": anneal}
                name = f"{preset}-lr{rate:g}-beta{beta}{'-warm-up' if warm else ''}"
                job = preset_job(name, preset, self.folder / name, 0, self.request.epochs, change)
                cells.append(Cell(data, method, 0, job, place=(row, column)))
        return cells

    def numbers(self, groups: Groups) -> Any:
        return [_numbers(*run) for group in groups for run in group.runs]

    def labels(self) -> tuple[list[str], list[str]]:
        """Rates and warm-ups; methods and weights of the reconstruction error."""
        rows = [f"rate {rate:g}{', warm-up' if warm else ''}" for rate, warm in self.rows]
        return rows, [f"{'ML' if method.startswith(ML) else TWO_STEP}, β {beta:,}" for method, beta in self.columns]

    def figure(self, groups: Groups) -> Figure:
        return draw_circle_grid(self.panels(groups), *self.labels(), breaks=(3,))


class Demo(Circle):
    """Our presets with one seed, the paper's first figure and a closed curve beside it, and a page for newcomers."""

    title = "The von Mises circle"
    picture = (
        "circle.png",
        "Eight panels: densities and speeds along the learned curves of three methods, the truth, and latent coordinates",
        "",
    )
    every_run = True
    fresh = True

    @property
    def folder(self) -> Path:
        return self.request.out

    @property
    def seed(self) -> int:
        """Of data, weights and batches."""
        return int(self.request.more["seed"])

    def cells(self, data: str) -> list[Cell]:
        cells = []
        for method in (ML, TWO_STEP, CLOSED):
            folder = self.folder / method.lower().replace(" ", "-")
            job = preset_job(
                method, {**PRESETS, CLOSED: "circle-closed"}[method], folder, self.seed, self.request.epochs
            )
            cells.append(Cell(data, method, self.seed, job))
        return cells

    def verdicts(self, groups: Groups) -> list[Verdict]:
        return []  # runs may be short

    def results(self, groups: Groups) -> tuple[CircleResult, CircleResult, CircleResult]:
        """Maximum likelihood, the two-step method and the closed curve, as the figure shows them."""
        found = {cell.method: _result(cell, fit) for group in groups for cell, fit in group.runs}
        return found[ML], found[TWO_STEP], found[CLOSED]

    def figure(self, groups: Groups) -> Figure:
        ml, two_step, closed = self.results(groups)
        return draw_circle(ml, two_step, von_mises_circle(5_000, seed=self.seed + 20_000), closed)

    def page(self, groups: Groups, tables: Sequence[Table], verdicts: Sequence[Verdict]) -> Page:
        fits = {group.method: group.results[0] for group in groups}
        folders = {cell.method: cell.job.folder for group in groups for cell, _ in group.runs}
        file, alt, _ = self.picture
        settings = [
            Section(f"Settings: {method}", [Code(tomli_w.dumps(read_config(folder)), "TOML")], collapsed=True)
            for method, folder in folders.items()
        ]
        return Page(
            "A density on a circle",
            "Rectangular flows on the von Mises circle: maximum likelihood beside the two-step method, and a closed curve.",
            [
                Section("In short", [_cards(fits[ML], fits[TWO_STEP]), Text(_WHAT)]),
                Section("What was learned", [Picture(self.folder / file, alt), Text(_FIGURE)]),
                Section(
                    "In numbers", [*(PageGrid(table.headings, table.rows) for table in tables), Text(self.meaning)]
                ),
                Section(
                    "How training went",
                    training_charts({method: read_history(folder) for method, folder in folders.items()}),
                ),
                Section("Your own data", [Code(_NEXT.strip(), "shell")]),
                *settings,
            ],
            f"rectangular-flows {__version__} · rnf demo --seed {self.seed}",
        )


def _cards(ml: CircleFit, two_step: CircleFit) -> Cards:
    return Cards(
        [
            Metric("KL to the truth", f"{ml.kl:.3f}", f"two-step: {two_step.kl:.3f}", ml.kl < two_step.kl),
            Metric("Mean distance to the circle", f"{ml.mean_distance:.4f}", f"two-step: {two_step.mean_distance:.4f}"),
            Metric("Mass of the curve", f"{ml.mass:.3f}", "1 is right", abs(ml.mass - 1) < MASS),
            Metric("Spread of the speed", f"{ml.speed_spread:.2f}", f"two-step: {two_step.speed_spread:.2f}"),
        ]
    )


def demo_command(out: Path, seed: int, epochs: int | None) -> int:
    """Train both methods on the circle, draw the paper's figure, write the report; the exit code."""
    return Demo(Request(out, ("circle",), epochs=epochs, more={"seed": seed})).run()


def summary(runs: Sequence[CircleRun]) -> list[str]:
    """The cells of a row: one value each, or median (worst)."""
    cells = []
    for name in ("kl", "total_variation", "mean_distance", "max_distance", "mass"):
        values = [getattr(run, name) for run in runs]
        worst = max(values, key=lambda value: abs(value - 1) if name == "mass" else value)
        cells.append(f"{statistics.median(values):.4f}" + (f" ({worst:.4f})" if len(runs) > 1 else ""))
    return [*cells, duration(statistics.median(run.seconds for run in runs))]


def _result(cell: Cell, fit: CircleRun) -> CircleResult:
    return CircleResult(cell.method, one_chart(load_model(cell.job.folder)), fit)


def _numbers(cell: Cell, found: CircleRun) -> dict[str, object]:
    return {"name": cell.job.title, **asdict(found)}


_WHAT = """
Real data with many columns often lie near a surface of few dimensions. Here the data are points of the plane on a circle,
which is a curve: two coordinates, one dimension. They are denser at the top than at the bottom (a von Mises distribution).

A **rectangular flow** learns two things at once: the curve, as a map *x = f(z)* from a line into the plane, and how probable
each part of it is. The method is that of [Rectangular Flows for Manifold Learning](https://arxiv.org/abs/2106.01413).

The difficulty is the *speed* ‖f′(z)‖ with which the map runs along the curve: where it runs fast, probability is spread
thin. **Maximum likelihood** trains the map with that factor in the objective. The earlier **two-step** method first fits the
curve without it and then a density on the line. It finds the circle, but a simple density on the line becomes a wrong one
on the circle.
"""
_FIGURE = """
**Upper row:** the curve that each method learned, coloured by the density along it, with the truth in the middle.
**Lower row, outside:** the speed of each map. **Lower row, middle:** where the data end up on the line (bars), and the
density that the model has there (lines).

An open curve cannot close: its ends meet at the bottom, where points are fewest, and their last stretches lead away from the
circle. They carry next to no probability. **On the right** the map starts from a circle instead of a line
(`--latent-space circle`): the curve closes, and nothing is left over.
"""
_NEXT = """
rnf fit your-table.csv --latent-dim 2 --out runs/mine   # learn a surface in your own data
rnf report runs/mine                                    # a page like this one
rnf sample runs/mine -n 1000 -o samples.csv             # new rows
rnf score runs/mine other.csv -o scores.csv             # density, distance and outlier score of every row
"""
