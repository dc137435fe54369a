"""The figures of a run: what ``rnf plot`` writes and the report shows."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor

from ..atlas import Atlas, one_chart
from ..data.rows import take
from ..manifold import RectangularFlow
from ..metrics import circle_fit
from ..metrics.coverage import LEVELS, coverage, truth_of
from ..runs.saved import SavedRun
from .charts import draw_charts
from .circle import CircleResult, draw_circle_run
from .coverage import draw_coverage
from .earth import draw_earth
from .images import DPI, draw_interpolations, draw_latent_grid, draw_reconstructions, draw_samples
from .tables import draw_manifold, draw_pairs

_ROWS, _EARTH_ROWS = 10_000, 20_000
_MANIFOLD = (
    "Left: where the rows are on the manifold. Middle: how far from it. Right: how much the map stretches along each "
    "of its directions; a wide range means a manifold close to collapsing."
)


class Drawing(NamedTuple):
    """A figure, its name, what it shows, and its resolution as a file."""

    name: str
    figure: Figure
    caption: str
    dpi: int = 150


def draw_run(run: SavedRun) -> list[Drawing]:
    """Every figure that applies to a run, of its test rows, or of training rows where those are fewer than 10."""
    flow, data = run.flow, run.data
    tested = len(data.test) >= 10
    rows = take(data.test if tested else data.train, slice(_ROWS), dtype=flow.row_dtype)
    if flow.kind == "image":
        few = max(10, min(1000, flow.rows_at_once()))  # whose Jacobians fit the memory
        manifold = Drawing("manifold", draw_manifold(flow, rows[:few]), _MANIFOLD, DPI)
        return [*_image_drawings(one_chart(flow), rows, "test" if tested else "training"), manifold]
    found, settings = [], run.settings.data
    if settings.data == "circle" and flow.latent_dim == 1 and isinstance(flow, RectangularFlow):
        text = "The curve coloured by its density, the truth, and the speed of the map along the curve."
        figure = draw_circle_run(CircleResult("Learned", flow, circle_fit(flow)))
        found.append(Drawing("circle", figure, text))
    if settings.sphere and flow.latent_dim == 2:
        text = (
            "Equal-area maps. Left: the training rows. Right: the learned density per steradian; grey where the learned "
            "surface is not on the sphere, since a plane cannot cover a sphere without a cut."
        )
        shown = take(data.train, slice(_EARTH_ROWS), dtype=flow.row_dtype)
        found.append(Drawing("earth", draw_earth(flow, shown, title=Path(str(settings.data)).stem), text))
    if isinstance(flow, Atlas):
        text = (
            "Rows by the chart they lie on, in the columns that vary most. Rings: a seam, where two charts share a row."
        )
        found.append(Drawing("charts", draw_charts(flow, rows, data.columns), text))
    samples = flow.sample(len(rows), generator=torch.Generator().manual_seed(0))
    truth = truth_of(settings.data, flow) if isinstance(flow, RectangularFlow) else None
    if truth is not None and isinstance(flow, RectangularFlow):
        judged = coverage(flow, truth, rows)
        shares = (f"{level:.0%}: {judged.share(level):.1%}" for level in LEVELS)
        text = (
            f"The model beside the truth ({truth.text}). Left: what its regions of highest density hold of test rows "
            f"({', '.join(shares)}). Then, for each true coordinate, where samples fall: a flat histogram follows the truth."
        )
        found.append(Drawing("coverage", draw_coverage(judged), text))
    text = "Diagonal: marginal distributions. Below it: data. Above it: samples from the model."
    found.append(Drawing("pairs", draw_pairs(rows, samples, data.columns), text))
    return [*found, Drawing("manifold", draw_manifold(flow, rows), _MANIFOLD)]


@torch.no_grad()
def _image_drawings(flow: RectangularFlow, images: Tensor, which: str) -> list[Drawing]:
    """``which``: whether these are test or training images."""
    shown, pairs, kind = images[:30], min(8, len(images) // 2), which.capitalize()
    errors = flow.reconstruction_error(shown).sqrt().numpy()
    heading = f"{kind} images and their projections on the manifold"
    reconstructions = draw_reconstructions(shown, flow.project(shown), errors, heading)
    heading = f"Lines on the manifold between {which} images"
    lines = draw_interpolations(flow, images[:pairs], images[pairs : 2 * pairs], heading)
    samples = flow.sample(100, generator=torch.Generator().manual_seed(0))
    figures = {
        "samples": (draw_samples(samples), "Samples from the model."),
        "reconstructions": (reconstructions, f"{kind} images, and what the manifold has in their place."),
        "lines": (lines, f"Straight lines on the manifold between the coordinates of two {which} images."),
    }
    if flow.latent.features == 2:
        figures["plane"] = (draw_latent_grid(flow), "The whole manifold, by its two coordinates.")
    return [Drawing(name, figure, caption, DPI) for name, (figure, caption) in figures.items()]
