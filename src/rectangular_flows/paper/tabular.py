"""``rnf reproduce tabular``: the paper's table of FID-like scores, published and ours, over seeds."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console

from ..data.benchmarks import load_benchmark
from ..data.datasets import Splits
from ..data.tables import MissingFileError
from ..metrics.frechet import fid_like
from ..metrics.two_sample import real_floor, sliced_wasserstein
from ..report import Grid, Page, Picture, Section, Text, write
from ..runs.display import duration, say_where, wide_console
from ..runs.jobs import Job, preset_job, run_jobs
from ..runs.kept import kept
from ..settings import read_preset
from ..storage.files import save_figure, write_atomically
from ..storage.models import load_model
from .reproduction import (
    Verdict,
    check_seeds,
    mean_and_error,
    mean_cell,
    shortened,
    show_table,
    show_verdicts,
    verdict_sections,
)
from .tabular_figure import Bars, draw_tabular

SAMPLES = 50_000
_RESULT = "tabular.json"


class Method(NamedTuple):
    """A way to train: the ending of its preset's name, and what it changes in it."""

    ending: str
    change: Mapping[str, Any]


METHODS = {
    "exact": Method("", {}),
    "K = 1": Method("", {"volume": "stochastic", "probes": 1}),
    "K = 10": Method("", {"volume": "stochastic", "probes": 10}),
    "two-step": Method("-two-step", {}),
}
PUBLISHED_PROBES = {"distribution": "gaussian", "solver": "cg"}
KEYS = {name.lower().replace(" = ", ""): name for name in METHODS}

# FID-like scores of the paper's Table 2, mean and standard error over 5 seeds
PUBLISHED: dict[str, dict[str, tuple[float, float]]] = {
    "power": {"exact": (0.067, 0.016), "K = 1": (0.083, 0.015), "K = 10": (0.113, 0.037), "two-step": (0.178, 0.024)},
    "gas": {"exact": (0.138, 0.023), "K = 1": (0.110, 0.021), "K = 10": (0.140, 0.013), "two-step": (0.161, 0.016)},
    "hepmass": {"exact": (0.486, 0.032), "K = 1": (0.779, 0.191), "K = 10": (0.495, 0.055), "two-step": (0.649, 0.081)},
    "miniboone": {
        "exact": (0.978, 0.082),
        "K = 1": (1.001, 0.051),
        "K = 10": (0.878, 0.083),
        "two-step": (1.085, 0.062),
    },
}


@dataclass(frozen=True)
class Target:
    """What must hold of our settings on a data set."""

    fid_like: float
    sliced_wasserstein: float = math.inf
    largest_error: float = math.inf
    seconds: float = 600.0


TARGETS = {
    "power": Target(fid_like=0.013, sliced_wasserstein=0.003),
    "miniboone": Target(fid_like=0.75, largest_error=100.0),
}


@dataclass(frozen=True)
class Result:
    """One run on the test rows; distances in the benchmark's standardised units."""

    seed: int
    fid_like: float
    sliced_wasserstein: float
    reconstruction: float
    largest_error: float
    seconds: float


@dataclass(frozen=True)
class Group:
    """The runs of one data set, one method and one kind of settings, over seeds."""

    data: str
    method: str
    settings: str
    results: Sequence[Result]

    def cell(self, field: str) -> str:
        """Mean ± standard error."""
        return mean_cell([getattr(result, field) for result in self.results])

    def mean(self, field: str) -> float:
        """Mean over the seeds."""
        return mean_and_error([getattr(result, field) for result in self.results])[0]


def tabular_command(
    out: Path,
    names: Sequence[str],
    methods: Sequence[str],
    seeds: int,
    epochs: int | None,
    processes: int | None,
    published: bool = False,
) -> int:
    """Train, compare with the test rows, print the table, draw it, write the page."""
    console = wide_console()
    check_seeds(seeds)
    at_hand = {}
    for name in names:
        with console.status(f"reading {name} …"):
            try:
                at_hand[name] = load_benchmark(name)
            except MissingFileError:
                console.print(f"{name}: data not at hand (rnf data get {name})", highlight=False)
    kinds = ("ours", "published")[: 1 + published]
    jobs = {
        (name, method, kind): _jobs(out, name, method, kind, seeds, epochs)
        for name in at_hand
        for kind in kinds
        for method in methods
    }
    every = list({job.folder: job for group in jobs.values() for job in group}.values())
    times = run_jobs(every, console, processes) if every else []
    seconds = {job.folder: took for job, took in zip(every, times, strict=True)}
    groups, done = [], 0
    for (name, method, settings), group in jobs.items():
        results = []
        for job in group:
            with console.status(f"evaluating run {done + 1} of {sum(map(len, jobs.values()))} …"):
                results.append(_result(job, at_hand[name], seconds[job.folder]))
            done += 1
        groups.append(Group(name, method, settings, results))
    with console.status("comparing real with real …"):
        floors = {name: _floors(splits) for name, splits in at_hand.items()}
    show(console, out, names, groups, floors, {name: splits.note for name, splits in at_hand.items()}, epochs)
    return 0


def _jobs(out: Path, name: str, method: str, kind: str, seeds: int, epochs: int | None) -> list[Job]:
    """A job for each seed. With d orthonormal probes or more the gradient is the exact one: those are the exact runs."""
    chosen = METHODS[method]
    preset = f"{name}{'-published' if kind == 'published' else ''}{chosen.ending}"
    if kind == "ours" and chosen.change.get("probes", 0) >= read_preset(preset)["latent_dim"]:
        method, chosen = "exact", METHODS["exact"]
    folder = out / preset / method.lower().replace(" = ", "")
    change = {**chosen.change, **(PUBLISHED_PROBES if kind == "published" and "probes" in chosen.change else {})}
    return [
        preset_job(f"{preset}, {method}, seed {seed}", preset, folder / f"seed-{seed}", seed, epochs, change)
        for seed in range(seeds)
    ]


def show(
    console: Console,
    out: Path,
    names: Sequence[str],
    groups: Sequence[Group],
    floors: Mapping[str, tuple[float, float]],
    notes: Mapping[str, str],
    epochs: int | None,
) -> None:
    """The table on the console; figure, page and numbers in the folder."""
    verdicts = judge(groups)
    rows = table_rows(names, groups, floors)
    show_table(console, "FID-like scores on the test rows", _HEADINGS, rows, _CAPTION, left=3)
    if epochs is not None:
        console.print(shortened(epochs), highlight=False)
    for name, note in notes.items():
        if note:
            console.print(f"{name}: {note}", highlight=False)
    show_verdicts(console, verdicts)
    numbers = {
        "groups": [asdict(group) for group in groups],
        "floors": {
            name: dict(zip(("fid_like", "sliced_wasserstein"), both, strict=True)) for name, both in floors.items()
        },
        "samples": SAMPLES,
    }
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "results.json", json.dumps(numbers, indent=1) + "\n")
    places = {"numbers": out / "results.json"}
    if groups:
        picture = out / "tabular.png"
        save_figure(picture, draw_tabular(bars(groups), floors, PUBLISHED))
        write(_page(rows, verdicts, notes, picture, epochs), out / "report.html")
        places |= {"figure": picture, "report": out / "report.html"}
    say_where(console, places)


_HEADINGS = ("data", "method", "settings", "published", "ours", "floor", "SW²", "floor", "distance", "time")
_CAPTION = (
    f"FID-like and squared sliced Wasserstein-2 of {SAMPLES:,} samples, mean ± standard error over seeds; floor: training "
    "rows against test rows; distance: mean squared, test rows."
)
_MEANING = """
The *FID-like score* compares means and covariances of samples and data, and nothing else: a full-rank Gaussian with the
data's covariance scores better than any flow here. *SW²*, the squared sliced Wasserstein-2 distance, sees the shape of the
distribution as well. The *floor* of each is what real rows score against real rows.
"""


def table_rows(
    names: Sequence[str], groups: Sequence[Group], floors: Mapping[str, tuple[float, float]]
) -> list[list[str]]:
    """One row for each data set, method and kind of settings; those not at hand say so."""
    rows = []
    for name in names:
        mine = [group for group in groups if group.data == name]
        for group in mine:
            shown = "{:.3f} ± {:.3f}".format(*PUBLISHED[name][group.method])
            floor, sliced_floor = floors[name]
            time = duration(group.mean("seconds"))
            scores = [shown, group.cell("fid_like"), f"{floor:.4f}", group.cell("sliced_wasserstein")]
            distance = f"{group.mean('reconstruction'):.4f}"
            same = any(g.results == group.results and g.method != group.method for g in mine if g.method == "exact")
            method = f"{group.method} ≥ d, as exact" if same else group.method
            rows.append([name, method, group.settings, *scores, f"{sliced_floor:.4f}", distance, time])
        if not mine:
            for method, published in PUBLISHED[name].items():
                shown = "{:.3f} ± {:.3f}".format(*published)
                rows.append([name, method, "", shown, "data not at hand", "", "", "", "", ""])
    return rows


def judge(groups: Sequence[Group]) -> list[Verdict]:
    """What must hold of our settings, and whether it does."""
    ours = {(g.data, g.method): g for g in groups if g.settings == "ours"}
    found = []
    for name, target in TARGETS.items():
        for method in ("exact", "K = 1"):
            group = ours.get((name, method))
            if group is None:
                continue
            title = f"{name}, {method}"
            for field, text, limit in (
                ("fid_like", "mean FID-like", target.fid_like),
                ("sliced_wasserstein", "mean SW²", target.sliced_wasserstein),
            ):
                if math.isfinite(limit):
                    found.append((f"{title}, {text} {group.mean(field):.4f} ≤ {limit}", group.mean(field) <= limit))
            longest = max(result.seconds for result in group.results)
            text = f"{title}, longest run {duration(longest)} ≤ {duration(target.seconds)}"
            found.append((text, longest <= target.seconds))
            if math.isfinite(target.largest_error):
                worst = max(result.largest_error for result in group.results)
                found.append(
                    (
                        f"{title}, largest squared distance {worst:.1f} ≤ {target.largest_error:g}",
                        worst <= target.largest_error,
                    )
                )
            other = ours.get((name, "two-step"))
            if other is not None:
                a, b = group.mean("fid_like"), other.mean("fid_like")
                found.append((f"{title}, FID-like below two-step's ({a:.4f} < {b:.4f})", a < b))
    return found


def bars(groups: Sequence[Group]) -> list[Bars]:
    """What the figure shows of each group."""
    return [
        Bars(
            group.data,
            group.method,
            group.settings,
            [result.fid_like for result in group.results],
            [result.sliced_wasserstein for result in group.results],
        )
        for group in groups
    ]


def _result(job: Job, splits: Splits, seconds: float) -> Result:
    """The scores of a run, from its folder where they were computed of this very model."""

    def compute() -> dict[str, Any]:
        flow, seed = load_model(job.folder), int(job.settings["seed"])
        samples = flow.sample(SAMPLES, generator=torch.Generator().manual_seed(seed)).double().numpy()
        with torch.no_grad():
            rows = torch.from_numpy(splits.test)
            errors = torch.cat([flow.reconstruction_error(part) for part in rows.split(20_000)])
        sliced = sliced_wasserstein(samples, _some(splits.test), seed=0)
        distances = float(errors.mean()), float(errors.max())
        return asdict(Result(seed, fid_like(samples, splits.test), sliced, *distances, seconds))

    return Result(**kept(job.folder, _RESULT, f"{SAMPLES} samples", compute))


def _floors(splits: Splits) -> tuple[float, float]:
    """FID-like and SW² of training rows against test rows, as many on each side as there are, and 50,000 at the most."""
    size = min(SAMPLES, len(splits.train), len(splits.test))
    metrics = (fid_like, partial(sliced_wasserstein, seed=0))
    fid, sliced = (real_floor(metric, splits.train, splits.test, size=size) for metric in metrics)
    return fid, sliced


def _some(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """At most as many rows as there are samples, so that a floor at that number is comparable."""
    return rows[np.random.default_rng(0).permutation(len(rows))[:SAMPLES]]


def _page(
    rows: Sequence[Sequence[str]],
    verdicts: Sequence[Verdict],
    notes: Mapping[str, str],
    picture: Path,
    epochs: int | None,
) -> Page:
    from .._version import __version__

    said = "".join(f"\n\n**{name}:** {note}" for name, note in notes.items() if note)
    return Page(
        "The paper's tables, reproduced",
        "FID-like scores of rectangular flows on tabular data: published, and ours.",
        [
            Section("Results", [Grid(_HEADINGS, rows, _CAPTION), Text(f"{_MEANING}{said}\n\n{shortened(epochs)}")]),
            Section("Every run", [Picture(picture, "Scores of every run beside the published ones", "")]),
            *verdict_sections(verdicts),
        ],
        f"rectangular-flows {__version__} · rnf reproduce tabular",
    )


__all__ = ["KEYS", "METHODS", "PUBLISHED", "tabular_command"]
