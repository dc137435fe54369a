"""``rnf evaluate``: how good a model is, on rows that training never saw."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich import box
from rich.console import Console
from rich.table import Table

from ..data.rows import take
from ..evaluation.image_samples import SAMPLES, check_amount, figures_of, find_network, quality_of, real_images
from ..manifold import RectangularFlow
from ..metrics import circle_fit
from ..metrics.inception import FeatureNetwork
from ..metrics.sphere import sphere_fit
from ..metrics.two_sample import compare
from ..runs.saved import EVALUATION, SavedRun
from ..storage.files import write_atomically
from .arguments import add_network, add_run, add_seed
from .score import scores

_MOST_ROWS, _TABLE_SAMPLES = 50_000, 10_000
_KERNEL_ROWS, _KERNEL_CENTRES = 5_000, 20_000


class TooFewRowsError(ValueError):
    """There are too few test rows to say anything by."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which run, how many rows and samples."""
    add_run(parser)
    text = "samples to compare (default: 10000; images: 5000)"
    parser.add_argument("-n", "--samples", type=int, help=text)
    parser.add_argument("--rows", type=int, default=_MOST_ROWS, help="most test rows (default: %(default)s)")
    add_seed(parser, "the draws")
    parser.add_argument("--skip-fid", action="store_true", help="images: no features of samples, the slow part")
    add_network(parser)


def run(arguments: argparse.Namespace) -> int:
    """Evaluate, print, write."""
    options = {name: getattr(arguments, name) for name in ("skip_fid", "network", "network_sha256")}
    return evaluate_command(arguments.folder, arguments.samples, arguments.seed, arguments.rows, **options)


def evaluate_command(
    folder: Path,
    samples: int | None,
    seed: int,
    most: int = _MOST_ROWS,
    *,
    skip_fid: bool = False,
    network: Path | None = None,
    network_sha256: str | None = None,
) -> int:
    """Evaluate a run, print the figures, keep them in the run folder."""
    console = Console()
    run = SavedRun(folder)
    images = run.flow.kind == "image"
    if not images and (skip_fid or network or network_sha256):
        raise ValueError(f"{folder} is a model of tables; --skip-fid and --network are for images")
    found, missing = find_network(network, network_sha256, skip_fid) if images else (None, "")
    if images and samples is not None:
        check_amount(samples, "-n")
    with console.status("evaluating …"):
        figures = evaluate_run(run, None if images else samples, seed, most)
    if found is not None:
        figures |= evaluate_samples(run, found, samples, seed, console)
    write_atomically(folder / EVALUATION, json.dumps(figures, indent=1) + "\n")
    table = Table(title=f"{folder}, {figures['test_rows']} test rows", box=box.SIMPLE)
    for heading in ("", "value", "real against real"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, text in _NAMES.items():
        if name in figures:
            floor = figures.get(f"{name}_floor")
            error, floor_error = (figures.get(f"{name}{kind}_standard_error") for kind in ("", "_floor"))
            table.add_row(text, _cell(figures[name], error), "" if floor is None else _cell(floor, floor_error))
    console.print(table)
    if figures.get("fid") is not None:
        text = f"{figures['samples']:,} samples against the first test images; beside it as many training images"
        console.print(text, highlight=False, soft_wrap=True)
    if missing:
        console.print(f"note: {missing}", highlight=False, soft_wrap=True, markup=False)
    console.print(f"figures: {folder / EVALUATION}", highlight=False, soft_wrap=True, markup=False)
    return 0


def _cell(value: float, error: float | None) -> str:
    return f"{value:.4g}" if error is None else f"{value:.4g} ± {error:.2g}"


def evaluate_samples(
    run: SavedRun, network: FeatureNetwork, samples: int | None = None, seed: int = 0, console: Console | None = None
) -> dict[str, Any]:
    """FID, KID, precision and recall of samples of a run on images, each beside its floor; ``samples`` says of how many.

    Args:
        run: a run on images.
        network: for the features, at 0.15 to 0.3 s an image and core.
        samples: how many at most, by default 5,000; fewer where there are fewer real images.
        seed: of the samples.
        console: where to show how far it is.
    """
    real = real_images(run.settings, run.data)
    count = SAMPLES if samples is None else samples
    quality = quality_of(run.path, run.flow, real, network, count, seed=seed, console=console)
    return {**figures_of(quality), "samples": quality.n}


def evaluate_run(run: SavedRun, samples: int | None = None, seed: int = 0, most: int = _MOST_ROWS) -> dict[str, Any]:
    """Likelihood and distance on the test rows; samples against them, each beside its floor; the truth if it is known.

    Of images, likelihood and distance only, in units of pixels and of the model: see :func:`evaluate_samples`.

    Args:
        run: a run.
        samples: how many to draw, by default 10,000; of images none.
        seed: of the draws.
        most: test rows, and training rows for the floor.
    """
    samples = _TABLE_SAMPLES if samples is None else samples
    for name, value in (("rows", most), ("samples", samples)):
        if value < 1:
            raise ValueError(f"expected a positive number of {name}; got {value}")
    flow, settings, data = run.flow, run.settings, run.data
    dtype = flow.dtype
    images = data.image_shape is not None
    test, train = (
        take(rows, slice(n), dtype=dtype) for rows, n in ((data.test, most), (data.train, 0 if images else most))
    )
    if len(test) < 10:
        raise TooFewRowsError(
            f"expected at least 10 test rows to evaluate on; got {len(test)}. "
            + ("Give more --rows" if most < 10 else "Train with a larger --test-fraction, or on more rows")
        )
    log_density, error = scores(flow, test)
    figures: dict[str, Any] = {
        "test_rows": len(test),
        "negative_log_likelihood": float(-log_density.mean()),
        "reconstruction_error": float(error.mean()),
        "samples": samples,
        "seed": seed,
    }
    if images:
        return {**figures, **_in_model_units(flow, test), "samples": 0}
    drawn = flow.sample(samples, generator=torch.Generator().manual_seed(seed))
    scale = np.asarray(train.double().std(dim=0))
    parts = [np.asarray(rows.double()) / scale for rows in (drawn, test, train)]
    for name, both in compare(*parts, seed=seed).items():
        figures |= {name: both.value, f"{name}_floor": both.floor}
    if settings.data.data == "circle" and flow.latent_dim == 1:
        figures |= {f"circle_{name}": value for name, value in asdict(circle_fit(flow)).items()}
    if settings.data.sphere and flow.latent_dim == 2 and len(data.validation):
        some = take(data.validation, slice(_KERNEL_ROWS), dtype=dtype)
        fit = sphere_fit(flow, train[:_KERNEL_CENTRES], some, test[:_KERNEL_ROWS], drawn)
        figures |= {f"sphere_{name}": value for name, value in asdict(fit).items()}
    return figures


@torch.no_grad()
def _in_model_units(flow: RectangularFlow, images: torch.Tensor) -> dict[str, float]:
    """The same two of images as the model sees them: of logits, where it has a logit layer."""
    nll = error = 0.0
    for part in images.split(flow.rows_at_once()):
        y = flow.to_model_units(part)
        nll -= float(flow.in_model_units.log_prob(y).sum())
        error += float(flow.in_model_units.reconstruction_error(y).sum())
    count = len(images)
    return {"model_negative_log_likelihood": nll / count, "model_reconstruction_error": error / count}


_NAMES = {
    "negative_log_likelihood": "negative log-likelihood of the projections",
    "reconstruction_error": "mean squared distance from the manifold",
    "model_negative_log_likelihood": "… likelihood in the model's units (logits)",
    "model_reconstruction_error": "… distance in the model's units",
    "fid_like": "FID-like score of samples (standardised columns)",
    "sliced_wasserstein": "squared sliced Wasserstein-2 distance",
    "c2st": "accuracy of a classifier, samples or data (0.5: none)",
    "fid": "FID of samples",
    "kid": "KID of samples",
    "precision": "precision: samples that lie where real images do",
    "recall": "recall: real images that lie where samples do",
    "circle_kl": "KL(true‖model) on the circle",
    "circle_total_variation": "total variation on the circle",
    "circle_mean_distance": "mean distance of the curve to the circle",
    "circle_max_distance": "largest distance, central 99 %",
    "circle_mass": "mass of the curve",
    "circle_speed_spread": "spread of the speed",
    "sphere_log_density": "log-density of test rows per steradian, mass 1",
    "sphere_kernel_log_density": "… of von Mises–Fisher kernels",
    "sphere_uniform_log_density": "… of the uniform density",
    "sphere_kernel_degrees": "width of those kernels, degrees",
    "sphere_mass": "mass of the learned density over the sphere",
    "sphere_sample_distance": "mean distance of samples to the sphere",
}

__all__ = [
    "EVALUATION",
    "TooFewRowsError",
    "add_arguments",
    "evaluate_command",
    "evaluate_run",
    "evaluate_samples",
    "run",
]
