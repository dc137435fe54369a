"""The page of a run: what ``rnf report`` writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tomli_w

from .._version import __version__
from ..evaluation.evaluate import TooFewRowsError, evaluate_run, keep_evaluation
from ..evaluation.explain import unusual_rows
from ..plots.reasons import draw_reasons
from ..plots.run import draw_run
from ..runs.display import duration
from ..runs.saved import SavedRun
from . import Cards, Code, Metric, Page, Picture, Section, Text
from .training import training_charts

_USE = """
rnf sample {run} -n 1000 -o samples.csv
rnf score {run} your-table.csv -o scores.csv --explain
rnf ood {run} --against other-table.csv
rnf evaluate {run}
"""
_USE_IMAGES = """
rnf sample {run} -n 100 -o samples.png
rnf score {run} folder-of-images -o scores.csv --coordinates
rnf ood {run} --against other-images
rnf evaluate {run}
"""


def run_page(run: SavedRun) -> Page:
    """Numbers, figures, training and settings of a run; the numbers are also kept in its folder."""
    flow, data, history, images = run.flow, run.data, run.history, run.flow.kind == "image"
    if not history:
        raise ValueError(f"{run.path} has no history yet; let it train for an epoch")
    drawings = draw_run(run)
    try:
        cards, missing = [Cards(_cards(_evaluated(run)))], ""
    except TooFewRowsError as error:
        cards, missing = [], f"\n\nNo numbers: {error}."
    facts = (
        f"{run.settings.data.data}: {len(data.train):,} rows to train on, {flow.ambient_dim} "
        f"{'pixels' if images else 'columns'}; a manifold of dimension {flow.latent_dim}"
    )
    what = (
        f"{facts}. Trained for {history[-1].epoch} epochs in {duration(history[-1].seconds)}. The density is with respect "
        "to length, area or volume *on the manifold*, in the units of the data; for points off it there is the "
        "reconstruction error."
    )
    note = f"\n\n{data.note}" if data.note else ""
    return Page(
        run.path.name,
        f"A rectangular flow with {flow.latent_dim} of {flow.ambient_dim} dimensions.",
        [
            Section("In short", [*cards, Text(what + note + missing)]),
            Section("Figures", [Picture(d.figure, d.caption, d.caption) for d in drawings]),
            *_unusual(run),
            Section("How training went", training_charts({run.path.name: history})),
            Section("Use it", [Code((_USE_IMAGES if images else _USE).format(run=run.path).strip(), "shell")]),
            Section("Settings", [Code(tomli_w.dumps(run.config), "TOML")], collapsed=True),
        ],
        f"rectangular-flows {__version__} · rnf report {run.path}",
    )


def _unusual(run: SavedRun) -> list[Section]:
    """The most unusual test rows and their reasons, where the model has what that needs."""
    rows = unusual_rows(run, run.data.test, "test row")
    if not rows:
        return []
    text = (
        "What each column adds to the outlier score, in nats: by how much the score falls when the column has a typical "
        "value for such a row. Beside it, the value and that of the nearest typical point. "
        f"Of your own rows: `rnf score {run.path} your-table.csv --explain`."
    )
    picture = Picture(draw_reasons(rows), " · ".join(map(str, rows)), "The most unusual test rows, and why.")
    return [Section("The most unusual rows", [Text(text), picture])]


def _evaluated(run: SavedRun) -> dict[str, Any]:
    """The evaluation of a run; of its samples of images, which takes long, what an earlier one found of this model."""
    earlier, numbers = run.evaluation or {}, evaluate_run(run)
    if "fid" in earlier:  # which is removed with the model it was computed of
        numbers = {**earlier, **numbers, "samples": earlier["samples"]}
    keep_evaluation(run, numbers)
    return numbers


def _cards(numbers: Mapping[str, Any]) -> list[Metric]:
    """Two numbers of every run, and the two that say most about it."""

    def card(label: str, name: str, note: str, form: str = ".3g") -> Metric:
        return Metric(label, f"{numbers[name]:{form}}", note)

    def against(name: str) -> str:
        return f"real against real: {numbers[f'{name}_floor']:.3g}"

    cards = [
        card("Negative log-likelihood", "negative_log_likelihood", "test rows, on the manifold", ".4g"),
        card("Reconstruction error", "reconstruction_error", "mean squared distance, test rows"),
    ]
    if "circle_kl" in numbers:
        cards += [
            card("KL to the truth", "circle_kl", "densities on the circle"),
            card("Largest distance to the circle", "circle_max_distance", "central 99 %"),
        ]
    elif "sphere_log_density" in numbers:
        kernel, uniform = numbers["sphere_kernel_log_density"], numbers["sphere_uniform_log_density"]
        beside = f"test rows; kernel estimate {kernel:.3g}, uniform {uniform:.3g}"
        cards += [
            card("Log-density per steradian", "sphere_log_density", beside),
            card("Distance to the sphere", "sphere_sample_distance", "mean over samples"),
        ]
    elif "c2st" in numbers:
        floor = f"50 % cannot tell; real: {numbers['c2st_floor']:.1%}"
        cards += [
            card("Sliced Wasserstein-2, squared", "sliced_wasserstein", against("sliced_wasserstein")),
            card("Classifier, samples or data", "c2st", floor, ".1%"),
        ]
    elif "fid" in numbers:
        cards += [
            card("FID", "fid", f"{numbers['samples']:,} samples; {against('fid')}"),
            card("KID", "kid", f"± {numbers['kid_standard_error']:.1g}; {against('kid')}"),
        ]
    return cards
