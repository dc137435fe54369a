"""``rnf plot`` and ``rnf report``: a run in pictures, and on one page."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure
from rich.console import Console

from .. import toml
from .._version import __version__
from ..data.rows import take
from ..manifold import RectangularFlow
from ..metrics import circle_fit
from ..plots import CircleResult, draw_circle_run, draw_earth, draw_manifold, draw_pairs
from ..plots.images import DPI, draw_interpolations, draw_latent_grid, draw_reconstructions, draw_samples
from ..report import Cards, Code, Metric, Page, Picture, Section, Text, write
from ..report.training import training_charts
from ..runs.display import duration
from ..runs.prepared import Prepared
from ..runs.saved import EVALUATION, SavedRun
from ..settings import FitSettings
from ..storage.files import save_figure, write_atomically
from .arguments import add_run
from .evaluate import TooFewRowsError, evaluate_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which run, where to."""
    add_run(parser)
    parser.add_argument("-o", "--output", type=Path, help="file (default: RUN/report.html)")


def run(arguments: argparse.Namespace) -> int:
    """Evaluate, draw, write."""
    return report_command(arguments.folder, arguments.output)


class Drawing(NamedTuple):
    """A figure, what it is called, and what it shows."""

    name: str
    figure: Figure
    caption: str


def plot_command(path: Path) -> int:
    """Write the pictures of a run as PNG files."""
    console, run = Console(), SavedRun(path)
    folder, drawings = path / "figures", _drawings(run.flow, run.settings, run.data)
    folder.mkdir(parents=True, exist_ok=True)
    for drawing in drawings:
        file = folder / f"{drawing.name}.png"
        save_figure(file, drawing.figure, DPI if run.flow.kind == "image" else 150)
        console.print(str(file), highlight=False, soft_wrap=True, markup=False)
    return 0


def report_command(path: Path, output: Path | None) -> int:
    """Write the page of a run."""
    console = Console()
    output = output or path / "report.html"
    with console.status("evaluating and drawing …"):
        write(_page(SavedRun(path)), output)
    console.print(f"report: {output}", highlight=False, soft_wrap=True, markup=False)
    return 0


def _drawings(flow: RectangularFlow, settings: FitSettings, data: Prepared) -> list[Drawing]:
    dtype = flow.dtype
    tested = len(data.test) >= 10
    rows = take(data.test if tested else data.train, slice(10_000), dtype=dtype)
    found = []
    if data.image_shape is not None:
        few = max(10, min(1000, flow.rows_at_once()))  # whose Jacobians fit the memory
        which = "test" if tested else "training"
        return [*_image_drawings(flow, rows, which), Drawing("manifold", draw_manifold(flow, rows[:few]), _MANIFOLD)]
    if settings.data.data == "circle" and flow.latent_dim == 1:
        result = CircleResult("Learned", flow, circle_fit(flow))
        text = "The curve coloured by its density, the truth, and the speed of the map along the curve."
        found.append(Drawing("circle", draw_circle_run(result), text))
    if settings.data.sphere and flow.latent_dim == 2:
        text = (
            "Equal-area maps. Left: the rows trained on. Right: the learned density per steradian; grey where the learned "
            "surface is not on the sphere, since a plane cannot cover a sphere without a cut."
        )
        shown = take(data.train, slice(20_000), dtype=dtype)
        found.append(Drawing("earth", draw_earth(flow, shown, title=Path(str(settings.data.data)).stem), text))
    samples = flow.sample(len(rows), generator=torch.Generator().manual_seed(0))
    text = "Diagonal: marginal distributions. Below it: data. Above it: samples from the model."
    found.append(Drawing("pairs", draw_pairs(rows, samples, data.columns), text))
    found.append(Drawing("manifold", draw_manifold(flow, rows), _MANIFOLD))
    return found


@torch.no_grad()
def _image_drawings(flow: RectangularFlow, images: torch.Tensor, which: str) -> list[Drawing]:
    """``which``: whether these are test or training images."""
    shown, pairs, kind = images[:30], min(8, len(images) // 2), which.capitalize()
    errors = flow.reconstruction_error(shown).sqrt().numpy()
    samples = flow.sample(100, generator=torch.Generator().manual_seed(0))
    found = [
        Drawing("samples", draw_samples(samples), "Samples from the model."),
        Drawing(
            "reconstructions",
            draw_reconstructions(
                shown, flow.project(shown), errors, heading=f"{kind} images and their projections on the manifold"
            ),
            f"{kind} images, and what the manifold has in their place.",
        ),
        Drawing(
            "lines",
            draw_interpolations(
                flow,
                images[:pairs],
                images[pairs : 2 * pairs],
                heading=f"Lines on the manifold between {which} images",
            ),
            f"Straight lines on the manifold between the coordinates of two {which} images.",
        ),
    ]
    if flow.latent_dim == 2:
        found.append(Drawing("plane", draw_latent_grid(flow), "The whole manifold, by its two coordinates."))
    return found


_MANIFOLD = (
    "Left: where the rows are on the manifold. Middle: how far from it. Right: how much the map stretches along each "
    "of its directions; a wide range means a manifold close to collapsing."
)


def _figures(run: SavedRun) -> dict[str, Any]:
    """The evaluation of a run; of its samples of images, which takes long, what an earlier one found of this model."""
    earlier, figures = run.evaluation or {}, evaluate_run(run)
    if "fid" in earlier:  # it is gone with the model it was computed of
        figures = {**earlier, **figures, "samples": earlier["samples"]}
    write_atomically(run.path / EVALUATION, json.dumps(figures, indent=1) + "\n")
    return figures


def _cards(figures: Mapping[str, Any], data: Prepared) -> list[Metric]:
    def against(name: str) -> str:
        return f"real against real: {figures[f'{name}_floor']:.3g}"

    cards = [
        Metric("Negative log-likelihood", f"{figures['negative_log_likelihood']:.4g}", "test rows, on the manifold"),
        Metric("Distance from the manifold", f"{figures['reconstruction_error']:.3g}", "mean square, test rows"),
    ]
    if data.image_shape is None:
        distance, accuracy = f"{figures['sliced_wasserstein']:.3g}", f"{figures['c2st']:.1%}"
        cards += [
            Metric("Sliced Wasserstein-2, squared", distance, against("sliced_wasserstein")),
            Metric("Classifier, samples or data", accuracy, f"50 % cannot tell; real: {figures['c2st_floor']:.1%}"),
        ]
    elif "fid" in figures:
        of = f"{figures['samples']:,} samples"
        cards += [
            Metric("FID", f"{figures['fid']:.3g}", f"{of}; {against('fid')}"),
            Metric("KID", f"{figures['kid']:.3g}", f"± {figures['kid_standard_error']:.1g}; {against('kid')}"),
        ]
    if "circle_kl" in figures:
        cards[2:] = [
            Metric("KL to the truth", f"{figures['circle_kl']:.3g}", "densities on the circle"),
            Metric("Largest distance to the circle", f"{figures['circle_max_distance']:.3g}", "central 99 %"),
        ]
    if "sphere_log_density" in figures:
        kernel, uniform = figures["sphere_kernel_log_density"], figures["sphere_uniform_log_density"]
        beside = f"test rows; kernel estimate {kernel:.3g}, uniform {uniform:.3g}"
        cards[2:] = [
            Metric("Log-density per steradian", f"{figures['sphere_log_density']:.3g}", beside),
            Metric("Distance to the sphere", f"{figures['sphere_sample_distance']:.3g}", "mean over samples"),
        ]
    return cards


def _page(run: SavedRun) -> Page:
    flow, settings, data, history = run.flow, run.settings, run.data, run.history
    if not history:
        raise ValueError(f"{run.path} has no history yet; let it train for an epoch")
    drawings = _drawings(flow, settings, data)
    try:
        cards, missing = _cards(_figures(run), data), ""
    except TooFewRowsError as error:
        cards, missing = [], f"\n\nNo figures: {error}."
    shown = {"Data": settings.data.data or "", "Rows": f"{len(data.train):,} to train on"}
    columns = f"{flow.ambient_dim} {'columns' if data.image_shape is None else 'pixels'}"
    facts = f"{shown['Data']}: {shown['Rows']}, {columns}; a manifold of dimension {flow.latent_dim}"
    what = (
        f"{facts}. Trained for {history[-1].epoch} epochs in {duration(history[-1].seconds)}. The density is with respect "
        "to length, area or volume *on the manifold*, in the units of the data; it says nothing of points off it, for "
        "which there is the distance."
    )
    return Page(
        run.path.name,
        f"A rectangular flow with {flow.latent_dim} of {flow.ambient_dim} dimensions.",
        [
            Section(
                "In short",
                [*([Cards(cards)] if cards else []), Text(what + (f"\n\n{data.note}" if data.note else "") + missing)],
            ),
            Section("Pictures", [Picture(d.figure, d.caption, d.caption) for d in drawings]),
            Section("How training went", training_charts({run.path.name: history})),
            Section(
                "Use it",
                [Code((_USE if data.image_shape is None else _USE_IMAGES).format(run=run.path).strip(), "shell")],
            ),
            Section("Settings", [Code(toml.dumps(run.config), "TOML")], collapsed=True),
        ],
        f"rectangular-flows {__version__} · rnf report {run.path}",
    )


_USE = """
rnf sample {run} -n 1000 -o samples.csv
rnf score {run} your-table.csv -o scores.csv --coordinates
rnf ood {run} --against other-table.csv
rnf evaluate {run}
"""
_USE_IMAGES = """
rnf sample {run} -n 100 -o samples.png
rnf score {run} folder-of-images -o scores.csv --coordinates
rnf ood {run} --against other-images
rnf evaluate {run}
"""

__all__ = ["add_arguments", "plot_command", "report_command", "run"]
