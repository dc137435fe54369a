"""``rnf evaluate``: how good a model is, on rows that training never saw."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich import box
from rich.console import Console
from rich.table import Table

from ..experiment import open_run, prepare, settings_of
from ..manifold import RectangularFlow
from ..metrics import circle_fit
from ..metrics.sphere import sphere_fit
from ..metrics.two_sample import compare
from ..storage import write_atomically
from ..training.rows import take
from .score import scores

_FILE = "evaluation.json"
_MOST_ROWS = 50_000
_KERNEL_ROWS, _KERNEL_CENTRES = 5_000, 20_000


def evaluate_command(run: Path, samples: int, seed: int, most: int = _MOST_ROWS) -> int:
    """Evaluate a run, print the figures, keep them in the run folder."""
    console = Console()
    with console.status("evaluating …"):
        figures = evaluate_run(run, samples, seed, most)
    write_atomically(run / _FILE, json.dumps(figures, indent=1) + "\n")
    table = Table(title=f"{run}, {figures['test_rows']} test rows", box=box.SIMPLE)
    for heading in ("", "value", "real against real"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, text in _NAMES.items():
        if name in figures:
            floor = figures.get(f"{name}_floor")
            table.add_row(text, f"{figures[name]:.4g}", "" if floor is None else f"{floor:.4g}")
    console.print(table)
    console.print(f"figures: {run / _FILE}", highlight=False, soft_wrap=True, markup=False)
    return 0


def evaluate_run(run: Path, samples: int = 10_000, seed: int = 0, most: int = _MOST_ROWS) -> dict[str, Any]:
    """Likelihood and distance on the test rows; samples against them, each beside its floor; the truth if it is known.

    Of images, likelihood and distance only, in units of pixels and of the model: samples are judged by their features.
    """
    flow, _ = open_run(run)
    settings = settings_of(run)
    data = prepare(settings.data, settings.model.latent_dim, settings.training.seed)
    dtype = next((p.dtype for p in flow.parameters()), torch.float32)
    images = data.image_shape is not None
    test, train = (
        take(rows, slice(n), dtype=dtype) for rows, n in ((data.test, most), (data.train, 0 if images else most))
    )
    if len(test) < 10:
        raise ValueError(f"expected at least 10 test rows to evaluate on; got {len(test)}. See --test-fraction")
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
    if settings.data.data == "circle":
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
        nll -= float(flow.log_prob(y, model_units=True).sum())
        error += float(flow.reconstruction_error(y, model_units=True).sum())
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

__all__ = ["evaluate_command", "evaluate_run"]
