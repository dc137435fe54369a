"""A flow on images: samples, projections, the latent plane, lines between images.

Every image pixel is a whole number of dots of the figure at 160 dots an inch, and none is interpolated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from ..data.pixels import to_bytes
from ..manifold import RectangularFlow
from .style import INK, MUTED

Bytes = npt.NDArray[np.uint8]
Images = Tensor | npt.NDArray[Any]

DPI = 160
"""Dots an inch at which image pixels are whole: save these figures with it, or with a multiple of it."""

_WIDEST = 8.4  # inches of a picture
_NARROWEST = 4.6  # inches of a figure, so that its title fits
_MOST_MAGNIFIED = 6
_MARGIN, _HEAD = 20, 76  # dots
_TICKS = (0.05, 0.25, 0.5, 0.75, 0.95)


def as_bytes(images: Images) -> Bytes:
    """Images (N, C, H, W) as bytes; floats outside [0, 1] become black or white, as on a screen."""
    values = images.detach().cpu().numpy() if isinstance(images, Tensor) else images
    return values if values.dtype == np.uint8 else to_bytes(np.clip(values, 0, 1))


def beside(parts: Sequence[Bytes], gap: int) -> Bytes:
    """Images (N, C, H, W) with their partners to the right, ``gap`` white pixels apart."""
    white = np.full((*parts[0].shape[:3], gap), 255, np.uint8)
    return np.concatenate([piece for part in parts for piece in (white, part)][1:], axis=3)


def mosaic(images: Images, columns: int = 10, *, gap: tuple[int, int] = (1, 1), scale: int = 1) -> Bytes:
    """Images (N, C, H, W) in rows and columns as one picture (height, width, 3) on white, ``scale`` dots a pixel.

    ``gap`` has the pixels between rows and between columns.

    Example:
        >>> mosaic(np.zeros((5, 1, 8, 8), np.uint8), columns=3).shape
        (17, 26, 3)
    """
    pixels = as_bytes(images)
    count, _, height, width = pixels.shape
    columns = min(columns, count)
    down, right = height + gap[0], width + gap[1]
    picture = np.full((-(-count // columns) * down - gap[0], columns * right - gap[1], 3), 255, np.uint8)
    for i, image in enumerate(pixels):
        top, left = i // columns * down, i % columns * right
        picture[top : top + height, left : left + width] = image.transpose(1, 2, 0)
    return picture.repeat(scale, axis=0).repeat(scale, axis=1)


def draw_samples(images: Images, columns: int = 10) -> Figure:
    """Images (N, C, H, W) in rows and columns: bytes, or floats in [0, 1]."""
    return _sheet(mosaic(images, columns), "Samples")[0]


def draw_reconstructions(
    originals: Images, projections: Images, distances: npt.NDArray[Any], heading: str, columns: int = 5
) -> Figure:
    """Pairs: each image and, to its right, its projection on the manifold, with the distance between them below."""
    height, width = originals.shape[2:]
    apart = _apart(originals)
    below = max(apart, round(0.4 * height))
    pairs = beside([as_bytes(originals), as_bytes(projections)], 1)
    picture = mosaic(pairs, columns, gap=(below, apart))
    detail = "left: the image · right: its projection · below: the distance between them"
    figure, axis, magnified = _sheet(picture, heading, detail, foot=below, foot_dots=0)
    size = min(8.0, 0.62 * below * magnified * 72 / DPI)
    for i, distance in enumerate(distances):
        row, column = divmod(i, columns)
        x = column * (2 * width + 1 + apart) + width
        y = row * (height + below) + height + 0.12 * below
        text = f"{distance:#.3g}".rstrip(".")
        axis.text(x, y, text, ha="center", va="top", fontsize=size, color=MUTED, clip_on=False)
    return figure


@torch.no_grad()
def draw_latent_grid(flow: RectangularFlow, side: int = 20) -> Figure:
    """The manifold of a flow with d = 2: images at a grid of quantiles of its coordinates z₁ (rightwards), z₂ (upwards)."""
    samples = flow.latent.sample(20_000, torch.Generator().manual_seed(0)).double()
    shares = (torch.arange(side, dtype=torch.float64) + 0.5) / side
    across, up = torch.quantile(samples, shares.to(samples), dim=0).to(flow.device, flow.dtype).T
    grid = torch.cartesian_prod(up.flip(0), across).flip(1)  # row by row from above, the largest z₂ first
    picture = mosaic(_decoded(flow, grid), side, gap=(0, 0))
    detail = f"{side} × {side} quantiles of the latent density"
    figure, axis, _ = _sheet(picture, "The manifold along its two coordinates", detail, left=112, foot_dots=86)
    texts = [f"{100 * share:.0f} %" for share in _TICKS]
    axis.set_xticks([share * picture.shape[1] - 0.5 for share in _TICKS], texts)
    axis.set_yticks([(1 - share) * picture.shape[0] - 0.5 for share in _TICKS], texts)
    axis.set_xlabel("z₁", color=INK, fontsize=9)
    axis.set_ylabel("z₂", color=INK, fontsize=9, rotation=0, labelpad=8)
    axis.tick_params(colors=MUTED, labelsize=7, length=2)
    return figure


@torch.no_grad()
def draw_interpolations(flow: RectangularFlow, first: Tensor, second: Tensor, heading: str, steps: int = 10) -> Figure:
    """A row for each pair of images: the first, a straight line between their coordinates on the manifold, the second."""
    a, b = flow.encode(first), flow.encode(second)
    lines = torch.cat([flow.latent.space.between(a, b, i / (steps - 1)) for i in range(steps)])
    between = as_bytes(_decoded(flow, lines)).reshape(steps, *first.shape)
    rows = [as_bytes(first), beside(list(between), 1), as_bytes(second)]
    picture = mosaic(beside(rows, _apart(first)), 1, gap=(2, 0))
    return _sheet(picture, heading, "outermost: two images · between: straight lines in z")[0]


def show_picture(axis: Axes, picture: Bytes, detail: str, heading: str = "") -> None:
    """A picture that fills its axes, without ticks and frame; above it a bold heading and a line of detail."""
    axis.imshow(picture, interpolation="nearest", aspect="auto")
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_visible(False)
    above: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "bottom"}
    axis.annotate(heading, (0, 1), (0, 18 if detail else 6), fontsize=11, color=INK, fontweight="bold", **above)
    axis.annotate(detail, (0, 1), (0, 5), fontsize=9, color=MUTED, **above)


def _sheet(
    picture: Bytes, heading: str, detail: str = "", *, left: int = _MARGIN, foot: int = 0, foot_dots: int = _MARGIN
) -> tuple[Figure, Axes, int]:
    """A figure of one picture, its axes, and how many dots a pixel has; ``foot`` is room under it, in its pixels."""
    height, width = picture.shape[:2]
    magnified = int(max(1, min(_MOST_MAGNIFIED, _WIDEST * DPI // width)))
    bottom = foot * magnified + foot_dots
    across = max(left + magnified * width + _MARGIN, round(_NARROWEST * DPI))
    up = bottom + magnified * height + (_HEAD if detail else _HEAD - 24)
    figure = Figure(figsize=(across / DPI, up / DPI), dpi=DPI, facecolor="white")
    axis = figure.add_axes((left / across, bottom / up, magnified * width / across, magnified * height / up))
    show_picture(axis, picture, detail, heading)
    return figure, axis, magnified


def _apart(images: Images) -> int:
    """Pixels between groups of images."""
    return max(3, images.shape[3] // 5)


def _decoded(flow: RectangularFlow, z: Tensor) -> Tensor:
    return torch.cat([flow.decode(part) for part in z.split(flow.rows_at_once())])
