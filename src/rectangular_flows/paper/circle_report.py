"""The pages about the circle: what a newcomer sees after ``make demo``, and the table over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from .. import toml
from .._version import __version__
from ..report import Cards, Code, Grid, Metric, Page, Picture, Section, Text
from ..report.training import training_charts
from ..training.folder import read_config, read_history
from .outcome import Outcome, summary

_PAPER = "[Rectangular Flows for Manifold Learning](https://arxiv.org/abs/2106.01413)"
_HEADINGS = ("method", "KL", "total variation", "mean distance", "max distance", "mass", "time")
_WHAT = f"""
Real data with many columns often lie near a surface of few dimensions. Here the data are points of the plane that lie on a
circle, which is a curve: two coordinates, one dimension. They are denser at the top than at the bottom (a von Mises
distribution).

A **rectangular flow** learns two things at once: the curve, as a map *x = f(z)* from a line into the plane, and how probable
each part of it is. The method is that of {_PAPER}.

What makes this hard is the *speed* ‖f′(z)‖ with which the map runs along the curve: where it runs fast, probability is
spread thin. **Maximum likelihood** trains the map with that factor in the objective. The **two-step** method, the earlier
way, first fits the curve without it and then a density on the line: it finds the circle, but a simple density on the line
then becomes a wrong one on the circle.
"""
_FIGURE = """
**Upper row:** the curve that each method learned, coloured by the density along it, with the truth in the middle.
**Lower row, outside:** the speed of each map. **Lower row, middle:** where the data end up on the line (bars), and the
density that the model has there (lines).

An open curve cannot close: the two ends meet at the bottom, where there are the fewest points, and their last stretches
lead away from the circle. They carry next to no probability.
"""
_MEANING = """
*KL* measures how far the learned density on the circle is from the true one (0 is perfect). *Total variation* compares where
the model's samples go, sector by sector. *Distances* are those of the learned curve to the circle, on average and at
most over the central 99 % of its probability. *Mass* is the integral of the density along the curve: 1 if map, speed and
density fit together.
"""
_NEXT = """
rnf fit your-table.csv --latent-dim 2 --out runs/mine   # learn a surface in your own data
rnf report runs/mine                                    # a page like this one
rnf sample runs/mine -n 1000 -o samples.csv             # new rows
rnf score runs/mine other.csv -o scores.csv             # density, distance and outlier score of every row
"""


def demo_page(outcomes: Sequence[Outcome], picture: Path, seed: int) -> Page:
    """The page of ``rnf demo``."""
    ml, two_step = outcomes
    cards = Cards(
        [
            Metric(
                "KL to the truth", f"{ml.fit.kl:.3f}", f"two-step: {two_step.fit.kl:.3f}", ml.fit.kl < two_step.fit.kl
            ),
            Metric(
                "Mean distance to the circle",
                f"{ml.fit.mean_distance:.4f}",
                f"two-step: {two_step.fit.mean_distance:.4f}",
            ),
            Metric("Mass of the curve", f"{ml.fit.mass:.3f}", "1 is right", abs(ml.fit.mass - 1) < 0.01),
            Metric("Spread of the speed", f"{ml.fit.speed_spread:.2f}", f"two-step: {two_step.fit.speed_spread:.2f}"),
        ]
    )
    alt = "Six panels: densities and speeds along the learned curves of both methods, the truth, and the latent coordinates"
    rows = [[outcome.job.title, *summary([outcome])] for outcome in outcomes]
    return Page(
        "A density on a circle",
        "Rectangular flows on the von Mises circle: maximum likelihood beside the two-step method.",
        [
            Section("In short", [cards, Text(_WHAT)]),
            Section("What was learned", [Picture(picture, alt), Text(_FIGURE)]),
            Section("In numbers", [Grid(_HEADINGS, rows), Text(_MEANING)]),
            Section("How training went", training_charts({o.job.title: read_history(o.job.folder) for o in outcomes})),
            Section("Your own data", [Code(_NEXT.strip(), "shell")]),
            *(
                Section(
                    f"Settings: {o.job.title}", [Code(toml.dumps(read_config(o.job.folder)), "TOML")], collapsed=True
                )
                for o in outcomes
            ),
        ],
        f"rectangular-flows {__version__} · rnf demo --seed {seed}",
    )


def reproduction_page(
    groups: Mapping[str, Sequence[Outcome]], verdicts: Sequence[tuple[str, bool]], picture: Path
) -> Page:
    """The page of ``rnf reproduce circle``."""
    seeds = len(next(iter(groups.values())))
    cards = Cards([Metric(text.rpartition(":")[0], text.rpartition(": ")[2], good=ok) for text, ok in verdicts])
    all_runs: list[list[str | float]] = [
        [o.job.title, o.fit.kl, o.fit.total_variation, o.fit.mean_distance, o.fit.max_distance, o.fit.mass, o.seconds]
        for group in groups.values()
        for o in group
    ]
    return Page(
        "The von Mises circle, reproduced",
        f"Our settings and the published ones, {seeds} seeds each. The paper shows figures and gives no numbers for them.",
        [
            Section("What must hold of our settings", [cards]),
            Section(
                "All settings",
                [Grid(_HEADINGS, [[n, *summary(g)] for n, g in groups.items()], "Median (worst)."), Text(_MEANING)],
            ),
            Section("All curves", [Picture(picture, "Learned curves of every run, coloured by density")]),
            Section("All runs", [Grid([*_HEADINGS[:-1], "seconds"], all_runs)], collapsed=True),
        ],
        f"rectangular-flows {__version__} · rnf reproduce circle --seeds {seeds}",
    )


__all__ = ["demo_page", "reproduction_page"]
