"""The page of a run: what ``rnf report`` writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tomli_w

from .._version import __version__
from ..evaluation.evaluate import TooFewRowsError, evaluate_run, keep_evaluation
from ..evaluation.explain import unusual_rows
from ..evaluation.run_verdict import verdict_of
from ..evaluation.verdict import Verdict
from ..plots.curves import Chart, Curve
from ..plots.reasons import draw_reasons
from ..plots.run import draw_run
from ..runs.display import duration
from ..runs.saved import EVALUATION, SavedRun
from ..training import Epoch
from .page import Cards, Code, Metric, Page, Picture, Section, Text
from .verdict import verdict_card, verdict_numbers

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
# label, number, its format, note with other numbers
_BOTH: tuple[tuple[str, str, str, str], ...] = (
    ("Negative log-likelihood", "negative_log_likelihood", ".4g", "test rows, on the manifold"),
    ("Reconstruction error", "reconstruction_error", ".3g", "mean squared distance, test rows"),
)
_SPHERE = "test rows; kernel estimate {sphere_kernel_log_density:.3g}, uniform {sphere_uniform_log_density:.3g}"
_WASSERSTEIN = "real against real: {sliced_wasserstein_floor:.3g}"
_CARDS = {
    "circle_kl": (
        ("KL to the truth", "circle_kl", ".3g", "densities on the circle"),
        ("Largest distance to the circle", "circle_max_distance", ".3g", "central 99 %"),
    ),
    "sphere_log_density": (
        ("Log-density per steradian", "sphere_log_density", ".3g", _SPHERE),
        ("Distance to the sphere", "sphere_sample_distance", ".3g", "mean over samples"),
    ),
    "c2st": (
        ("Sliced Wasserstein-2, squared", "sliced_wasserstein", ".3g", _WASSERSTEIN),
        ("Classifier, samples or data", "c2st", ".1%", "50 % cannot tell; real: {c2st_floor:.1%}"),
    ),
    "fid": (
        ("FID", "fid", ".3g", "{samples:,} samples; real against real: {fid_floor:.3g}"),
        ("KID", "kid", ".3g", "± {kid_standard_error:.1g}; real against real: {kid_floor:.3g}"),
    ),
}


def run_page(run: SavedRun) -> Page:
    """Numbers, figures, training and settings of a run; the numbers are also kept in its folder."""
    flow, data, history, images = run.flow, run.data, run.history, run.flow.kind == "image"
    if not history:
        raise ValueError(f"{run.path} has no history yet; let it train for an epoch")
    drawings = draw_run(run)
    verdict = verdict_of(run, again=True)
    try:
        cards, missing = [Cards(_cards(_evaluated(run, verdict)))], ""
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
    parts = [verdict_card(verdict), *cards, *verdict_numbers(verdict), Text(what + note + missing)]
    return Page(
        run.path.name,
        f"A rectangular flow with {flow.latent_dim} of {flow.ambient_dim} dimensions.",
        [
            Section("In short", parts),
            Section("Figures", [Picture(d.figure, d.caption, d.caption) for d in drawings]),
            *_unusual(run),
            Section("How training went", [*_volume(history), *training_charts({run.path.name: history})]),
            Section("Use it", [Code((_USE_IMAGES if images else _USE).format(run=run.path).strip(), "shell")]),
            Section("Settings", [Code(tomli_w.dumps(run.config), "TOML")], collapsed=True),
        ],
        f"rectangular-flows {__version__} · rnf report {run.path}",
    )


def _volume(history: Sequence[Epoch]) -> list[Text]:
    """What the automatic choice of the log-volume was in the end, if it was automatic."""
    chosen = history[-1].volume
    if not chosen or not chosen["volume_share"]:
        return []
    probes = int(chosen["volume_probes"])
    how = f"with {probes} probe{'s' * (probes > 1)}" if probes else "exactly"
    text = (
        f"Log-volume, chosen automatically: computed {how} on {chosen['volume_share']:.1%} of the rows of a batch; variance "
        f"of the gradient {chosen['variance_ratio']:.3f} times that of the exact one on all rows."
    )
    return [Text(text)]


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


def training_charts(histories: Mapping[str, Sequence[Epoch]]) -> list[Chart]:
    """Reconstruction error, negative log-likelihood and learning rate by epoch, one curve a run."""

    def chart(field: str, unit: str, title: str, **options: bool) -> Chart:
        curves = [
            Curve(name, [line.epoch for line in lines], [float(getattr(line, field)) for line in lines])
            for name, lines in histories.items()
        ]
        return Chart(curves, "epoch", unit, title, **options)

    return [
        chart("reconstruction", "squared distance", "Reconstruction error (validation rows)", log_y=True),
        chart("negative_log_likelihood", "nats", "Negative log-likelihood (validation rows)"),
        chart("learning_rate", "rate", "Learning rate"),
    ]


def _evaluated(run: SavedRun, verdict: Verdict) -> dict[str, Any]:
    """The evaluation of a run; of its samples of images, which takes long, what an earlier one found of this model."""
    earlier, numbers = run.evaluation or {}, evaluate_run(run)
    if "fid" in earlier:  # which is removed with the model it was computed of
        numbers = {**earlier, **numbers, "samples": earlier.get("samples")}
        wrong = [name for name, value in numbers.items() if not isinstance(value, int | float) and name != "verdict"]
        if wrong:
            raise ValueError(
                f"{run.path / EVALUATION} is damaged ({wrong[0]}). Write it again: rnf evaluate {run.path}"
            )
    keep_evaluation(run, {**numbers, "verdict": verdict.numbers()})
    return numbers


def _cards(numbers: Mapping[str, Any]) -> list[Metric]:
    """Two numbers of every run, and the two that say most about it."""
    chosen = next((cards for name, cards in _CARDS.items() if name in numbers), ())
    return [
        Metric(label, f"{numbers[name]:{form}}", note.format(**numbers)) for label, name, form, note in _BOTH + chosen
    ]
