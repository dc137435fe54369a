"""The von Mises circle: ``rnf demo``, ``rnf reproduce circle`` and its grid."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from matplotlib.figure import Figure
from rich import box
from rich.console import Console
from rich.table import Table

from ..data import von_mises_circle
from ..metrics import circle_fit
from ..plots import CircleResult
from ..report import write
from ..runs.display import say_where, wide_console
from ..runs.jobs import Job, preset_job, run_jobs
from ..storage.files import save_figure, write_atomically
from ..storage.models import load_model
from .circle_figure import draw_circle, draw_circle_grid
from .circle_report import demo_page, reproduction_page
from .outcome import Outcome, summary
from .reproduction import Verdict, check_seeds, show_verdicts

_RESULT = "circle.json"
_DEMO = {"Maximum likelihood": "circle", "Two-step": "circle-baseline"}
_PUBLISHED = {
    "Maximum likelihood, as published": "circle-ml",
    "Two-step, as published": "circle-two-step",
    "Two-step, as its inventors ran it": "circle-mflow",
}
KL, DISTANCE, MASS = 0.02, 0.05, 0.01  # to be met by our own preset on every seed


def demo_command(out: Path, seed: int, epochs: int | None) -> int:
    """Train both methods, draw the paper's figure, write the report, say where they are."""
    console = wide_console()
    jobs = [
        preset_job(name, preset, out / name.lower().replace(" ", "-"), seed, epochs) for name, preset in _DEMO.items()
    ]
    ml, two_step = outcomes = _outcomes(jobs, console, None, fresh=True)
    figure = draw_circle(ml.result, two_step.result, von_mises_circle(5_000, seed=seed + 20_000))
    picture, report = out / "circle.png", out / "report.html"
    _save(figure, picture)
    write(demo_page(outcomes, picture, seed), report)
    console.print(_table("The von Mises circle", {outcome.job.title: [outcome] for outcome in outcomes}))
    say_where(console, {"figure": picture, "report": report, "runs": out})
    return 0


def reproduce_command(out: Path, seeds: int, epochs: int | None, processes: int | None) -> int:
    """Ours and the published settings over seeds: a table, a figure of all curves, a page."""
    console = wide_console()
    check_seeds(seeds)
    presets = {**_DEMO, **_PUBLISHED}
    jobs = [
        preset_job(f"{name}, seed {seed}", preset, out / preset / f"seed-{seed}", seed, epochs)
        for name, preset in presets.items()
        for seed in range(seeds)
    ]
    outcomes = _outcomes(jobs, console, processes)
    groups = {name: outcomes[i * seeds : (i + 1) * seeds] for i, name in enumerate(presets)}
    panels = {(i, j): o.result for i, group in enumerate(groups.values()) for j, o in enumerate(group)}
    labels = list(groups), [f"seed {seed}" for seed in range(seeds)]
    picture, report = out / "circle-seeds.png", out / "report.html"
    _save(draw_circle_grid(panels, *labels), picture)
    verdicts = _verdicts(groups["Maximum likelihood"], groups["Two-step"])
    write(reproduction_page(groups, verdicts, picture), report)
    console.print(_table(f"The von Mises circle, {seeds} seeds", groups))
    show_verdicts(console, verdicts)
    numbers = {name: [_numbers(o) for o in group] for name, group in groups.items()}
    write_atomically(out / "results.json", json.dumps(numbers, indent=1) + "\n")
    say_where(console, {"figure": picture, "report": report, "numbers": out / "results.json"})
    return 0


def grid_command(out: Path, epochs: int | None, processes: int | None) -> int:
    """All 12 maximum-likelihood and 24 two-step settings of the paper's appendix, in one figure."""
    console = wide_console()
    betas = {"circle-ml": (10, 50, 200), "circle-two-step": (10, 50, 100, 200, 1_000, 10_000)}
    rows = [(rate, warm) for rate in (1e-3, 1e-4) for warm in (False, True)]
    jobs, places = [], []
    for column, (preset, beta) in enumerate((p, b) for p, values in betas.items() for b in values):
        for row, (rate, warm) in enumerate(rows):
            change = {"beta": float(beta), "learning_rate": rate, "anneal": [500.0, 1000.0] if warm else [0.0, 0.0]}
            name = f"{preset}-lr{rate:g}-beta{beta}{'-warm-up' if warm else ''}"
            jobs.append(preset_job(name, preset, out / name, 0, epochs, change))
            places.append((row, column))
    outcomes = _outcomes(jobs, console, processes)
    panels = {place: outcome.result for place, outcome in zip(places, outcomes, strict=True)}
    heads = [f"{'ML' if p == 'circle-ml' else 'Two-step'}, β {b:,}" for p, values in betas.items() for b in values]
    sides = [f"rate {rate:g}{', warm-up' if warm else ''}" for rate, warm in rows]
    picture = out / "circle-grid.png"
    _save(draw_circle_grid(panels, sides, heads, breaks=(3,)), picture)
    write_atomically(out / "results.json", json.dumps([_numbers(o) for o in outcomes], indent=1) + "\n")
    groups = {"Maximum likelihood, 12 settings": outcomes[:12], "Two-step, 24 settings": outcomes[12:]}
    console.print(_table("The von Mises circle, all settings of the paper's appendix", groups, "settings"))
    say_where(console, {"figure": picture, "numbers": out / "results.json"})
    return 0


def _outcomes(jobs: Sequence[Job], console: Console, processes: int | None, fresh: bool = False) -> list[Outcome]:
    for job in jobs:
        job.folder.mkdir(parents=True, exist_ok=True)
    seconds = run_jobs(jobs, console, processes, fresh)
    outcomes = []
    for job, took in zip(jobs, seconds, strict=True):
        flow = load_model(job.folder)
        outcome = Outcome(job, CircleResult(job.title, flow, circle_fit(flow)), took)
        write_atomically(job.folder / _RESULT, json.dumps(_numbers(outcome), indent=1) + "\n")
        outcomes.append(outcome)
    return outcomes


def _numbers(outcome: Outcome) -> dict[str, object]:
    return {"name": outcome.job.title, "seconds": outcome.seconds, **asdict(outcome.fit)}


def _verdicts(ml: Sequence[Outcome], two_step: Sequence[Outcome]) -> list[Verdict]:
    """What must hold of our own preset, and whether it does."""
    n = len(ml)
    checks = [
        (f"KL ≤ {KL}", [o.fit.kl <= KL for o in ml]),
        (f"largest distance ≤ {DISTANCE}", [o.fit.max_distance <= DISTANCE for o in ml]),
        (f"mass within {MASS:.0%} of 1", [abs(o.fit.mass - 1) <= MASS for o in ml]),
        ("smaller KL than two-step", [a.fit.kl < b.fit.kl for a, b in zip(ml, two_step, strict=True)]),
    ]
    return [(f"Maximum likelihood, {text}: {sum(passed)} of {n} seeds", all(passed)) for text, passed in checks]


def _table(title: str, groups: Mapping[str, Sequence[Outcome]], over: str = "seeds") -> Table:
    caption = f"KL(true‖model) of densities on the circle; distances of the curve to it. Over {over}: median (worst)."
    table = Table(title=title, caption=caption, box=box.SIMPLE)
    for heading in ("method", "KL", "total variation", "mean distance", "max distance", "mass", "time"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for name, group in groups.items():
        table.add_row(name, *summary(group))
    return table


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_figure(path, figure)


__all__ = ["demo_command", "grid_command", "reproduce_command"]
